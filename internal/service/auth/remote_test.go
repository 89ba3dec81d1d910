package auth_test

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/auth"
)

// publisher is where an issuer publishes its keys, in memory.
type publisher struct {
	mu     sync.Mutex
	body   string
	fails  bool
	asked  int
	during time.Duration // that an answer takes
}

func (p *publisher) publish(list ...map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body = string(must(json.Marshal(map[string]any{"keys": list})))
}

func (p *publisher) set(fails bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = fails
}

func (p *publisher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *publisher) RoundTrip(r *http.Request) (*http.Response, error) {
	pass(p.during) // of the bubble
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.fails {
		return nil, errors.New("unreachable")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(p.body)), Request: r}, nil
}

func fetched(t *testing.T, p *publisher) *auth.Authenticator {
	t.Helper()
	s := jwtSettings("", "ES256", "EdDSA")
	s.JWKSURL = "https://issuer.example/jwks"
	a := newAuth(t, auth.Settings{JWT: []auth.JWT{s}})
	a.Through(p)
	return a
}

// refreshed is an authenticator that has fetched one key, p256.
func refreshed(t *testing.T) (*publisher, *auth.Authenticator) {
	t.Helper()
	p := &publisher{}
	p.publish(jwk("p256", &keys().p256.PublicKey))
	a := fetched(t, p)
	a.Refresh(t.Context())
	return p, a
}

// lasting is a token that is valid for days, so that only the keys decide.
func lasting(t *testing.T, alg, kid string, key crypto.PrivateKey) func(*http.Request) {
	t.Helper()
	claims := goodClaims()
	claims["exp"] = time.Now().Add(100 * time.Hour).Unix()
	return bearer(sign(t, alg, kid, key, claims, nil))
}

func wantUnavailable(t *testing.T, a *auth.Authenticator, r *http.Request) {
	t.Helper()
	if id, err := a.Authenticate(r); !errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrNoCredential) || id.Principal != "" {
		t.Errorf("got %+v, %v; want that nothing can be said", id, err)
	}
	if _, _, err := a.HTTPIdentity()(r); !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
		t.Errorf("a data route gets %v", err)
	}
}

func TestPublishedKeys(t *testing.T) {
	k := keys()
	t.Run("keys are fetched when a token needs them, and once for many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &publisher{during: time.Second}
			p.publish(jwk("p256", &k.p256.PublicKey))
			a := fetched(t, p)
			if p.count() != 0 {
				t.Error("New asks")
			}
			token := lasting(t, "ES256", "p256", k.p256)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { wantIdentity(t, a, request(token), jwtShop) })
			}
			all.Wait()
			if p.count() != 1 {
				t.Errorf("asked %d times", p.count())
			}
		})
	})
	t.Run("a key that is new is fetched, and made-up ones ask twice a minute at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, a := refreshed(t)
			next := request(lasting(t, "EdDSA", "next", k.ed))
			wantBad(t, a, next, "") // too soon to ask again
			pass(31 * time.Second)
			p.publish(jwk("next", k.ed.Public()))
			wantIdentity(t, a, next, jwtShop)
			wantBad(t, a, request(lasting(t, "ES256", "p256", k.p256)), "") // withdrawn
			before := p.count()
			for i := range 600 {
				pass(100 * time.Millisecond)
				_, _ = a.Authenticate(request(lasting(t, "EdDSA", fmt.Sprint("made-up-", i), k.ed)))
			}
			if n := p.count() - before; n < 1 || n > 2 {
				t.Errorf("made-up keys asked %d times in a minute", n)
			}
		})
	})
	t.Run("nothing is said of a key that may be new while they can't be fetched", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, a := refreshed(t)
			p.set(true)
			pass(31 * time.Second)
			next := request(lasting(t, "EdDSA", "next", k.ed))
			wantUnavailable(t, a, next)
			wantIdentity(t, a, request(lasting(t, "ES256", "p256", k.p256)), jwtShop)
			p.set(false)
			pass(31 * time.Second)
			wantBad(t, a, next, "") // it was made up
		})
	})
	t.Run("a withdrawn key stops counting without a token of another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, a := refreshed(t)
			token := request(lasting(t, "ES256", "p256", k.p256))
			p.publish(jwk("next", k.ed.Public()))
			a.Refresh(t.Context())
			wantIdentity(t, a, token, jwtShop) // not due yet
			pass(15 * time.Minute)
			a.Refresh(t.Context())
			wantBad(t, a, token, "")
		})
	})
	t.Run("keys that can't be fetched again count for a day", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, a := refreshed(t)
			token := request(lasting(t, "ES256", "p256", k.p256))
			p.set(true)
			for range 23 {
				pass(time.Hour)
				a.Refresh(t.Context())
				wantIdentity(t, a, token, jwtShop)
			}
			state := a.KeyStates()[0]
			if state.Keys != 1 || state.Err == nil || !strings.Contains(state.String(), "stay valid until") || strings.Contains(state.String(), "/jwks") {
				t.Errorf("the state is %q", state)
			}
			pass(time.Hour + time.Second)
			wantUnavailable(t, a, token)
			if state := a.KeyStates()[0]; state.Keys != 0 || !strings.Contains(state.String(), "refused") {
				t.Errorf("the state is %q", state)
			}
			p.set(false)
			pass(time.Minute)
			wantIdentity(t, a, token, jwtShop)
		})
	})
	t.Run("without any keys yet nothing is said of a token, and none is let in", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &publisher{fails: true}
			a := fetched(t, p)
			wantUnavailable(t, a, request(lasting(t, "ES256", "p256", k.p256)))
		})
	})
	t.Run("another authenticator inherits what was fetched", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, old := refreshed(t)
			p.set(true)
			a := fetched(t, p)
			a.Inherit(old)
			wantIdentity(t, a, request(lasting(t, "ES256", "p256", k.p256)), jwtShop)
		})
	})
}

// Anything but a key set from the issuer's own address is a failure.
func TestBadPublishers(t *testing.T) {
	k := keys()
	good := string(must(json.Marshal(map[string]any{"keys": []map[string]any{jwk("p256", &k.p256.PublicKey)}})))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good) }))
	defer other.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"a status":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no keys":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"keys":[]}`) },
		"a secret key": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)
		},
		"an endless answer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, good)
			for range 1 << 12 {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<12)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name+" brings no keys", func(t *testing.T) {
			at := httptest.NewServer(answer)
			defer at.Close()
			s := jwtSettings("", "ES256")
			s.JWKSURL = at.URL
			a := newAuth(t, auth.Settings{JWT: []auth.JWT{s}})
			a.Refresh(t.Context())
			if state := a.KeyStates()[0]; state.Keys != 0 || state.Err == nil {
				t.Errorf("got %+v", state)
			}
			wantUnavailable(t, a, request(bearer(sign(t, "ES256", "p256", k.p256, goodClaims(), nil))))
		})
	}
}

func TestAddressesOfKeys(t *testing.T) {
	for address, good := range map[string]bool{
		"https://issuer.example/jwks": true, "http://127.0.0.1:8080/jwks": true, "http://[::1]/jwks": true, "http://localhost/jwks": true,
		"http://issuer.example/jwks": false, "http://10.0.0.1/jwks": false, "http://127.0.0.1.example/": false, "ftp://issuer.example/": false,
		"https://u:p@issuer.example/": false, "https:///jwks": false, "jwks.json": false, "https://issuer.example/#a": false, "": false,
	} {
		s := jwtSettings("", "ES256")
		s.JWKSURL = address
		if _, err := auth.New(auth.Settings{JWT: []auth.JWT{s}}); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// pass lets time pass in a bubble of synctest.
func pass(d time.Duration) { <-time.After(d) }
