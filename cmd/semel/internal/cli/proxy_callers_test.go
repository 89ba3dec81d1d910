package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/semelhq/semel/internal/rig/stage"
)

// issuer signs tokens, and has its keys in a file.
type issuer struct {
	key  *ecdsa.PrivateKey
	jwks []byte
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes() // 4, X and Y
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return &issuer{key, fmt.Appendf(nil, `{"keys":[{"kty":"EC","crv":"P-256","kid":"1","alg":"ES256","x":%q,"y":%q}]}`, b64(point[1:33]), b64(point[33:]))}
}

// token is one of a subject; no two are the same.
func (i *issuer) token(t *testing.T, subject string, more ...any) string {
	t.Helper()
	claims := jwt.MapClaims{
		"iss": "https://id.example.com", "aud": "shop", "sub": subject, "exp": time.Now().Add(time.Hour).Unix(), "jti": rand.Text(),
	}
	for i := 0; i+1 < len(more); i += 2 {
		claims[more[i].(string)] = more[i+1]
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = "1"
	text, err := token.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// proxied is a proxy in this process, in front of an upstream that counts.
func proxied(t *testing.T, args ...string) (send func(key string, header ...string) (int, string), calls *atomic.Int64) {
	t.Helper()
	at, calls := proxiedAt(t, args...)
	return func(key string, header ...string) (int, string) {
		t.Helper()
		return post(t, at.URL+"/orders", append([]string{"Idempotency-Key", key}, header...)...)
	}, calls
}

// addresses are those of a proxy.
type addresses struct {
	URL   string `json:"url"`
	Admin string `json:"admin_url"`
}

// post makes a request with an empty object. A header Host names the host.
func post(t *testing.T, url string, header ...string) (int, string) {
	t.Helper()
	return request(t, http.MethodPost, url, header...)
}

func request(t *testing.T, method, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := stage.Direct.Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func proxiedAt(t *testing.T, args ...string) (at addresses, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "ord_", calls.Add(1))
	}))
	t.Cleanup(up.Close)
	return guarding(t, append([]string{"proxy", up.URL, "--listen", "127.0.0.1:0", "--store", "memory:", "--json"}, args...)...), calls
}

// guarding runs a command that guards an upstream, in this process, until the test ends.
func guarding(t *testing.T, args ...string) (at addresses) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := Run(ctx, args, strings.NewReader(""), w, &log)
		_ = w.Close()
		ended <- code
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != ExitOK {
			t.Errorf("it ended with exit %d:\n%s", code, &log)
		}
	})
	if err := json.NewDecoder(r).Decode(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// delivery is one request to a proxy, and what comes back.
type delivery struct {
	header []string
	status int
	text   string
}

func TestCallersOfAProxy(t *testing.T) {
	t.Parallel()
	const key = "0f8fad5b-d9cb-469f-a165-70867728950e"
	id := newIssuer(t)
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, id.jwks, 0o600); err != nil {
		t.Fatal(err)
	}
	published := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(id.jwks)
	}))
	defer published.Close()
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	tokens := []delivery{
		{bearer(id.token(t, "alice")), 201, "ord_1"},
		{bearer(id.token(t, "alice")), 201, "ord_1"}, // renewed
		{bearer(id.token(t, "bob")), 201, "ord_2"},   // its own key
		{bearer("forged"), 401, "unidentified"},
		{nil, 401, "unidentified"},
	}
	signed := func(keyID, signature string) []string {
		return []string{"Authorization", "AWS4-HMAC-SHA256 Credential=" + keyID + "/20261125/us-east-1/execute-api/aws4_request, SignedHeaders=host, Signature=" + signature}
	}
	verify := []string{"--jwt-issuer", "https://id.example.com", "--jwt-audience", "shop", "--jwks"}
	for name, c := range map[string]struct {
		args       []string
		deliveries []delivery
		calls      int64
	}{
		"nobody is verified": {nil, []delivery{
			{bearer("10:00"), 201, "ord_1"}, {bearer("10:15"), 409, "other_caller"}, {bearer("10:00"), 201, "ord_1"}, {nil, 409, "other_caller"},
		}, 1},
		"tokens, with keys in a file": {append(verify, file), tokens, 2},
		"tokens, with keys at a URL":  {append(verify, published.URL), tokens, 2},
		"a trusted header": {[]string{"--trusted-header", "X-User"}, []delivery{
			{[]string{"X-User", "alice", "Authorization", "Bearer 10:00"}, 201, "ord_1"},
			{[]string{"X-User", "alice", "Authorization", "Bearer 10:15"}, 201, "ord_1"},
			{[]string{"X-User", "bob"}, 201, "ord_2"},
		}, 2},
		"a trusted header from somewhere else": {[]string{"--trusted-header", "X-User", "--trusted-from", "192.0.2.0/24"}, []delivery{
			{[]string{"X-User", "alice"}, 401, "unidentified"},
		}, 0},
		"a credential that is named": {[]string{"--credential", "X-Api-Key,cookie:session"}, []delivery{
			{[]string{"X-Api-Key", "1", "Authorization", "Bearer 10:00"}, 201, "ord_1"},
			{[]string{"X-Api-Key", "1", "Authorization", "Bearer 10:15"}, 201, "ord_1"},
			{[]string{"X-Api-Key", "1", "Cookie", "session=1"}, 409, "other_caller"},
		}, 1},
		"signed anew for each try": {nil, []delivery{
			{signed("AKID", "0a"), 201, "ord_1"}, {signed("AKID", "0b"), 409, "other_caller"}, {signed("AKID", "0a"), 409, "other_caller"},
		}, 1},
		"signed anew, and verified in front": {[]string{"--credential", "authorization:Credential"}, []delivery{
			{signed("AKID", "0a"), 201, "ord_1"}, {signed("AKID", "0b"), 201, "ord_1"}, {signed("AKIDOTHER", "0a"), 409, "other_caller"},
		}, 1},
		"nobody without a credential": {[]string{"--anonymous", "refuse"}, []delivery{{nil, 401, "unidentified"}, {bearer("1"), 201, "ord_1"}}, 1},
		"everybody":                   {[]string{"--anonymous", "share"}, []delivery{{[]string{"X-Forwarded-For", "203.0.113.1"}, 201, "ord_1"}}, 1},
		"a scope": {[]string{"--scope-header", "X-Account"}, []delivery{
			{[]string{"X-Account", "a"}, 201, "ord_1"}, {[]string{"X-Account", "b"}, 201, "ord_2"}, {[]string{"X-Account", "a"}, 201, "ord_1"},
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			send, calls := proxied(t, c.args...)
			for i, d := range c.deliveries {
				if status, text := send(key, d.header...); status != d.status || !strings.Contains(text, d.text) {
					t.Errorf("delivery %d: %d %s, want %d with %s", i, status, text, d.status, d.text)
				}
			}
			if n := calls.Load(); n != c.calls {
				t.Errorf("the upstream was called %d times, want %d", n, c.calls)
			}
		})
	}
	for _, args := range [][]string{
		{"--jwt-issuer", "https://id.example.com"}, {"--jwks", file, "--jwt-audience", "shop"}, {"--anonymous", "perhaps"},
	} {
		code, _, errs := semelWith(t, "", append([]string{"proxy", "http://127.0.0.1:1", "--store", "memory:"}, args...)...)
		if code == ExitOK || errs == "" {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}

// TestOperatorsOfAProxy: whoever the flags verify is a caller and never an operator, and
// operators aren't locked out by that.
func TestOperatorsOfAProxy(t *testing.T) {
	t.Parallel()
	id := newIssuer(t)
	dir := t.TempDir()
	keys, file, short := filepath.Join(dir, "jwks.json"), filepath.Join(dir, "admin.token"), filepath.Join(dir, "short.token")
	for name, text := range map[string]string{keys: string(id.jwks), file: "operators-know-this\n", short: "short"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	claims := id.token(t, "mallory", "roles", []string{"admin"})
	issuer := []string{"--jwt-issuer", "https://id.example.com", "--jwt-audience", "shop", "--jwks", keys}
	header := []string{"--trusted-header", "X-User"}
	token := []string{"--admin-token-file", file}
	both := func(a, b []string) []string { return append(append([]string(nil), a...), b...) }
	for _, c := range []struct {
		what   string
		args   []string
		header []string
		status int
	}{
		{"nobody is named", nil, nil, 200},
		{"a page of another site", nil, []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"a rebound page", nil, []string{"Host", "evil.example"}, 421},
		{"somebody behind a proxy", nil, []string{"X-Forwarded-For", "203.0.113.1"}, 401},
		{"callers have tokens", issuer, nil, 200},
		{"a rebound page, where callers have tokens", issuer, []string{"Host", "evil.example"}, 421},
		{"a caller", issuer, bearer(id.token(t, "alice")), 403},
		{"a caller with a claim that nobody named", issuer, bearer(claims), 403},
		{"a forged token", issuer, bearer("forged"), 401},
		{"callers are named by a proxy", header, nil, 200},
		{"a caller whom a proxy names", header, []string{"X-User", "alice"}, 403},
		{"somebody whom a proxy passed on", header, []string{"X-Forwarded-For", "203.0.113.1"}, 401},
		{"operators have a token, and no caller has", token, nil, 401},
		{"an operator", token, bearer("operators-know-this"), 200},
		{"another token", token, bearer("operators-know-tha"), 401},
		{"operators have a token", both(issuer, token), nil, 401},
		{"an operator beside callers", both(issuer, token), bearer("operators-know-this"), 200},
		{"a caller beside operators", both(issuer, token), bearer(id.token(t, "alice")), 403},
		{"a caller with a claim beside operators", both(issuer, token), bearer(claims), 403},
		{"an operator beside a trusted header", both(header, token), bearer("operators-know-this"), 200},
		{"nobody beside a trusted header", both(header, token), nil, 401},
	} {
		t.Run(c.what, func(t *testing.T) {
			at, _ := proxiedAt(t, c.args...)
			method := http.MethodGet
			if c.status == 403 && len(c.header) > 0 && c.header[0] == "Origin" {
				method = http.MethodPost // reading needs no protection from pages: they can't see the answer
			}
			if status, text := request(t, method, at.Admin+"/v1/records", c.header...); status != c.status {
				t.Errorf("%d %s, want %d", status, text, c.status)
			}
		})
	}
	t.Run("the admin token is no caller's", func(t *testing.T) {
		at, calls := proxiedAt(t, both(issuer, token)...)
		if status, text := post(t, at.URL+"/orders", append(bearer("operators-know-this"), "Idempotency-Key", "k")...); status != 401 || calls.Load() != 0 {
			t.Error(status, text)
		}
	})
	for _, name := range []string{short, filepath.Join(dir, "none")} {
		if code, _, errs := semelWith(t, "", "proxy", "http://127.0.0.1:1", "--store", "memory:", "--admin-token-file", name); code == ExitOK || !strings.Contains(errs, "admin.token_file") {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
	}
}
