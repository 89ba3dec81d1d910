package cli

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/peer"
)

func TestExplain(t *testing.T) {
	t.Run("every code is explained", func(t *testing.T) {
		for _, p := range explained() {
			code, out, errs := semelWith(t, "", "explain", string(p.Code))
			if code != ExitOK || !strings.Contains(out, p.Meaning) || !strings.Contains(out, p.Action) {
				t.Errorf("%s: exit %d, %s%s", p.Code, code, out, errs)
			}
		}
	})
	t.Run("all are listed", func(t *testing.T) {
		if code, out, _ := semelWith(t, "", "explain"); code != ExitOK || strings.Count(out, "\n") != len(explained()) {
			t.Errorf("exit %d, %s", code, out)
		}
	})
	t.Run("whatever has the type of a code anywhere is", func(t *testing.T) {
		explains := func(word, where string) {
			if code, _, errs := semelWith(t, "", "explain", word); code != ExitOK {
				t.Errorf("%s: exit %d, %s", where, code, errs)
			}
		}
		for _, c := range semel.Codes() {
			explains(string(c), "the engine")
		}
		for _, d := range semel.Decisions() {
			explains(string(d), "the decisions")
		}
		for n := ExitOK; n <= ExitUnavailable; n++ {
			explains(strconv.Itoa(n), "the exit codes")
		}
		declared := []*regexp.Regexp{
			regexp.MustCompile(`(?m)^\s*(?:const )?\w+ +(?:\w+\.)?(?:Code|Reason|Limit|Decision) *= *"([\w.]+)"`), // a constant
			regexp.MustCompile(`(?m)^\s*Reason[A-Z]\w* *= *"(\w+)"`),
			regexp.MustCompile(`(?:Failure|Refusal)\{Code: "(\w+)"`),
			regexp.MustCompile(`(?:Failure|details)\.(?:Code|Reason) = "(\w+)"`),
			regexp.MustCompile(`TypeRejected Type = "([a-z.]+)"`),
			regexp.MustCompile(`(-3[12]\d{3})\b`),
		}
		seen := map[string]int{}
		const root = "../../../.."
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(root, file)
			if d.IsDir() && slices.Contains([]string{".git", "testdata", "examples", "bench", "internal/rig/chaos", "store/storetest", "internal/rig/mutate", "contrib"}, filepath.ToSlash(name)) {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			source, err := os.ReadFile(file)
			for i, pattern := range declared {
				if i == len(declared)-1 && !strings.Contains(name, "jsonrpc") && !strings.Contains(name, "a2a") {
					continue
				}
				for _, w := range pattern.FindAllSubmatch(source, -1) {
					if string(w[1]) == "-32099" {
						continue // the end of the range of a server's own
					}
					seen[filepath.ToSlash(filepath.Dir(name))]++
					explains(string(w[1]), name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{
			".", "door", "store", "dispatch", "evidence", "door/webhook", "door/ids", "door/ids/whatsapp", "door/forrst", "door/inbox",
			"door/activitypub/httpsig", "door/a2a", "internal/jsonrpc", "client",
		} {
			if seen[dir] == 0 {
				t.Errorf("no code was found in %s", dir)
			}
		}
	})
	t.Run("a call isn't a code", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "explain", "AQAADG9yZGVycy5wbGFjZQpwbGFjZS05OTEx"); code != ExitUsage || !strings.Contains(errs, "ask 'semel why AQAADG9yZGVycy5wbGFjZQpwbGFjZS05OTEx'") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("a reason of A2A is the code in capitals", func(t *testing.T) {
		_, want, _ := semelWith(t, "", "explain", "held")
		if code, out, errs := semelWith(t, "", "explain", "HELD"); code != ExitOK || out != want {
			t.Errorf("exit %d, %s%s", code, out, errs)
		}
	})
	t.Run("no word is explained twice", func(t *testing.T) {
		seen := map[string]bool{}
		for _, p := range explained() {
			if seen[string(p.Code)] {
				t.Errorf("%s is", p.Code)
			}
			seen[string(p.Code)] = true
		}
	})
	t.Run("an unknown code is a wrong command line, with a suggestion", func(t *testing.T) {
		if code, _, errs := semelWith(t, "", "explain", "conflikt"); code != ExitUsage || !strings.Contains(errs, "did you mean conflict?") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("so is the type of a problem document", func(t *testing.T) {
		_, want, _ := semelWith(t, "", "explain", "held")
		for _, name := range []string{"/semel/problems/held", "https://api.example.com/semel/problems/held"} {
			if code, out, errs := semelWith(t, "", "explain", name); code != ExitOK || out != want {
				t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
			}
		}
	})
	t.Run("a status lists its codes", func(t *testing.T) {
		code, out, _ := semelWith(t, "", "explain", "409")
		if code != ExitOK || !strings.Contains(out, "held ") || !strings.Contains(out, "in_flight ") || strings.Contains(out, "422 ") {
			t.Errorf("exit %d, %s", code, out)
		}
		if code, _, errs := semelWith(t, "", "explain", "299"); code != ExitUsage || !strings.Contains(errs, "no code has the status 299") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("the JSON has what the help says", func(t *testing.T) {
		_, out, _ := semelWith(t, "", "explain", "held", "--json")
		wantFields(t, out, "code", "status", "title", "meaning", "action")
	})
}

func TestHealthcheck(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer.Mark(w.Header(), peer.Admin)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(r.URL.Path + "\n"))
	}))
	defer srv.Close()
	if code, out, errs := semelWith(t, "", "healthcheck", "--url", srv.URL); code != ExitOK || out != "/readyz\n" {
		t.Error(code, out, errs)
	}
	if code, out, errs := semelWith(t, "", "healthcheck", "--url", srv.URL, "--live"); code != ExitOK || out != "/livez\n" {
		t.Error(code, out, errs)
	}
	t.Chdir(t.TempDir())
	write(t, "n1.yaml", "store: {url: 'memory:'}\nadmin: {address: '"+strings.TrimPrefix(srv.URL, "http://")+"'}\n")
	if code, out, errs := semelWith(t, "", "healthcheck", "--config", "n1.yaml"); code != ExitOK || out != "/readyz\n" {
		t.Error("the configured address:", code, out, errs)
	}
	status = http.StatusServiceUnavailable
	if code, _, errs := semelWith(t, "", "healthcheck", "--url", srv.URL); code != ExitCheck || !strings.Contains(errs, "not ready") {
		t.Error(code, errs)
	}
	srv.Close()
	if code, _, _ := semelWith(t, "", "healthcheck", "--url", srv.URL); code != ExitCheck {
		t.Error("nobody answers, and the exit code is", code)
	}
}

func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, _, errs := semelWith(t, "", "man", dir); code != ExitOK {
		t.Fatal(code, errs)
	}
	for _, name := range []string{"semel.1", "semel-serve.1", "semel-records-list.1"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) < 200 {
			t.Errorf("%s has %d bytes, %v", name, len(text), err)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*completion*")); len(found) > 0 {
		t.Errorf("there are pages on shells: %q", found)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "semel-records-list.1")); err != nil || !strings.Contains(string(text), "created before that time\n") {
		t.Errorf("a list and what follows are one line: %s, %v", text, err)
	}
}
