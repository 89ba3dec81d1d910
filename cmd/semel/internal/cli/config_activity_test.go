package cli

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// captured is a delivery to an inbox as somebody saved it, signed in a form; empty for
// none.
func captured(t *testing.T, path, form, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://social.example"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/activity+json")
	if form != "" {
		_, key, err := ed25519.GenerateKey(nil)
		if err == nil {
			err = httpsig.Sign(r, []byte(body), httpsig.SignOptions{KeyID: "https://there.example/users/bob#main-key", Key: key, Form: form})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	text.WriteString("POST " + path + " HTTP/1.1\r\nHost: social.example\r\n")
	if err := r.Header.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String() + "\r\n" + body
}

func TestConfigExplainsAnActivity(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "semel.yaml")
	text := `
activitypub:
  - actors_url: https://social.example/actors/{actor}
    actors: [alice, carol]
    shared_inbox: /inbox
    upstream: http://127.0.0.1:9
    instances: [{host: bad.example, refuse: true}, {host: proto.example, unsigned: allow}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const body = `{"type":"Like","id":"https://there.example/a/1","actor":"https://there.example/users/bob","object":"x"}`
	const head = "door       activitypub\nsetting    activitypub[0]\noperation  activitypub.inbox\nupstream   http://127.0.0.1:9\nkey        https://there.example/a/1\n" +
		"activity   https://there.example/a/1\ntype       Like\nactor      https://there.example/users/bob\n"
	for _, test := range []struct{ name, request, want string }{
		{"a signature that is right but for its key", captured(t, "/actors/alice/inbox", httpsig.FormCavage, body), head +
			"inbox      alice\ndigest     ...\nsignature  cavage, right if the key is: keys are not fetched here\nkey id     https://there.example/users/bob#main-key\n"},
		{"the newer form, to the shared inbox", captured(t, "/inbox/", httpsig.FormRFC9421, body), head +
			"inbox      shared\ndigest     ...\nsignature  rfc9421, right if the key is: keys are not fetched here\nkey id     https://there.example/users/bob#main-key\n"},
		{"another body than the signed one", strings.Replace(captured(t, "/actors/alice/inbox", httpsig.FormCavage, body), `"object":"x"`, `"object":"y"`, 1), head +
			"signature  cavage\nkey id     https://there.example/users/bob#main-key\nrefused    with status 401: ..."},
		{"no signature", captured(t, "/actors/alice/inbox", "", body), head + "signature  none, and one is needed\nrefused    with status 401: ..."},
		{"another actor", captured(t, "/actors/mallory/inbox", httpsig.FormCavage, body), head +
			"digest     ...\nsignature  cavage, right if the key is: keys are not fetched here\nkey id     https://there.example/users/bob#main-key\nrefused    with status 404: there is no such actor\n"},
		{"no signature from a prototype", captured(t, "/actors/alice/inbox", "", strings.ReplaceAll(body, "there.example", "proto.example")), strings.ReplaceAll(head, "there.example", "proto.example") +
			"inbox      alice\ndigest     ...\nsignature  none, and none is needed\n"},
		{"a refused instance", captured(t, "/actors/alice/inbox", "", strings.ReplaceAll(body, "there.example", "bad.example")), strings.ReplaceAll(head, "there.example", "bad.example") +
			"signature  none, and one is needed\nrefused    with status 403: activities of this actor's instance are refused\n"},
		{"an id of another server", captured(t, "/actors/alice/inbox", httpsig.FormCavage, strings.Replace(body, "there.example/a", "else.example/a", 1)), strings.ReplaceAll(head, "there.example/a", "else.example/a") +
			"digest     ...\nsignature  cavage, right if the key is: keys are not fetched here\nkey id     https://there.example/users/bob#main-key\nrefused    with status 422: the id of the activity is that of another server than its actor's\n"},
	} {
		code, out, errs := semelWith(t, test.request, "config", "explain", "--config", file, "--request", "-")
		if code != ExitOK || errs != "" || !likely(out, test.want) {
			t.Errorf("%s: exit %d, %s\n%s\nwant:\n%s", test.name, code, errs, out, test.want)
		}
	}
	code, out, _ := semelWith(t, captured(t, "/inbox", httpsig.FormCavage, body), "config", "explain", "--config", file, "--request", "-", "--json")
	if code != ExitOK || !strings.Contains(out, `"signature": "cavage"`) || !strings.Contains(out, `"signature_needed": true`) || !strings.Contains(out, `"unproved": true`) {
		t.Errorf("exit %d, %s", code, out)
	}
}

// likely reports whether a text is the wanted one, in which ... stands for the rest of a
// line.
func likely(text, want string) bool {
	got, lines := strings.Split(strings.TrimSpace(text), "\n"), strings.Split(strings.TrimSpace(want), "\n")
	if len(got) != len(lines) {
		return false
	}
	for i, line := range lines {
		if begin, cut := strings.CutSuffix(line, "..."); got[i] != line && (!cut || !strings.HasPrefix(got[i], begin)) {
			return false
		}
	}
	return true
}
