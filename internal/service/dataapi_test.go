package service_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// credentials are what strangers can make up.
var credentials = map[string][]string{
	"none":            nil,
	"a made-up Basic": {"Authorization", "Basic bWFkZTp1cA=="},
	"a made-up token": {"Authorization", "Bearer made-up"},
	"another scheme":  {"Authorization", "Hawk id=1"},
	"two of them":     {"Authorization", "Basic eDp5", "X-Api-Key", "made-up"},
}

func TestOnlyVerifiedCallersUseTheAPI(t *testing.T) {
	token := "a caller's token"
	s := start(t, write(t, fmt.Sprintf("store: {url: 'memory:'}\nauth: {default_tenant: acme, tokens: [{name: shop, sha256: %s}]}\n", auth.HashToken(token))))
	known := []string{"Authorization", "Bearer " + token}
	requests := map[string][3]string{
		"begin":      {"POST", "/v1/operations/default/executions", `{"key":"k"}`},
		"batch":      {"POST", "/v1/batch", `{"items":[{"begin":{"operation":"default","key":"b"}}]}`},
		"operations": {"GET", "/v1/operations", ""},
		"operation":  {"GET", "/v1/operations/default", ""},
		"records":    {"GET", "/v1/records/x", ""},
		"end":        {"POST", "/v1/executions/x.1/complete", "{}"},
		"the API":    {"GET", "/openapi.json", ""},
		"the pages":  {"GET", "/docs/", ""},
	}
	for what, r := range requests {
		for which, header := range credentials {
			status, answer, text := do(t, r[0], s.data(r[1]), r[2], header...)
			if status != http.StatusUnauthorized || !strings.HasPrefix(answer.Get("WWW-Authenticate"), "Bearer ") ||
				answer.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, `"code":"unauthorized"`) {
				t.Errorf("%s with %s: %d %v %s", what, which, status, answer, text)
			}
		}
		if status, _, text := do(t, r[0], s.data(r[1]), r[2], known...); status == http.StatusUnauthorized || status >= 500 {
			t.Errorf("%s by a caller who is known: %d %s", what, status, text)
		}
	}
	if status, _, text := do(t, "GET", s.data("/problems/in_flight"), ""); status != http.StatusOK {
		t.Error("the page of a problem:", status, text)
	}
}

func TestTheOpenAPIIsForThisMachine(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\n"))
	begin := s.data("/v1/operations/default/executions")
	if status, _, text := do(t, "POST", begin, `{"key":"k"}`); status != http.StatusCreated {
		t.Error(status, text)
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Via"} {
		for _, credential := range []string{"", "Basic eDp5"} {
			status, _, text := do(t, "POST", begin, `{"key":"forwarded"}`, header, "198.51.100.7", "Authorization", credential)
			if status != http.StatusUnauthorized || !strings.Contains(text, "proxy") {
				t.Errorf("%s and %q: %d %s", header, credential, status, text)
			}
		}
	}
}

func TestTheAPICanBeOff(t *testing.T) {
	s := start(t, write(t, "store: {url: 'memory:'}\napi: 'off'\n"))
	for _, path := range []string{"/v1/operations", "/openapi.json", "/docs", "/v1/batch"} {
		if status, _, text := do(t, "GET", s.data(path), ""); status != http.StatusNotFound || !strings.Contains(text, "the execution API is off") {
			t.Error(path, status, text)
		}
	}
	if status, _, text := do(t, "GET", s.admin("/v1/operations"), ""); status != http.StatusOK {
		t.Error("the admin listener:", status, text)
	}
}

// Without known callers, the API may not be open beyond this machine, or next to anything
// that signs in the service's name.
func TestAnOpenAPIIsRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_"+strings.Repeat("c3Nz", 12)), 0o600); err != nil {
		t.Fatal(err)
	}
	token := fmt.Sprintf("auth: {tokens: [{name: shop, sha256: %s}]}\n", auth.HashToken("token"))
	for text, want := range map[string]string{
		"listen: {address: ':8480'}\n":                     "can be reached from other machines",
		"listen: {address: '192.0.2.1:8480'}\napi: open\n": "can be reached from other machines",
		"dispatch: {destinations: [{name: a, operations: [default], url: 'https://a.example/', secret_files: [" + secret + "]}]}\n": "send messages",
		"evidence: {key_file: evidence.key}\n":         "evidence log",
		"api: open\n" + token:                          "made-up credentials",
		"api: verified\n":                              "no method",
		"listen: {address: ':8480'}\napi: 'off'\n":     "",
		"listen: {address: ':8480'}\n" + token:         "",
		"evidence: {key_file: evidence.key}\n" + token: "",
		"api: open\n":                                  "",
	} {
		_, _, err := config.Load(config.Source{Path: "semel.yaml", Data: []byte(text), Env: func(string) (string, bool) { return "", false }})
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Count(err.Error(), " api: ") < 1) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A page in a browser can reach addresses of this machine, and its own name can be
// pointed there. Neither reaches the API; routes are for browsers too.
func TestPagesOfOthersDoNotReachTheAPI(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	s := start(t, write(t, fmt.Sprintf("listen: {hosts: [api.example.com]}\nstore: {url: 'memory:'}\nroutes: [{match: POST /page, upstream: '%s', key: optional}]\n", up.URL)))
	batch := `{"items":[{"begin":{"operation":"default","key":"order-1"}}]}`
	for name, header := range map[string][]string{
		"another origin":             {"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"},
		"another origin, old":        {"Origin", "http://evil.example"},
		"another origin of the site": {"Sec-Fetch-Site", "same-site"},
	} {
		if status, _, text := do(t, "POST", s.data("/v1/batch"), batch, header...); status != http.StatusForbidden || !strings.Contains(text, `"code":"forbidden"`) {
			t.Errorf("a page of %s: %d %s", name, status, text)
		}
		if status, _, text := do(t, "POST", s.data("/page"), batch, header...); status != http.StatusOK {
			t.Errorf("a page of %s at a route: %d %s", name, status, text)
		}
	}
	for _, host := range []string{"evil.example:8480", "evil.example", "127.0.0.1.evil.example", "0x7f.1", ""} {
		for _, r := range [][2]string{{"POST", "/v1/batch"}, {"GET", "/v1/records"}, {"GET", "/openapi.json"}} {
			if host == "" {
				continue
			}
			if status, _, text := do(t, r[0], s.data(r[1]), batch, "Host", host); status != http.StatusMisdirectedRequest || !strings.Contains(text, `"code":"unknown_host"`) {
				t.Errorf("%s as %q: %d %s", r[1], host, status, text)
			}
		}
		if status, _, text := do(t, "POST", s.data("/page"), "{}", "Host", host); status != http.StatusOK {
			t.Errorf("a route as %q: %d %s", host, status, text)
		}
	}
	for _, host := range []string{"api.example.com", "API.example.com:443", "localhost:1", "127.0.0.1", "[::1]:9"} {
		if status, _, text := do(t, "GET", s.data("/v1/operations"), "", "Host", host); status != http.StatusOK {
			t.Errorf("as %q: %d %s", host, status, text)
		}
	}
	if status, _, text := do(t, "GET", s.admin("/v1/operations"), "", "Host", "api.example.com"); status != http.StatusMisdirectedRequest {
		t.Error("the admin listener under a name of the data listener:", status, text)
	}
	// Without a type, a browser sends the request without a preflight.
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		if status, _, text := do(t, "POST", s.data("/v1/batch"), batch, "Content-Type", kind); status != http.StatusUnsupportedMediaType {
			t.Errorf("a body of type %q: %d %s", kind, status, text)
		}
	}
	if status, _, text := do(t, "GET", s.admin("/v1/records"), ""); strings.Contains(text, "order-1") {
		t.Error("something was begun:", status, text)
	}
}
