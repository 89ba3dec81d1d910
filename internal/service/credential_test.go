package service_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// TestOwnTokensStayHere: an upstream doesn't get a token that is valid for this service,
// unless its route says so. It does get JWTs.
func TestOwnTokensStayHere(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header.Get("Authorization"))
	}))
	defer upstream.Close()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(keys, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "https://issuer.example", "aud": "shop", "sub": "bob", "tenant": "acme", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	token, sum := auth.NewToken()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
auth:
  tokens: [{name: alice, tenant: acme, sha256: %q}]
  jwt: [{issuer: "https://issuer.example", audience: shop, algorithms: [EdDSA], keys_file: %q, tenant_claim: tenant}]
operations: [{name: charge}]
routes:
  - {match: "POST /kept", upstream: %[3]q, operation: charge}
  - {match: "POST /sent", upstream: %[3]q, operation: charge, forward_credential: true}
  - {match: "POST /off", upstream: %[3]q, mode: "off"}
`, sum, keys, upstream.URL)))
	for _, test := range []struct{ path, token, want string }{
		{"/kept", token, `""`},
		{"/off", token, `""`},
		{"/sent", token, fmt.Sprintf("%q", "Bearer "+token)},
		{"/kept", signed, fmt.Sprintf("%q", "Bearer "+signed)},
	} {
		status, _, body := do(t, http.MethodPost, s.data(test.path), "{}", "Idempotency-Key", "k"+test.path, "Authorization", "Bearer "+test.token)
		if status != http.StatusOK || body != test.want {
			t.Errorf("%s: %d, the upstream gets %s, want %s", test.path, status, body, test.want)
		}
	}
}
