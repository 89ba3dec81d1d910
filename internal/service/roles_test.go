package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// An issuer can make its callers admins of one tenant at most, and of none unless the
// configuration says which claim has the roles.
func TestNoClaimRulesAllTenants(t *testing.T) {
	is := newIssuer(t)
	config := func(more string) string {
		return fmt.Sprintf(`
store: {url: 'memory:'}
auth:
  tokens: [{name: root, roles: [admin], sha256: %s}, {name: zoe, tenant: zeta, sha256: %s}]
  jwt: [{issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%s'%s}]
  trusted_header: {from: [127.0.0.0/8], principal: X-Who, roles: X-Roles}
`, auth.HashToken(rootToken), auth.HashToken("zoe"), is.URL, is.URL, more)
	}
	sees := func(s *running, header ...string) (int, string) {
		status, _, text := do(t, "GET", s.admin("/v1/records"), "", header...)
		return status, text
	}
	claims := func(tenant any) []string {
		c := jwt.MapClaims{"sub": "mallory", "roles": []string{"admin"}, "tenant": tenant}
		return []string{"Authorization", "Bearer " + is.token(t, c)}
	}
	s := start(t, write(t, config(", roles_claim: roles")))
	if status, _, text := do(t, "POST", s.data("/v1/operations/default/executions"), `{"key":"zoes"}`, "Authorization", "Bearer zoe"); status != 201 {
		t.Fatal(status, text)
	}
	if status, text := sees(s, "Authorization", "Bearer "+rootToken); status != 200 || !strings.Contains(text, "zoes") {
		t.Error("the admin whom the configuration names:", status, text)
	}
	if status, text := sees(s, claims("")...); status != 401 {
		t.Error("a token with an empty tenant:", status, text)
	}
	if status, text := sees(s, claims("acme")...); status != 200 || strings.Contains(text, "zoes") {
		t.Error("the admin of another tenant:", status, text)
	}
	if status, text := sees(s, "X-Who", "mallory", "X-Roles", "admin"); status != 200 || strings.Contains(text, "zoes") {
		t.Error("an admin by a proxy's word, without a tenant:", status, text)
	}
	s = start(t, write(t, config("")))
	if status, text := sees(s, claims("acme")...); status != 403 {
		t.Error("a role in a claim that the configuration does not name:", status, text)
	}
}
