package semelhttp_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const unguessable = "0f8fad5b-d9cb-469f-a165-70867728950e"

// bare removes the credential that every call of these tests has.
func bare(change func(http.Header)) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("Authorization")
		change(r.Header)
	}
}

// TestCallersAreToldApartByWhateverAuthenticates: two callers who differ in one
// credential never get each other's answer.
func TestCallersAreToldApartByWhateverAuthenticates(t *testing.T) {
	for _, c := range []struct{ profile, header string }{
		{"ietf", "Authorization"}, {"ietf", "Proxy-Authorization"}, {"ietf", "Cookie"}, {"ietf", "X-Api-Key"}, {"ietf", "Api-Key"},
		{"ietf", "X-Auth-Token"}, {"ietf", "Plaid-Client-Id"}, {"ietf", "Plaid-Secret"}, {"adyen", "X-API-Key"}, {"ucp", "UCP-Agent"},
	} {
		for key, others := range map[string]int{"order-1": http.StatusCreated, unguessable: http.StatusConflict} {
			t.Run(c.profile+" "+c.header+" "+key, func(t *testing.T) {
				profile, _ := semelhttp.ProfileByName(c.profile)
				g := newGuard(t, newEngine(t, nil), nil)
				h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}, Profile: profile, Key: semelhttp.KeyRequired},
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.WriteHeader(http.StatusCreated)
						fmt.Fprint(w, "for "+r.Header.Get(c.header))
					}))
				send := func(value string) *httptest.ResponseRecorder {
					return call(h, key, "1", bare(func(header http.Header) { header.Set(c.header, value) }))
				}
				if w := send("session=victim"); w.Code != http.StatusCreated {
					t.Fatal(w.Code, w.Body)
				}
				if w := send("session=other"); w.Code != others || strings.Contains(w.Body.String(), "victim") {
					t.Fatal(w.Code, w.Body)
				}
				if w := send("session=victim"); w.Code != http.StatusCreated || w.Header().Get(profile.Marker) != "true" {
					t.Fatal(w.Code, w.Body)
				}
				// An empty one counts as not sent.
				if w := send(""); w.Code != http.StatusUnauthorized {
					t.Fatal(w.Code, w.Body)
				}
			})
		}
	}
}

// TestCredentialsCantImitateEachOther: the value of one header never equals the values of
// two.
func TestCredentialsCantImitateEachOther(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	seen := map[string]int{}
	for i, header := range []http.Header{
		{"X-Api-Key": {"a"}}, {"Api-Key": {"a"}}, {"Authorization": {"a"}}, {"X-Api-Key": {"a", "b"}}, {"X-Api-Key": {"ab"}},
		{"X-Api-Key": {"a"}, "Authorization": {"b"}}, {"X-Api-Key": {"b"}, "Authorization": {"a"}}, {"X-Api-Key": {"a\x01\x01b"}},
		{"X-Api-Key": {"a", ""}}, {"X-Api-Key": {"", "a"}},
	} {
		who, err := g.Caller(&http.Request{Header: header})
		if err != nil || who.Principal != "" || !semelhttp.DerivedPrincipal(who.Credential) {
			t.Fatal(who, err)
		}
		if other, twice := seen[who.Credential]; twice {
			t.Errorf("%d is taken for %d", i, other)
		}
		seen[who.Credential] = i
	}
}

// TestScopesCantImitateEachOther: no header values make another caller's scope.
func TestScopesCantImitateEachOther(t *testing.T) {
	e := newEngine(t, nil)
	i, err := newGuard(t, e, nil).Inspect(semelhttp.Route{
		Operation: semel.Operation{Name: "op"}, ScopeHeaders: []string{"b", "A", semelhttp.ScopePath, semelhttp.ScopeHost},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[semel.ID]string{}
	long := strings.Repeat("x", 500)
	for _, header := range []http.Header{
		{}, {"A": {""}}, {"B": {""}}, {"A": {"", ""}}, {"A": {"1"}}, {"A": {"1", "2"}}, {"A": {"1&A=2"}}, {"A": {"1%26A=2"}}, {"A": {"1,2"}},
		{"A": {"1&B=2"}}, {"A": {"1"}, "B": {"2"}}, {"A": {"\u241f"}}, {"A": {"\x00\xff"}}, {"A": {long}}, {"A": {long + "x"}}, {"B": {long}},
		{"A": {"sha256:x"}}, {"Host-Is": {"b.example"}}, {"Path-Is": {"/b"}}, {"Host-Is": {"c.example"}},
	} {
		host, path := "a.example", "/a"
		if h := header.Get("Host-Is"); h != "" {
			host = h
		}
		if p := header.Get("Path-Is"); p != "" {
			path = p
		}
		r := httptest.NewRequest(http.MethodPost, "http://"+host+path, nil)
		maps.Copy(r.Header, header)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Authorization", "Bearer alice")
		got, code := i.ID(r, nil)
		id := got.ID
		if code != "" {
			t.Fatal(code)
		}
		if other, twice := seen[id]; twice {
			t.Errorf("%v is taken for %s", header, other)
		}
		seen[id] = fmt.Sprint(header)
		if _, err := store.DecodeID(id.Encode()); err != nil {
			t.Errorf("%v: %v", header, err)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "http://A.example/a/b?c", nil)
	r.Header = http.Header{"Idempotency-Key": {"k"}, "Authorization": {"x"}, "A": {"acct_1"}}
	got, _ := i.ID(r, nil)
	if _, scope := got.ID.Scope(); scope != "path=/a/b&A=acct_1&Host=a.example" {
		t.Errorf("people read %q", scope)
	}
}

// TestTwoCredentialsNeverMeet: whatever two callers send under one key that can't be
// guessed, and whatever the handler answers, at most one of them may have had an effect,
// and nobody sees what the other got.
func TestTwoCredentialsNeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := semel.New(memstore.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		g, err := semelhttp.New(e, &semelhttp.Options{StatusPath: "/status/"})
		if err != nil {
			t.Fatal(err)
		}
		statuses := []int{201, 422, 500, 429}
		effects := map[string]int{}
		refused := map[string]bool{} // who got an answer of their own, which stays theirs
		status := 0
		h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}, Anonymous: semelhttp.AnonymousShare}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status != 422 && status != 429 {
				effects[r.Header.Get("Who")]++
			}
			refused[r.Header.Get("Who")] = status == 422
			w.WriteHeader(status)
			fmt.Fprint(w, "secret of "+r.Header.Get("Who"))
		}))
		callers := map[string]http.Header{
			"alice": {"Authorization": {"Bearer 1"}}, "renewed": {"Authorization": {"Bearer 2"}}, "nobody": {},
			"bob": {"X-Api-Key": {"1"}}, "carol": {"Cookie": {"session=1"}},
		}
		names := []string{"alice", "renewed", "nobody", "bob", "carol"}
		two := rapid.Permutation(names).Draw(t, "callers")[:2]
		for range rapid.IntRange(2, 12).Draw(t, "deliveries") {
			who := rapid.SampledFrom(two).Draw(t, "caller")
			status = rapid.SampledFrom(statuses).Draw(t, "status")
			w := call(h, unguessable, rapid.SampledFrom([]string{"1", "2"}).Draw(t, "payload"), bare(func(header http.Header) {
				maps.Copy(header, callers[who])
				header.Set("Who", who)
			}))
			if len(effects) > 1 {
				t.Fatalf("both had effects: %v", effects)
			}
			other := two[1-slices.Index(two, who)]
			if strings.Contains(w.Body.String(), "secret of "+other) {
				t.Fatalf("%s got %d %s", who, w.Code, w.Body)
			}
			if effects[other] > 0 && !refused[who] && (w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), `"code":"other_caller"`)) {
				t.Fatalf("%s got %d %s of a call of %s", who, w.Code, w.Body, other)
			}
		}
	})
}

func TestCallersByTheRuleOfARoute(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("X-Shop", "one")
	if _, err := g.Callers(semelhttp.Route{})(r); err == nil {
		t.Error("a request without a credential, from anywhere, has a caller")
	}
	if who, err := g.Callers(semelhttp.Route{Anonymous: semelhttp.AnonymousShare})(r); err != nil || who != (semelhttp.Caller{Network: netip.MustParsePrefix("192.0.2.1/32")}) {
		t.Errorf("shared: %+v, %v", who, err)
	}
	byShop := g.Callers(semelhttp.Route{Credential: []string{"X-Shop"}})
	one, err := byShop(r)
	if err != nil || one.Credential == "" {
		t.Fatalf("by its own header: %+v, %v", one, err)
	}
	r.Header.Set("X-Shop", "two")
	if two, err := byShop(r); err != nil || two == one {
		t.Errorf("another caller: %+v, %v", two, err)
	}
}

// Behind the adaptor of a framework, a server may not say at which address a request came in.
// Whoever is then refused on the machine itself is told why.
func TestAServerWithoutAnAddress(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.NotFoundHandler())
	for why, ctx := range map[string]context.Context{
		"doesn't say at which address": t.Context(),
		"":                             context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})),
	} {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := strings.Contains(w.Body.String(), "doesn't say at which address"); w.Code != http.StatusUnauthorized || got != (why != "") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}
