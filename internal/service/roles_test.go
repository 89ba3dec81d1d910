package service_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/semelhq/semel/internal/service/auth"
)

// An issuer can make its callers admins of one tenant at most, and of none unless the
// configuration says which claim has the roles, or which value of it is for all.
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

// A value of the claim that the configuration gives all tenants shows them all, in its role; and
// a higher role by another value stays one in the caller's own tenant.
func TestAValueOfAClaimGivesAllTenants(t *testing.T) {
	is := newIssuer(t)
	s := start(t, write(t, fmt.Sprintf(`
store: {url: 'memory:'}
auth:
  tokens: [{name: zoe, tenant: zeta, sha256: %s}]
  jwt:
    - {issuer: '%s', audience: semel, algorithms: [ES256], jwks_url: '%s', roles_claim: groups, roles: [
        {value: watch, role: viewer, all_tenants: true}, {value: chief, role: admin, all_tenants: true}, {value: desk, role: operator}, {value: own, role: admin}]}
`, auth.HashToken("zoe"), is.URL, is.URL)))
	if status, _, text := do(t, "POST", s.data("/v1/operations/default/executions"), `{"key":"zoes"}`, "Authorization", "Bearer zoe"); status != 201 {
		t.Fatal(status, text)
	}
	for _, test := range []struct {
		groups                            string
		all                               bool
		figures, metrics, reload, records int
	}{
		{"watch", true, 200, 200, 403, 200},
		{"chief", true, 200, 200, 200, 200},
		{"desk", false, 200, 403, 403, 200},
		{"own", false, 200, 403, 403, 200},
		{"watch own", false, 200, 403, 403, 200},
		{"watch desk", false, 200, 403, 403, 200},
		{"watch chief own", true, 200, 200, 200, 200},
		{"viewer", false, 403, 403, 403, 403}, // a right: no value stands for itself beside others
	} {
		credential := []string{"Authorization", "Bearer " + is.token(t, jwt.MapClaims{"sub": "olga", "groups": test.groups, "tenant": "acme"})}
		for path, want := range map[string]int{"GET /v1/figures": test.figures, "GET /metrics": test.metrics, "POST /v1/reload": test.reload, "GET /v1/records": test.records} {
			method, path, _ := strings.Cut(path, " ")
			status, _, text := do(t, method, s.admin(path), "", credential...)
			if status != want || path == "/v1/records" && strings.Contains(text, "zoes") != test.all {
				t.Errorf("%s, %s %s: %d %s", test.groups, method, path, status, text)
			}
			if mine := strings.Contains(text, `"tenant":"acme"`) && strings.Contains(text, `"deliveries":0`); path == "/v1/figures" && status == 200 && mine == test.all {
				t.Errorf("%s gets these figures: %s", test.groups, text)
			}
			if status == 403 && path != "/v1/records" && want != test.records && !strings.Contains(text, "all_tenants") {
				t.Errorf("%s, %s %s doesn't say who may: %s", test.groups, method, path, text)
			}
		}
	}
}
