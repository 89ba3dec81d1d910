package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedConfigurations loads the examples in the documents, beside files with
// their secrets.
func TestDocumentedConfigurations(t *testing.T) {
	shown := map[string][][]byte{}
	for _, page := range []string{"docs/service.md", "docs/webhooks.md", "docs/activitypub.md", "docs/commerce.md", "docs/reconcile.md"} {
		text, err := os.ReadFile("../../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)<!-- config -->\n```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			shown[page] = append(shown[page], m[1])
		}
		if len(shown[page]) == 0 {
			t.Errorf("%s shows no configuration", page)
		}
	}
	t.Chdir(t.TempDir())
	for name, secret := range map[string]string{
		"alice.token": "a-token", "stripe.key": "sk_test_1", "books.url": "postgres://reader@127.0.0.1/books", "shop.token": "another", "session.key": strings.Repeat("A", 43) + "=", "billing.secret": "whsec_" + strings.Repeat("c3Nz", 11),
		"gateway.secret": "the gateway's secret", "app.secret": "an app's secret", "verify.token": "the owner's token", "upstream.secret": "whsec_" + strings.Repeat("c3Nz", 13), "reply.secret": "whsec_" + strings.Repeat("c3Nz", 12),
	} {
		if err := os.WriteFile(name, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for page, texts := range shown {
		for _, text := range texts {
			if _, _, err := Load(Source{Path: page, Data: text, Env: func(string) (string, bool) { return "", false }}); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
}
