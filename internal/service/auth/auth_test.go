package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store/memstore"
)

func newAuth(t *testing.T, s auth.Settings) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is one from 192.0.2.1, changed by the options.
func request(change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	for _, c := range change {
		c(r)
	}
	return r
}

func with(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func bearer(token string) func(*http.Request) { return with("Authorization", "Bearer "+token) }

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

func over(certs ...*x509.Certificate) func(*http.Request) {
	return func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: certs, VerifiedChains: [][]*x509.Certificate{certs}}
	}
}

func wantIdentity(t *testing.T, a *auth.Authenticator, r *http.Request, want auth.Identity) {
	t.Helper()
	if got, err := a.Authenticate(r); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// wantBad also checks that the refusal quotes nothing of the request, and that data
// routes refuse the request too.
func wantBad(t *testing.T, a *auth.Authenticator, r *http.Request, reason string) {
	t.Helper()
	id, err := a.Authenticate(r)
	if !errors.Is(err, auth.ErrBadCredential) || errors.Is(err, auth.ErrNoCredential) || !reflect.DeepEqual(id, auth.Identity{Method: auth.MethodNone}) {
		t.Errorf("got %+v, %v; want a bad credential", id, err)
		return
	}
	if !strings.Contains(err.Error(), reason) {
		t.Errorf("%q does not say %q", err, reason)
	}
	for _, sent := range r.Header["Authorization"] {
		_, token, _ := strings.Cut(sent, " ")
		for part := range strings.SplitSeq(token, ".") {
			if len(part) > 4 && (strings.Contains(err.Error(), part) || strings.Contains(auth.Challenge(err), part)) {
				t.Errorf("%q repeats the token", err)
			}
		}
	}
	if !strings.Contains(auth.Challenge(err), `error="invalid_`) {
		t.Errorf("challenge %q", auth.Challenge(err))
	}
	if tenant, principal, err := a.HTTPIdentity()(r); err == nil || errors.Is(err, semelhttp.ErrNoIdentity) {
		t.Errorf("a data route takes it for %q %q, %v", tenant, principal, err)
	}
}

func wantNone(t *testing.T, a *auth.Authenticator, r *http.Request) {
	t.Helper()
	id, err := a.Authenticate(r)
	if !errors.Is(err, auth.ErrNoCredential) || !reflect.DeepEqual(id, auth.Identity{Method: auth.MethodNone}) {
		t.Errorf("got %+v, %v; want no credential", id, err)
	}
	if got := auth.Challenge(err); got != `Bearer realm="semel"` {
		t.Errorf("challenge %q", got)
	}
	if _, principal, err := a.HTTPIdentity()(r); principal != "" || !errors.Is(err, semelhttp.ErrNoIdentity) {
		t.Errorf("a data route takes it for %q, %v", principal, err)
	}
}

// shop is a token and its caller.
const shopToken = "shop-token-of-many-random-bits"

var (
	shopSettings = auth.Token{Name: "shop", SHA256: auth.HashToken(shopToken), Tenant: "acme", Principal: "shop", Roles: []string{"operator"}}
	shop         = auth.Identity{Tenant: "acme", Principal: "shop", Roles: auth.Operator, Method: auth.MethodToken}
)

func TestTokens(t *testing.T) {
	other := auth.Token{Name: "till", SHA256: strings.ToUpper(auth.HashToken("till-token")), Principal: "till"}
	a := newAuth(t, auth.Settings{Tokens: []auth.Token{other, shopSettings}})
	t.Run("each token stands for its caller, whatever the case of the scheme", func(t *testing.T) {
		wantIdentity(t, a, request(bearer(shopToken)), shop)
		wantIdentity(t, a, request(with("Authorization", "bEARER   "+shopToken+" ")), shop)
		wantIdentity(t, a, request(bearer("till-token")), auth.Identity{Principal: "till", Method: auth.MethodToken})
	})
	t.Run("what is not exactly a token is refused", func(t *testing.T) {
		for _, sent := range []string{"unheard-of", shopToken + "x", shopToken[1:], strings.ToUpper(shopToken), shopSettings.SHA256, shopToken + ", Bearer " + shopToken} {
			wantBad(t, a, request(bearer(sent)), "unknown")
		}
		wantBad(t, a, request(with("Authorization", "Bearer")), "empty")
		wantBad(t, a, request(with("Authorization", "Bearer  ")), "empty")
	})
	t.Run("two Authorization fields are refused, even if the first is good", func(t *testing.T) {
		wantBad(t, a, request(with("Authorization", "Bearer "+shopToken, "Bearer unheard-of")), "more than one")
		wantBad(t, a, request(with("Authorization", "Bearer "+shopToken, "Bearer "+shopToken)), "more than one")
	})
	t.Run("a token elsewhere is no credential", func(t *testing.T) {
		r := request(with("Cookie", "access_token="+shopToken))
		r.URL.RawQuery = "access_token=" + shopToken
		wantNone(t, a, r)
		wantNone(t, a, request(with("Authorization", "Basic "+shopToken)))
		wantNone(t, a, request(with("Proxy-Authorization", "Bearer "+shopToken)))
	})
	t.Run("new tokens differ and are found by their digest", func(t *testing.T) {
		token, sum := auth.NewToken()
		again, _ := auth.NewToken()
		if token == again || len(token) < 40 || sum != auth.HashToken(token) {
			t.Fatal(token, again, sum)
		}
		b := newAuth(t, auth.Settings{Tokens: []auth.Token{{Name: "n", SHA256: sum, Principal: "p"}}})
		wantIdentity(t, b, request(bearer(token)), auth.Identity{Principal: "p", Method: auth.MethodToken})
	})
}

func TestAuthenticate(t *testing.T) {
	t.Run("without settings there is no credential", func(t *testing.T) {
		a := newAuth(t, auth.Settings{})
		if a.Configured() {
			t.Error("nothing is configured")
		}
		wantNone(t, a, request(bearer(shopToken), with("X-Principal", "shop")))
	})
	header := auth.TrustedHeader{From: []string{"10.0.0.0/8"}, Tenant: "X-Tenant", Principal: "X-Principal"}
	a := newAuth(t, auth.Settings{Tokens: []auth.Token{shopSettings}, TrustedHeader: header})
	proxy := from("10.1.2.3:4444")
	t.Run("a bad credential does not fall through to another method", func(t *testing.T) {
		wantBad(t, a, request(proxy, bearer("unheard-of"), with("X-Tenant", "acme"), with("X-Principal", "shop")), "unknown")
		wantBad(t, a, request(proxy, bearer(shopToken), with("X-Tenant", "acme")), "X-Principal")
	})
	t.Run("methods that name different callers are refused", func(t *testing.T) {
		wantIdentity(t, a, request(proxy, bearer(shopToken), with("X-Tenant", "acme"), with("X-Principal", "shop")), shop)
		wantBad(t, a, request(proxy, bearer(shopToken), with("X-Tenant", "acme"), with("X-Principal", "till")), "different callers")
		wantBad(t, a, request(proxy, bearer(shopToken), with("X-Tenant", "other"), with("X-Principal", "shop")), "different callers")
	})
}

func TestRoles(t *testing.T) {
	for roles, want := range map[string]auth.Role{"": auth.NoRole, "viewer": auth.Viewer, "viewer,admin,operator": auth.Admin, "operator,viewer": auth.Operator, "root": auth.NoRole} {
		token := shopSettings
		token.Roles = strings.Split(roles, ",")
		id, err := newAuth(t, auth.Settings{Tokens: []auth.Token{token}}).Authenticate(request(bearer(shopToken)))
		if err != nil || id.Roles != want {
			t.Errorf("%q is %v, %v; want %v", roles, id.Roles, err, want)
		}
	}
}

func TestNewReportsEveryFaultAtOnce(t *testing.T) {
	_, err := auth.New(auth.Settings{
		DefaultTenant: "a\x00",
		Tokens: []auth.Token{
			{Name: "a", SHA256: "12", Roles: []string{"root"}},
			{Name: "a", SHA256: auth.HashToken(""), Principal: "credential:x", Tenant: strings.Repeat("x", 257)},
			{Name: "b", SHA256: shopSettings.SHA256, Principal: "\xff"},
		},
		JWT:           []auth.JWT{{Issuer: "i", KeysFile: "absent.json", Tenant: "t\x00", TenantClaim: "t"}, {TenantClaim: "t"}},
		MTLS:          []auth.ClientCert{{Principal: "p"}, {Subject: "CN=a, O=b"}},
		TrustedHeader: auth.TrustedHeader{From: []string{"everywhere", "0.0.0.0/0", "::/0", "::ffff:10.0.0.0/104"}, Tenant: "Authorization", Principal: "X_User", Roles: "authorization"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		"auth.default_tenant: default_tenant has a control character",
		"auth.jwt[0].principal_claim: principal_claim is empty", "auth.jwt[0].tenant: tenant has a control",
		"auth.jwt[1].jwks_url: neither", "auth.jwt[1].principal_claim: principal_claim is empty",
		"auth.mtls[1].principal: the principal is empty", "auth.mtls[1].subject: a subject with spaces",
		"auth.tokens[0].principal: the principal is empty", "auth.tokens[0].sha256: the digest has 2 characters",
		"auth.tokens[1].principal: the principal begins like", "auth.tokens[1].sha256: the digest is that of an empty", "auth.tokens[1].tenant: tenant is longer than 256",
		"auth.tokens[2].principal: the principal is not valid UTF-8",
		`auth.trusted_header.from[0]: "everywhere"`, "auth.trusted_header.from[1]:", "auth.trusted_header.from[2]:", "auth.trusted_header.from[3]:",
		`auth.trusted_header.principal: "X_User" can't be told`, `auth.trusted_header.roles: "authorization" has another use`, `auth.trusted_header.tenant: "Authorization" has another use`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("line %d: got\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, h := range []auth.TrustedHeader{{From: []string{"10.0.0.1"}, Principal: "X-P"}, {From: []string{"10.0.0.1/32"}, Principal: "X-P", Roles: "x-p"}} {
		if _, err := auth.New(auth.Settings{TrustedHeader: h}); err == nil {
			t.Errorf("%+v was accepted", h)
		}
	}
}

// serve answers a request through a guard that identifies by a.
func serve(t *testing.T, a *auth.Authenticator) func(change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, &semelhttp.Options{Identity: a.HTTPIdentity()})
	if err != nil {
		t.Fatal(err)
	}
	h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	return func(change ...func(*http.Request)) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(append(change, with("Idempotency-Key", "k"))...))
		return w
	}
}

func replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get("Idempotency-Replayed") == "true"
}

func TestDataRoutes(t *testing.T) {
	till := auth.Token{Name: "till", SHA256: auth.HashToken("till-token"), Tenant: "acme", Principal: "till"}
	t.Run("a caller does not get the answer of another one with the same key", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.1")
		elsewhere := auth.Token{Name: "elsewhere", SHA256: auth.HashToken("elsewhere-token"), Tenant: "other", Principal: "shop"}
		send := serve(t, newAuth(t, auth.Settings{Tokens: []auth.Token{shopSettings, till, elsewhere}}))
		for _, token := range []string{shopToken, "till-token", "elsewhere-token"} {
			if w := send(bearer(token)); w.Code != http.StatusCreated || replayed(w) {
				t.Fatal(w.Code, w.Header())
			}
			if w := send(bearer(token)); w.Code != http.StatusCreated || !replayed(w) {
				t.Fatal(w.Code, w.Header())
			}
		}
		if w := send(bearer("forged")); w.Code != http.StatusUnauthorized {
			t.Fatal(w.Code)
		}
		if w := send(); w.Code != http.StatusUnauthorized {
			t.Fatal("without a credential:", w.Code)
		}
		if w := send(with("Authorization", "Basic abc")); w.Code != http.StatusCreated || replayed(w) {
			t.Fatal("a credential of the upstream:", w.Code, w.Header())
		}
	})
	t.Run("where no token is configured unknown ones keep callers apart", func(t *testing.T) {
		send := serve(t, newAuth(t, auth.Settings{DefaultTenant: "all"}))
		if w := send(bearer("one")); w.Code != http.StatusCreated {
			t.Fatal(w.Code)
		}
		if w := send(bearer("two")); w.Code != http.StatusCreated || replayed(w) {
			t.Fatal(w.Code, w.Header())
		}
		if w := send(bearer("one")); !replayed(w) {
			t.Fatal(w.Code, w.Header())
		}
		// A second field makes it another caller, never the first.
		if w := send(with("Authorization", "Bearer one", "Bearer two")); w.Code != http.StatusCreated || replayed(w) {
			t.Fatal(w.Code, w.Header())
		}
	})
	t.Run("callers without a verified identity are in the default tenant", func(t *testing.T) {
		a := newAuth(t, auth.Settings{DefaultTenant: "all", Tokens: []auth.Token{shopSettings}})
		tenant, principal, err := a.HTTPIdentity()(request())
		if tenant != "all" || principal != "" || !errors.Is(err, semelhttp.ErrNoIdentity) {
			t.Fatal(tenant, principal, err)
		}
		tenant, principal, err = a.HTTPIdentity()(request(bearer(shopToken)))
		if tenant != "acme" || principal != "shop" || err != nil {
			t.Fatal(tenant, principal, err)
		}
	})
	t.Run("an identity in the context is not looked for again", func(t *testing.T) {
		a := newAuth(t, auth.Settings{Tokens: []auth.Token{shopSettings}})
		if _, ok := auth.FromContext(t.Context()); ok {
			t.Error("there is none yet")
		}
		r := request()
		tenant, principal, err := a.HTTPIdentity()(r.WithContext(auth.NewContext(t.Context(), shop)))
		if tenant != "acme" || principal != "shop" || err != nil {
			t.Error(tenant, principal, err)
		}
		_, principal, err = a.HTTPIdentity()(r.WithContext(auth.NewContext(t.Context(), auth.Identity{Method: auth.MethodNone})))
		if principal != "" || !errors.Is(err, semelhttp.ErrNoIdentity) {
			t.Error(principal, err)
		}
	})
}
