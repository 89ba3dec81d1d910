package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedConfigurations loads what the documents show, beside the files that
// have its secrets.
func TestDocumentedConfigurations(t *testing.T) {
	text, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(shown) == 0 {
		t.Fatal("docs/service.md shows no configuration")
	}
	t.Chdir(t.TempDir())
	for name, secret := range map[string]string{
		"alice.token": "a-token", "billing.secret": "whsec_" + strings.Repeat("c3Nz", 11),
		"app.secret": "an app's secret", "verify.token": "the owner's token", "reply.secret": "whsec_" + strings.Repeat("c3Nz", 12),
	} {
		if err := os.WriteFile(name, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range shown {
		if _, _, err := Load(Source{Path: "docs/service.md", Data: m[1], Env: func(string) (string, bool) { return "", false }}); err != nil {
			t.Errorf("%v\n%s", err, m[1])
		}
	}
}
