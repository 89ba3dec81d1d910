package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// TestSecurityTables sends every request of docs/security.md with every credential.
func TestSecurityTables(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`"id":"[^"]*"`)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); id.Match(body) { // it speaks Forrst
			fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},%s,"result":{}}`, id.Find(body))
		}
	}))
	defer up.Close()
	const store, operations = "store: {url: 'memory:'}\n", "operations: [{name: default}, {name: charge}, {name: call}, {name: message}]\n"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_YSBzZWNyZXQgb2YgdGhlIHNlbmRlciwgYXMgbG9uZyBhcyBuZWVkZWQ="), 0o600); err != nil {
		t.Fatal(err)
	}
	senders := fmt.Sprintf("webhooks: [{path: /webhook, source: github, secret_files: ['%[1]s'], mode: sync, upstream: '%[2]s'}]\n"+
		"activitypub: [{actors_url: 'https://social.example/actors/{actor}', actors: [alice], shared_inbox: /inbox, upstream: '%[2]s', upstream_secret_files: ['%[1]s']}]\n", secret, up.URL)
	rpc := fmt.Sprintf("forrst: [{path: /forrst, upstream: '%s', functions: [{name: payments.charge, versions: [1.0.0], operation: call}]}]\n", up.URL)
	agent := fmt.Sprintf("a2a: [{path: /agent, upstream: '%s', operation: message}]\n", up.URL)
	routes := fmt.Sprintf("routes: [{match: POST /guarded, upstream: '%s', operation: charge}, {match: POST /open, upstream: '%s', mode: 'off'}]\n", up.URL, up.URL)
	callers := fmt.Sprintf("auth: {tokens: [{name: shop, tenant: acme, sha256: %s}, {name: ada, tenant: acme, roles: [admin], sha256: %s}, {name: root, roles: [admin], sha256: %s}]}\n",
		auth.HashToken("shop"), auth.HashToken("ada"), auth.HashToken(rootToken))
	// What 'semel proxy' makes of its flags.
	proxy := "api: 'off'\nroutes: [{match: /, upstream: '" + up.URL + "', key: optional}]\n"
	is, adminToken := newIssuer(t), filepath.Join(t.TempDir(), "admin.token")
	if err := os.WriteFile(adminToken, []byte(rootToken), 0o600); err != nil {
		t.Fatal(err)
	}
	issued := fmt.Sprintf("auth: {jwt: [{issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%[1]s', tenant_claim: ''}]}\n", is.URL)
	services := map[string]*running{
		"auth":  start(t, write(t, store+operations+routes+rpc+agent+senders+callers)),
		"open":  start(t, write(t, store+operations+routes+rpc)),
		"jwt":   start(t, write(t, store+proxy+issued)),
		"token": start(t, write(t, store+proxy+issued+"admin: {token_file: '"+adminToken+"'}\n")),
		"proxy": start(t, write(t, store+proxy)),
	}
	columns := []string{"", "Basic bWFkZTp1cA==", "Bearer made-up", "Bearer shop", "Bearer ada", "Bearer " + rootToken}
	bodies := map[string]string{
		"/v1/batch": `{"items":[{"complete":{"execution":"x.1"}}]}`,
		"/forrst": `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"payments.charge","version":"1.0.0","arguments":{}},` +
			`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`,
		"/agent": `{"jsonrpc":"2.0","id":"1","method":"message/send","params":{"message":{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`,
		"/inbox": `{"id":"https://there.example/a/1","type":"Like","actor":"https://there.example/u/bob","to":"https://social.example/actors/alice","object":"https://social.example/notes/1"}`,
	}

	tables := regexp.MustCompile(`(?s)<!-- table: (\w+), (\w+) -->\n.*?\n\n`).FindAllStringSubmatch(string(text), -1)
	if len(tables) != 8 {
		t.Fatalf("the page has %d tables", len(tables))
	}
	row := regexp.MustCompile("(?m)^\\| `(\\w+) ([^`]+)` \\| (.*) \\|$")
	key := 0
	for _, table := range tables {
		s, listener := services[table[2]], (*running).data
		if table[1] == "admin" {
			listener = (*running).admin
		}
		rows := row.FindAllStringSubmatch(table[0], -1)
		if len(rows) == 0 {
			t.Errorf("the table %s, %s has no requests", table[1], table[2])
		}
		for _, r := range rows {
			want := strings.Split(r[3], " | ")
			if len(want) != len(columns) {
				t.Fatalf("%s has %d columns", r[0], len(want))
			}
			for i, credential := range columns {
				key++
				if byIssuer := table[2] == "jwt" || table[2] == "token"; byIssuer && i == 3 {
					credential = "Bearer " + is.token(t, jwt.MapClaims{"sub": "shop"})
				} else if byIssuer && i == 4 {
					credential = "Bearer " + is.token(t, jwt.MapClaims{"sub": "ada", "roles": []string{"admin"}, "tenant": "acme"})
				}
				header := []string{"Idempotency-Key", "a-key-of-its-own-" + strconv.Itoa(key)}
				if credential != "" {
					header = append(header, "Authorization", credential)
				}
				if r[2] == "/inbox" {
					header = append(header, "Content-Type", "application/activity+json")
				}
				body := bodies[r[2]]
				if body == "" && r[1] == http.MethodPost && r[2] != "/v1/reload" && r[2] != "/v1/accept-clock" {
					body = "{}"
				}
				status, answer, text := do(t, r[1], listener(s, r[2]), body, header...)
				if strconv.Itoa(status) != want[i] {
					t.Errorf("%s, %s: %s %s with %q: %d, and the page says %s: %s", table[1], table[2], r[1], r[2], credential, status, want[i], text)
				}
				if signed := r[2] == "/webhook" || r[2] == "/inbox"; status == http.StatusUnauthorized && !signed && answer.Get("WWW-Authenticate") == "" {
					t.Errorf("%s, %s: %s %s: a 401 without a challenge", table[1], table[2], r[1], r[2])
				}
				if table[2] == "auth" && r[2] == "/readyz?verbose" && strings.Contains(text, "memory:") != (i >= 4) {
					t.Errorf("what the checks found, with %q: %s", credential, text)
				}
			}
		}
	}
}
