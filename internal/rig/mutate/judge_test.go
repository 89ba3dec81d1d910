package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A module with a mutant of each kind: Abs is tested well and Twice badly, Join concatenates
// strings, which can't be subtracted, and Wait never ends without its "!".
var world = map[string]string{
	"go.mod": "module example.org/world\n\ngo 1.26\n",
	"world.go": `package world

func Abs(n int) int {
	if n >= 0 {
		return n
	}
	return -n
}

func Twice(n int) int { return n * 2 }

func Join(a, b string) string { return a + b }

func Wait(done bool) {
	for !done {
		select {} // and leaves the processors to others meanwhile
	}
}
`,
	"world_test.go": `package world

import "testing"

func TestAbs(t *testing.T) {
	t.Run("of what is negative", func(t *testing.T) {
		if Abs(-3) != 3 {
			t.Fatal(Abs(-3))
		}
	})
	if Abs(3) != 3 {
		t.Fatal(Abs(3))
	}
}

func TestTwice(t *testing.T) {
	if !testing.Short() && Twice(0) != 0 {
		t.Fatal(Twice(0))
	}
}

func TestJoin(t *testing.T) { _ = Join("a", "b") }

func TestWait(t *testing.T) { Wait(true) }
`,
	"scripts/mutate.survivors": "world.go\tAbs\t>= becomes > in n >= 0\t-0 is 0\nworld.go\tAbs\tdrop n = -n\tit is gone\n",
}

func TestMutate(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the go command many times")
	}
	root := t.TempDir()
	for name, text := range world {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := []target{{".", []string{"world.go"}, []string{"."}}}
	o := options{n: 100, seed: 1, out: filepath.Join(t.TempDir(), "list"), patience: 10 * time.Second}
	var first, second strings.Builder
	if err := mutate(t.Context(), root, all, o, &first); err != errSurvivors {
		t.Fatalf("%v\n%s", err, first.String())
	}
	for _, want := range []string{
		"\tkilled\tworld.go:4\tAbs\tnegate n >= 0\t. TestAbs/of_what_is_negative\n",
		"\tkilled\tworld.go:5\tAbs\tdrop the early return n\t. TestAbs\n",
		"\tsurvived\tworld.go:4\tAbs\t>= becomes > in n >= 0\t\n",
		"\tsurvived\tworld.go:10\tTwice\t2 becomes 3\t\n",
		"\tdid not compile\tworld.go:12\tJoin\t+ becomes - in a + b\t",
		"\ttimed out\tworld.go:15\tWait\tdrop the ! of !done\t. TestWait\n",
		"\nsurvived, and not known:\nworld.go\tAbs\t0 becomes 1\nworld.go\tTwice\t* becomes / in n * 2\nworld.go\tTwice\t2 becomes 3\n",
		"not in the source any more; remove them from scripts/mutate.survivors:\nworld.go\tAbs\tdrop n = -n\n",
	} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("missing %q", want)
		}
	}
	if t.Failed() {
		t.Log(first.String())
	}
	// All of them are in the list now.
	if err := mutate(t.Context(), root, all, o, &second); err != errSurvivors || strings.Contains(second.String(), "\tkilled\t") {
		t.Errorf("%v\n%s", err, second.String())
	}
	if !strings.HasSuffix(first.String(), second.String()) {
		t.Errorf("sums up in another way:\n%s", second.String())
	}
	if src, err := os.ReadFile(filepath.Join(root, "world.go")); err != nil || string(src) != world["world.go"] {
		t.Error("the source was touched", err)
	}
}

func TestFirstFailed(t *testing.T) {
	for _, c := range []struct {
		name, events, test string
		late               bool
	}{
		{"a subtest", `{"Action":"run","Test":"A"}
{"Action":"run","Test":"A/b"}
{"Action":"fail","Test":"A/b"}
{"Action":"fail","Test":"A"}
{"Action":"fail"}`, "A/b", false},
		{"time is up", `{"Action":"run","Test":"A"}
{"Action":"pass","Test":"A"}
{"Action":"run","Test":"B"}
{"Action":"output","Test":"B","Output":"panic: test timed out after 1s\n"}
{"Action":"fail","Test":"B"}`, "B", true},
		{"a panic of no test", `{"Action":"run","Test":"A"}
{"Action":"output","Output":"panic: deadlock\\n"}
{"Action":"fail"}`, "A", false},
		{"no test", `{"Action":"build-fail"}
nonsense
{"Action":"fail"}`, "", false},
	} {
		if test, late := firstFailed(parseEvents([]byte(c.events))); test != c.test || late != c.late {
			t.Errorf("%s: %q, %t", c.name, test, late)
		}
	}
}
