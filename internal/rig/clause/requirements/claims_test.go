package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestFindClaims(t *testing.T) {
	const call = "package p\n\nimport \"example.com/m/internal/rig/clause\"\n\nfunc f() { clause.Proves(t, \"CORE-INV.1\") }\n"
	root := tree(t, map[string]string{
		"p/p_test.go":          call,
		"store/storetest/p.go": call,
		"p/testdata/p.go":      call,
		".hidden/p.go":         call,
		"_ignored/p.go":        call,
		"nested/go.mod":        "module example.com/nested\n",
		"nested/p_test.go":     call,
		"p/p.txt":              call,
	})
	claims, err := findClaims(root, module)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, c := range claims {
		files = append(files, c.file)
	}
	if got, want := strings.Join(files, " "), "p/p_test.go store/storetest/p.go"; got != want {
		t.Fatalf("claims in %q, want %q", got, want)
	}
}

func TestClaimsIn(t *testing.T) {
	in := func(imports, body string) string {
		claims, err := claimsIn("p_test.go", fmt.Appendf(nil, "package p\nimport %s\nfunc f() {\n%s\n}\n", imports, body), module+"/internal/rig/clause")
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for _, c := range claims {
			fmt.Fprintf(&b, "%s@%d-%d ", c.id, c.line, c.end)
		}
		return b.String()
	}
	const path = `"example.com/m/internal/rig/clause"`
	for _, test := range []struct{ name, imports, body, want string }{
		{"each id of a call is a claim", path, `clause.Proves(t, "CORE-INV.1", "CORE-INV.2")`, "CORE-INV.1@4-4 CORE-INV.2@4-4 "},
		{"a call over several lines covers them all", path, "clause.Proves(t,\n`CORE-INV.1`,\n)", "CORE-INV.1@4-6 "},
		{"a call inside a function literal counts", path, `t.Run("x", func() { clause.Proves(t, "CORE-INV.1") })`, "CORE-INV.1@4-4 "},
		{"the package may go by another name", "spec " + path, `spec.Proves(t, "CORE-INV.1")`, "CORE-INV.1@4-4 "},
		{"another package's Proves is none", `"example.com/other/clause"`, `clause.Proves(t, "CORE-INV.1")`, ""},
		{"an unknown id is refused", path, `clause.Proves(t, "CORE-INV.99")`, `p_test.go:4: unknown clause "CORE-INV.99"`},
		{"an id that is no literal is refused", path, `clause.Proves(t, ids...)`, "p_test.go:4: clause ids must be string literals"},
		{"handing the function on is refused", path, `prove := clause.Proves`, "p_test.go:4: clause.Proves must be called, not passed on"},
		{"a dot import is refused", ". " + path, `Proves(t, "CORE-INV.1")`, "p_test.go: import example.com/m/internal/rig/clause by a name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := in(test.imports, test.body); got != test.want {
				t.Fatalf("got %q, want %q", got, test.want)
			}
		})
	}
}
