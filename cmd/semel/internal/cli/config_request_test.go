package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigExplainsARequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "semel.yaml")
	text := "api: 'off'\noperations: [{name: pay, financial: true, archive: false, evidence: changes}]\nevidence: {key_file: evidence.key}\n" +
		"forrst: [{path: /forrst, upstream: 'http://127.0.0.1:9', functions: [{name: payments.charge, versions: [1.0.0], operation: pay}]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "POST /forrst HTTP/1.1\nContent-Type: application/json\n\n"
	const body = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"payments.charge","arguments":{"b":1.0,"a":2}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`
	for _, request := range []string{head + body, strings.ReplaceAll(head, "\n", "\r\n") + body + "\r\n", "POST /forrst\n\n" + body} {
		code, out, errs := semelWith(t, request, "config", "explain", "--config", file, "--request", "-")
		const want = "door       forrst\nsetting    forrst[0]\noperation  pay\nupstream   http://127.0.0.1:9\nkey        k\n" +
			"id         req_1\nfunction   payments.charge 1.0.0\nscope      payments.charge@\nkept for   7 days\narguments  {\"a\":2,\"b\":1}\n"
		if code != ExitOK || errs != "" || out != want {
			t.Errorf("exit %d, %q, %s", code, errs, out)
		}
	}
	code, out, _ := semelWith(t, head+strings.Replace(body, `"key":"k"`, `"key":""`, 1), "config", "explain", "--config", file, "--request", "-")
	if code != ExitOK || !strings.Contains(out, "refused    with status 400\nbecause    INVALID_ARGUMENTS at /extensions/0/options/key: ") {
		t.Errorf("exit %d, %s", code, out)
	}
	code, out, _ = semelWith(t, head+body, "config", "explain", "--config", file, "--request", "-", "--json")
	if code != ExitOK || !strings.Contains(out, `"scope": "payments.charge@"`) {
		t.Errorf("exit %d, %s", code, out)
	}
	for _, other := range []struct{ request, door string }{
		{strings.Replace(head, "/forrst", "/other", 1) + body, "api"},
		{strings.Replace(head, "POST", "GET", 1) + body, "forrst"},
	} {
		if code, out, _ := semelWith(t, other.request, "config", "explain", "--config", file, "--request", "-"); code != ExitOK || !strings.HasPrefix(out, "door       "+other.door+"\n") || strings.Contains(out, "function") {
			t.Errorf("%q: exit %d, %s", other.request, code, out)
		}
	}
	for _, wrong := range []string{"", "POST"} {
		if code, _, errs := semelWith(t, wrong, "config", "explain", "--config", file, "--request", "-"); code == ExitOK || errs == "" {
			t.Errorf("%q: exit %d, %q", wrong, code, errs)
		}
	}
}
