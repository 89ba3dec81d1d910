package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// issuer publishes the key with which it signs tokens.
type issuer struct {
	*httptest.Server
	key  *ecdsa.PrivateKey
	away atomic.Bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	is := &issuer{key: key}
	is.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if is.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":"%s","y":"%s"}]}`, b64(point[1:33]), b64(point[33:])))
	}))
	t.Cleanup(is.Close)
	return is
}

// token is one of the issuer for the audience semel.
func (is *issuer) token(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{"iss": is.URL, "aud": "semel", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	token := jwt.NewWithClaims(jwt.SigningMethodES256, all)
	token.Header["kid"] = "1"
	text, err := token.SignedString(is.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestKeysOfAnIssuer(t *testing.T) {
	is := newIssuer(t)
	is.away.Store(true)
	file := func(level string) string {
		return fmt.Sprintf("store: {url: 'memory:'}\nlog: {level: %s}\nauth: {tokens: [{name: root, roles: [admin], sha256: %s}], jwt: [{issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%s'}]}\n", level, auth.HashToken(rootToken), is.URL, is.URL)
	}
	path := write(t, file("info"))
	s := start(t, path)
	bearer := []string{"Authorization", "Bearer " + is.token(t, jwt.MapClaims{"sub": "shop", "tenant": "acme", "roles": "viewer"})}
	status, header, text := do(t, "GET", s.data("/v1/operations"), "", bearer...)
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(text, `"code":"store_unavailable"`) {
		t.Error("a token that nobody can judge:", status, header, text)
	}
	if status, _, text := do(t, "GET", s.admin("/v1/operations"), "", bearer...); status != 503 {
		t.Error("a token that nobody can judge, of an operator:", status, text)
	}
	if status, header, text := do(t, "POST", s.admin("/v1/reload"), "", bearer...); status != 503 || header.Get("WWW-Authenticate") != "" {
		t.Error("a token that nobody can judge, of whoever reloads:", status, header, text)
	}
	if status, _, text := do(t, "GET", s.admin("/readyz?verbose"), ""); status != 200 || !strings.Contains(text, "[!] issuers\n") || !strings.Contains(text, "[+] store ok\n") {
		t.Error("to a stranger:", status, text)
	}
	if status, _, text := asRoot(t, "GET", s.admin("/readyz?verbose"), ""); status != 200 || !strings.Contains(text, "[!] issuers: "+is.URL+": no keys, its tokens are refused: the status is 502") {
		t.Error(status, text)
	}

	// A reload works while the issuer is down.
	is.away.Store(false)
	s = start(t, path)
	if status, _, text := do(t, "GET", s.data("/v1/operations"), "", bearer...); status != 200 {
		t.Fatal(status, text)
	}
	is.away.Store(true)
	if err := os.WriteFile(path, []byte(file("debug")), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Reload(); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if status, _, text := do(t, "GET", s.data("/v1/operations"), "", bearer...); status != 200 {
		t.Error("after a reload:", status, text)
	}
}
