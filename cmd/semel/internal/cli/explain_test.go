package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	t.Run("the words of all doors are", func(t *testing.T) {
		const root = "../../../../"
		for _, from := range []struct{ file, constant string }{
			{"protocol/webhook/verify.go", `Code *= "(\w+)"`}, {"protocol/webhook/payment.go", `Code *= "(\w+)"`},
			{"protocol/ids/errors.go", `Reason *= "(\w+)"`}, {"protocol/ids/respond.go", `Reason\w+ *= "(\w+)"`},
			{"protocol/forrst/code.go", `Code = "(IDEMPOTENCY_\w+)"`}, {"evidence/artifact.go", `TypeRejected Type = "([a-z.]+)"`},
		} {
			source, err := os.ReadFile(root + from.file)
			if err != nil {
				t.Fatal(err)
			}
			words := regexp.MustCompile(from.constant).FindAllSubmatch(source, -1)
			if len(words) == 0 {
				t.Errorf("%s has none", from.file)
			}
			for _, w := range words {
				if code, _, errs := semelWith(t, "", "explain", string(w[1])); code != ExitOK {
					t.Errorf("%s: exit %d, %s", from.file, code, errs)
				}
			}
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
