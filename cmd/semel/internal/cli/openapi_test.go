package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const described = `openapi: 3.1.0
servers: [{url: "http://127.0.0.1:3000"}]
paths:
  /charges:
    post:
      responses: {"201": {description: charged}}
`

// TestOpenAPI: callers read in the description what the guard does, and the service takes the
// routes that are proposed for it.
func TestOpenAPI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(file, []byte(described), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := semelWith(t, "", "openapi", "annotate", file)
	for _, want := range []string{"name: Idempotency-Key", "required: true", `"409":`, `"422":`, "Idempotency-Replayed"} {
		if code != ExitOK || errs != "" || !strings.Contains(out, want) {
			t.Errorf("exit %d, %s; no %q in\n%s", code, errs, want, out)
		}
	}
	if _, out, _ := semelWith(t, "", "openapi", "annotate", file, "--optional", "--header", "X-Key"); !strings.Contains(out, "name: X-Key") || !strings.Contains(out, "required: false") {
		t.Errorf("an optional key in another header:\n%s", out)
	}
	code, out, errs = semelWith(t, described, "config", "from-openapi", "-")
	if code != ExitOK || !strings.Contains(out, "match: POST /charges") || !strings.Contains(out, "financial: true") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if code, valid, errs := semelWith(t, out, "config", "validate", "-"); code != ExitOK {
		t.Errorf("exit %d: %s%s", code, valid, errs)
	}
	for text, want := range map[string]string{
		"a: 1": "describes no API", strings.Replace(described, "http://127.0.0.1:3000", "/", 1): "--upstream", "openapi: 3.1.0\nservers: [{url: 'http://h'}]": "no POST",
	} {
		if code, out, errs := semelWith(t, text, "config", "from-openapi", "-"); code == ExitOK || out != "" || !strings.Contains(errs, want) {
			t.Errorf("exit %d, %s, %s; want %q", code, out, errs, want)
		}
	}
}
