package auth_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/semelhq/semel/internal/service/auth"
)

func TestTrustedHeader(t *testing.T) {
	a := newAuth(t, auth.Settings{TrustedHeader: auth.TrustedHeader{
		From: []string{"10.0.0.0/8", "192.0.2.7/32", "fd00::/8"}, Tenant: "X-Tenant", Principal: "x-principal", Roles: "X-Roles",
	}})
	says := func(r *http.Request) {
		r.Header.Set("X-Tenant", "acme")
		r.Header.Set("X-Principal", "shop")
		r.Header.Set("X-Roles", "billing, operator")
	}
	said := auth.Identity{Tenant: "acme", Principal: "shop", Roles: auth.Operator, Rights: []string{"billing"}, Method: auth.MethodHeader}
	t.Run("the proxy is believed, from each of its addresses", func(t *testing.T) {
		for _, addr := range []string{"10.0.0.1:1", "10.255.255.255:65535", "192.0.2.7:80", "[::ffff:10.1.1.1]:80", "[fd12::1]:80", "[fd12::1%eth0]:80"} {
			wantIdentity(t, a, request(from(addr), says), said)
		}
	})
	t.Run("nobody else is, whatever it says", func(t *testing.T) {
		forwarded := func(r *http.Request) {
			for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip"} {
				r.Header.Set(name, "10.0.0.1")
			}
		}
		for _, addr := range []string{"11.0.0.1:1", "9.255.255.255:1", "192.0.2.8:1", "[fe80::1]:1", "[::1]:1", "127.0.0.1:1", "@", "", "10.0.0.1"} {
			wantNone(t, a, request(from(addr), says, forwarded))
		}
	})
	t.Run("what the proxy leaves out is not made up", func(t *testing.T) {
		proxy := from("10.0.0.1:1")
		wantNone(t, a, request(proxy))
		wantBad(t, a, request(proxy, with("X-Tenant", "acme")), "X-Principal is empty")
		wantBad(t, a, request(proxy, with("X-Roles", "admin")), "X-Principal is empty")
		wantBad(t, a, request(proxy, with("X-Principal", "shop")), "X-Tenant is missing")
		wantBad(t, a, request(proxy, says, with("X-Principal", "")), "X-Principal is empty")
		wantIdentity(t, a, request(proxy, with("X-Principal", "shop"), with("X-Tenant", "acme")),
			auth.Identity{Tenant: "acme", Principal: "shop", Method: auth.MethodHeader})
	})
	t.Run("a field that comes twice, or can't be a name, is refused", func(t *testing.T) {
		proxy := from("10.0.0.1:1")
		for _, name := range []string{"X-Tenant", "X-Principal", "X-Roles"} {
			wantBad(t, a, request(proxy, says, with(name, "a", "a")), "more than one field "+name)
		}
		wantBad(t, a, request(proxy, says, with("X-Principal", "credential:abc")), "begins like")
		for _, name := range []string{"semel.lab", "semel", "local", "webhook", "activitypub", "whatsapp"} {
			wantBad(t, a, request(proxy, says, with("X-Principal", name)), "a part of the service")
		}
		wantBad(t, a, request(proxy, says, with("X-Tenant", "a\xffb")), "UTF-8")
	})
	t.Run("a field that only looks alike is not read", func(t *testing.T) {
		wantNone(t, a, request(from("10.0.0.1:1"), with("X_Principal", "shop"), with("X_Tenant", "acme")))
	})
	t.Run("the fields are those that are configured", func(t *testing.T) {
		if got, want := a.IdentityHeaders(), []string{"X-Tenant", "X-Principal", "X-Roles"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if none := newAuth(t, auth.Settings{}); none.IdentityHeaders() != nil {
			t.Error(none.IdentityHeaders())
		}
	})
}
