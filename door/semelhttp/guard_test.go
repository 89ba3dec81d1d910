package semelhttp_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store/memstore"
)

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// inMemory answers requests by calling the handler.
func inMemory(h http.Handler) roundTripFunc {
	return func(r *http.Request) (*http.Response, error) {
		in := r.Clone(r.Context())
		in.RequestURI = r.URL.RequestURI()
		if in.Body == nil {
			in.Body = http.NoBody
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, in)
		return rec.Result(), nil
	}
}

func newEngine(t testing.TB, opts *semel.Options) *semel.Engine {
	t.Helper()
	e, err := semel.New(memstore.New(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newGuard(t testing.TB, e *semel.Engine, opts *semelhttp.Options) *semelhttp.Guard {
	t.Helper()
	g, err := semelhttp.New(e, opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// call sends one POST to a handler.
func call(h http.Handler, key, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Authorization", "Bearer alice")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func charged(runs *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("charged"))
	}
}

func TestDuplicatesDoNotRepeatTheEffect(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.1", "MAP-FLOW.2", "IDS-IX.1", "IDS-XIII.1", "IDS-XIII.3", "IDS-IX.4")
	var runs atomic.Int64
	g := newGuard(t, newEngine(t, nil), nil)
	h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs))
	first := call(h, "k", "1", nil)
	for range 10 {
		again := call(h, "k", "1", nil)
		if again.Code != first.Code || again.Body.String() != first.Body.String() || again.Header().Get("Idempotency-Replayed") != "true" {
			t.Fatalf("%d %s", again.Code, again.Body)
		}
	}
	if runs.Load() != 1 {
		t.Fatalf("%d runs", runs.Load())
	}
}

func TestDuplicatesDuringExecution(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.3", "IDS-IX.2", "IDS-IX.3", "IDS-XIII.2", "IDS-XIII.4")
	synctest.Test(t, func(t *testing.T) {
		var runs, inFlight atomic.Int64
		g := newGuard(t, newEngine(t, nil), &semelhttp.Options{StatusPath: "/status/"})
		gate := make(chan struct{})
		h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			<-gate
		}))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				w := call(h, "k", "1", nil)
				if w.Code != http.StatusConflict {
					return
				}
				inFlight.Add(1)
				if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Header().Get("Link"), `</status/`) {
					t.Error(w.Header())
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if runs.Load() != 1 || inFlight.Load() != 49 {
			t.Fatalf("%d runs, %d in flight", runs.Load(), inFlight.Load())
		}
	})
}

func TestFailedCallsMayRunAgain(t *testing.T) {
	clause.Proves(t, "MAP-FLOW.4")
	var runs atomic.Int64
	e := newEngine(t, nil)
	h := newGuard(t, e, nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := semelhttp.Attempt(r.Context())
		if n := runs.Add(1); !ok || a.Record().State != semel.Processing || int64(a.Number()) != n {
			t.Errorf("run %d is attempt %d, %s", n, a.Number(), a.Record().State)
		}
		if runs.Load() == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	if w := call(h, "k", "1", nil); w.Code != http.StatusInternalServerError {
		t.Fatal(w.Code)
	}
	if w := call(h, "k", "1", nil); w.Code != http.StatusOK || w.Header().Get("Idempotency-Replayed") != "" {
		t.Fatal(w.Code, w.Header())
	}
}

func TestTheHandlerIsAskedOnlyAfterTheDecision(t *testing.T) {
	clause.Proves(t, "VUL-02-003")
	var order []string
	e := newEngine(t, &semel.Options{Events: &semel.Events{
		Decided: func(ev semel.Decided) { order = append(order, string(ev.Decision)) },
	}})
	h := newGuard(t, e, nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order = append(order, "handler")
	}))
	call(h, "k", "1", nil)
	call(h, "k", "1", nil)
	if got := strings.Join(order, " "); got != "execute handler replay" {
		t.Fatal(got)
	}
}

func TestDuplicatesAreThrottled(t *testing.T) {
	clause.Proves(t, "IDS-XV.3")
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{
			Name: "op", PerPrincipal: semel.Rate{PerSecond: 0.1, Burst: 2},
		}}, charged(&runs))
		for i, want := range []int{201, 201, 201, 429} { // the first isn't a duplicate
			if w := call(h, "k", "1", nil); w.Code != want {
				t.Fatalf("delivery %d got %d", i, w.Code)
			}
		}
		w := call(h, "k", "1", nil)
		if w.Code != 429 || w.Header().Get("Retry-After") != "10" {
			t.Fatal(w.Code, w.Header())
		}
		<-time.After(10 * time.Second)
		if w := call(h, "k", "1", nil); w.Code != 201 {
			t.Fatal("after the pause it is", w.Code)
		}
	})
}

// A caller over quota gets the answers they have, and for new requests a refusal in the
// shape of the route's profile.
func TestQuotasAreTold(t *testing.T) {
	for _, name := range []string{"ietf", "stripe", "acp", "ucp", "adyen"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				profile, _ := semelhttp.ProfileByName(name)
				var runs atomic.Int64
				quotas := semel.Quotas{Window: time.Hour, PrincipalRecords: 1}
				h := newGuard(t, newEngine(t, &semel.Options{Quotas: quotas}), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}, Profile: profile}, charged(&runs))
				send := func(key string) *httptest.ResponseRecorder {
					return call(h, key, "1", func(r *http.Request) { r.Header.Set("Request-Id", key) })
				}
				if w := send("first"); w.Code != 201 {
					t.Fatal(w.Code, w.Body)
				}
				w := send("new")
				if w.Code != 429 || w.Header().Get("Retry-After") != "3600" || !strings.Contains(w.Body.String(), "as many new calls as its quota allows") {
					t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
				}
				if text := w.Body.String(); strings.Contains(text, "repeated") || strings.Contains(text, "reference") || name == "ietf" && !strings.Contains(text, `"limit":"principal_records"`) {
					t.Error(text)
				}
				if w := send("first"); w.Code != 201 || w.Body.String() != "charged" || runs.Load() != 1 {
					t.Error(w.Code, w.Body, runs.Load())
				}
				<-time.After(time.Hour)
				if w := send("new"); w.Code != 201 {
					t.Error(w.Code, w.Body)
				}
			})
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Run("tenants and principals do not meet", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.1")
		var runs atomic.Int64
		g := newGuard(t, newEngine(t, nil), &semelhttp.Options{Identity: func(r *http.Request) (string, string, error) {
			return r.Header.Get("Tenant"), r.Header.Get("Principal"), nil
		}})
		h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs))
		for _, who := range [][2]string{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "c"}} {
			if w := call(h, "k", "1", as(who[0], who[1])); w.Header().Get("Idempotency-Replayed") != "" {
				t.Fatalf("%q met another caller", who)
			}
		}
		if w := call(h, "k", "1", as("a", "b")); w.Header().Get("Idempotency-Replayed") != "true" || runs.Load() != 4 {
			t.Fatal(w.Header(), runs.Load())
		}
	})
	t.Run("an identity that can't be determined is refused without a word why", func(t *testing.T) {
		why := errors.New("secret reason")
		for _, c := range []struct {
			err    error
			status int
		}{
			{why, http.StatusUnauthorized},
			{&semel.Error{Code: semel.CodeForbidden, Err: why}, http.StatusForbidden},
			{&semel.Error{Code: semel.CodeStoreUnavailable, Err: why}, http.StatusServiceUnavailable},
		} {
			var told error
			var runs atomic.Int64
			events := &semel.Events{
				Answered: func(e semel.Delivered) { told = cmp.Or(e.Err, told) },
				Troubled: func(e semel.Troubled) { told = e.Err },
			}
			g := newGuard(t, newEngine(t, &semel.Options{Events: events}), &semelhttp.Options{
				Challenge: `Basic realm="pay"`,
				Identity:  func(*http.Request) (string, string, error) { return "", "", c.err },
			})
			w := call(g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs)), "k", "1", nil)
			if w.Code != c.status || strings.Contains(w.Body.String(), "secret") || !errors.Is(told, why) || runs.Load() != 0 {
				t.Errorf("%d %s, told %v", w.Code, w.Body, told)
			}
			if c.status == http.StatusUnauthorized && w.Header().Get("Www-Authenticate") != `Basic realm="pay"` {
				t.Error(w.Header())
			}
		}
	})
	t.Run("without a verified identity the sent credential keeps callers apart, within the tenant that was named", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.1")
		var runs atomic.Int64
		g := newGuard(t, newEngine(t, nil), &semelhttp.Options{Identity: func(r *http.Request) (string, string, error) {
			return r.Header.Get("Tenant"), "ignored", semelhttp.ErrNoIdentity
		}})
		h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs))
		send := func(tenant, credential string) *httptest.ResponseRecorder {
			return call(h, "k", "1", func(r *http.Request) {
				r.Header.Set("Tenant", tenant)
				r.Header.Set("Authorization", credential)
			})
		}
		for _, who := range [][2]string{{"a", "Bearer 1"}, {"a", "Bearer 2"}, {"b", "Bearer 1"}} {
			if w := send(who[0], who[1]); w.Header().Get("Idempotency-Replayed") != "" {
				t.Fatalf("%q met another caller", who)
			}
		}
		if w := send("a", "Bearer 1"); w.Header().Get("Idempotency-Replayed") != "true" || runs.Load() != 3 {
			t.Fatal(w.Header(), runs.Load())
		}
		if w := call(h, "k", "1", func(r *http.Request) { r.Header.Del("Authorization") }); w.Code != http.StatusUnauthorized || runs.Load() != 3 {
			t.Fatal("without a credential:", w.Code, runs.Load())
		}
	})
	t.Run("a caller that may no longer see the answer does not get it", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.4")
		var runs atomic.Int64
		var revoked atomic.Bool
		g := newGuard(t, newEngine(t, nil), &semelhttp.Options{StatusPath: "/status/"})
		h := g.Handler(semelhttp.Route{Operation: semel.Operation{
			Name: "op",
			Authorize: func(context.Context, semel.Call, semel.Record) error {
				if revoked.Load() {
					return errors.New("revoked")
				}
				return nil
			},
		}}, charged(&runs))
		call(h, "k", "1", nil)
		revoked.Store(true)
		if w := call(h, "k", "1", nil); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "charged") {
			t.Fatal(w.Code, w.Body)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The lease is long, because a renewal that waits for the attempt's lock would
		// keep virtual time from passing.
		w := newWorld(t, "127.0.0.1", semelhttp.Options{}, semelhttp.Route{
			Operation: semel.Operation{Name: "op", Lease: 10 * time.Hour},
		}, handlers["slow"])
		answered := make(chan int)
		go func() { answered <- call(w.server.Handler, "k", "1", nil).Code }()
		synctest.Wait()
		w.store.down.Store(true)
		w.release()
		if status := <-answered; status != http.StatusServiceUnavailable || w.errs.Load() == 0 {
			t.Fatal(status, w.errs.Load())
		}
		// While the store is down an outcome isn't recorded, and Close says so. Once it
		// is back, Close has nothing to wait for.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.guard.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		w.store.down.Store(false)
		if err := w.guard.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCallsThatAreNotDecided(t *testing.T) {
	var runs atomic.Int64
	g := newGuard(t, newEngine(t, nil), &semelhttp.Options{Identity: func(r *http.Request) (string, string, error) {
		return "", r.Header.Get("Principal"), nil
	}})
	h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, charged(&runs))
	t.Run("an identity that no store can keep is refused", func(t *testing.T) {
		w := call(h, "k", "1", as("", strings.Repeat("x", 257)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"invalid_call"`) {
			t.Fatal(w.Code, w.Body)
		}
	})
	t.Run("a caller that is gone before the decision claims nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := call(h, "k", "1", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if w.Code != http.StatusServiceUnavailable {
			t.Fatal(w.Code)
		}
	})
	if runs.Load() != 0 {
		t.Fatal("it ran")
	}
}

func TestStatusOfSharedCalls(t *testing.T) {
	// Keys that a tenant shares are visible to those whom Authorize allows, and to nobody
	// else.
	var url string
	g := newGuard(t, newEngine(t, nil), &semelhttp.Options{
		StatusPath: "/status/",
		Identity: func(r *http.Request) (string, string, error) {
			return r.Header.Get("Tenant"), r.Header.Get("Principal"), nil
		},
	})
	var h http.Handler
	h = g.Handler(semelhttp.Route{Operation: semel.Operation{
		Name: "op", Share: semel.ShareTenant,
		Authorize: func(_ context.Context, call semel.Call, rec semel.Record) error {
			if call.Principal == "mallory" || rec.Principal != "alice" {
				return errors.New("not yours")
			}
			return nil
		},
	}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again := call(h, "k", "1", as("shop", "bob"))
		url = strings.TrimSuffix(strings.TrimPrefix(again.Header().Get("Link"), "<"), `>; rel="status"`)
	}))
	call(h, "k", "1", as("shop", "alice"))
	for _, c := range []struct {
		tenant, principal string
		status            int
	}{
		{"shop", "alice", http.StatusOK}, {"shop", "bob", http.StatusOK}, {"shop", "mallory", http.StatusNotFound}, {"other", "alice", http.StatusNotFound},
	} {
		r := httptest.NewRequest(http.MethodGet, url, nil)
		as(c.tenant, c.principal)(r)
		w := httptest.NewRecorder()
		g.Status().ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s of %s got %d", c.principal, c.tenant, w.Code)
		}
	}
}

// as makes a request from a caller that the Identity of these tests accepts.
func as(tenant, principal string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Tenant", tenant)
		r.Header.Set("Principal", principal)
	}
}

func TestHandle(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	next := http.NotFoundHandler()
	op := func(name string) semel.Operation { return semel.Operation{Name: name} }
	for _, c := range []struct {
		name  string
		route semelhttp.Route
		wants []string // all in one error
	}{
		{"an operation needs a name", semelhttp.Route{}, []string{"Name"}},
		{"every problem is reported at once", semelhttp.Route{
			Operation: op("op"), Key: "sometimes", Body: "xml", Anonymous: "maybe", MaxBody: -1, Methods: []string{}, Credential: []string{"cookie:"},
		}, []string{"Key", "Body", "Anonymous", "MaxBody", "Methods", "Credential"}},
		{"cookies can't be kept", semelhttp.Route{Operation: op("op"), KeepHeaders: []string{"set-cookie"}}, []string{"Set-Cookie"}},
		{"headers of one delivery can't be kept", semelhttp.Route{Operation: op("op"), KeepHeaders: []string{
			"Date", "Connection", "Content-Length", "Access-Control-Allow-Origin", "X-RateLimit-Limit", "X-Request-Id", "Idempotency-Replayed",
			"Www-Authenticate", "Trailer", "Strict-Transport-Security", "Traceparent", "Proxy-Authenticate",
		}}, []string{
			"Date", "Connection", "Content-Length", "Access-Control-Allow-Origin", "X-Ratelimit-Limit", "X-Request-Id", "Idempotency-Replayed",
			"Www-Authenticate", "Trailer", "Strict-Transport-Security", "Traceparent", "Proxy-Authenticate",
		}},
		{"what is no header can't be kept", semelhttp.Route{Operation: op("op"), KeepHeaders: []string{"a b"}}, []string{"a b"}},
		{"headers that differ between deliveries can't be compared", semelhttp.Route{
			Operation: op("op"), FingerprintHeaders: []string{"date", "traceparent", "idempotency-key"},
		}, []string{"Date", "Traceparent", "Idempotency-Key"}},
		{"a profile that never keeps 5xx does not go with replaying them", semelhttp.Route{
			Operation: semel.Operation{Name: "op", OnFailure: semel.ReplayFailure}, Profile: semelhttp.ACP(),
		}, []string{"OnFailure"}},
		{"a profile that lacks things is refused", semelhttp.Route{
			Operation: op("op"), Profile: semelhttp.Profile{Name: "mine"},
		}, []string{"MaxKey"}},
		{"an operation that the engine refuses is refused", semelhttp.Route{
			Operation: semel.Operation{Name: "op", Lease: -1},
		}, []string{"Lease"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := g.Handle(c.route, next)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no word about %s in: %v", want, err)
				}
			}
			defer func() {
				if recover() == nil {
					t.Error("Handler did not panic")
				}
			}()
			g.Handler(c.route, next)
		})
	}
	t.Run("a second route may use an operation by its name, but not declare it again", func(t *testing.T) {
		e := newEngine(t, nil)
		g := newGuard(t, e, nil)
		if _, err := g.Handle(semelhttp.Route{Operation: semel.Operation{Name: "op", Window: time.Hour}}, next); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Handle(semelhttp.Route{Operation: op("op")}, next); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Handle(semelhttp.Route{Operation: semel.Operation{Name: "op", Window: 2 * time.Hour}}, next); err == nil {
			t.Fatal("declared twice")
		}
		if got, _ := e.Internal().Operation("op"); got.Window != time.Hour || got.OnFailure != semel.RetryFailure {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("an operation that the engine knows keeps its policy", func(t *testing.T) {
		e := newEngine(t, &semel.Options{Operations: []semel.Operation{{Name: "op", OnFailure: semel.ReplayFailure, Effects: []string{"charge"}}}})
		if _, err := newGuard(t, e, nil).Handle(semelhttp.Route{Operation: op("op")}, next); err != nil {
			t.Fatal(err)
		}
		if got, _ := e.Internal().Operation("op"); got.OnFailure != semel.ReplayFailure || len(got.Effects) != 2 {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("nothing is guarded without an engine or a handler", func(t *testing.T) {
		if _, err := semelhttp.New(nil, nil); err == nil {
			t.Fatal("no engine")
		}
		if _, err := g.Handle(semelhttp.Route{Operation: op("other")}, nil); err == nil {
			t.Fatal("no handler")
		}
		if _, err := semelhttp.New(newEngine(t, nil), &semelhttp.Options{StatusPath: "/status"}); err == nil {
			t.Fatal("no slash")
		}
	})
}

// TestRetriesOverAGuard loses the answer to the first delivery.
func TestRetriesOverAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "127.0.0.1", semelhttp.Options{}, semelhttp.Route{Operation: semel.Operation{Name: "op"}}, handlers["charge"])
		lost := false
		base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			resp, err := inMemory(w.server.Handler)(r)
			if !lost {
				lost = true
				return nil, errors.New("connection reset")
			}
			return resp, err
		})
		client := &http.Client{Transport: &safehttp.Retrier{Base: base}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.example/charges", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer alice")
		resp, err := client.Do(r)
		if err != nil || resp.StatusCode != 201 || resp.Header.Get("Idempotency-Replayed") != "true" || w.runs.Load() != 1 {
			t.Fatal(resp, err, w.runs.Load())
		}
	})
}

// After the window of a call that is remembered for longer, its answer is gone, and its repetitions
// are told so.
func TestARememberedCallDoesNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		e := newEngine(t, nil)
		g := newGuard(t, e, &semelhttp.Options{StatusPath: "/status/"})
		op := semel.Operation{Name: "op", Window: time.Hour, Remember: 24 * time.Hour}
		h := g.Handler(semelhttp.Route{Operation: op}, charged(&runs))
		began := time.Now().UTC()
		if w := call(h, "k", "1", nil); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
		for _, swept := range []bool{false, true} {
			if !swept {
				<-time.After(time.Hour) // of virtual time
			} else if n, err := e.Sweep(t.Context()); err != nil || n.Forgotten != 1 {
				t.Fatal(n, err)
			}
			w := call(h, "k", "1", nil)
			want := "The request was answered at " + began.Format(time.RFC3339Nano) + " (completed), and the answer was kept until " + began.Add(time.Hour).Format(time.RFC3339Nano) + ". The request will not be executed again."
			if w.Code != http.StatusGone || !strings.Contains(w.Body.String(), `"code":"result_not_kept"`) || !strings.Contains(w.Body.String(), want) || runs.Load() != 1 {
				t.Errorf("swept %v: %d %s after %d runs", swept, w.Code, w.Body, runs.Load())
			}
			_, link, _ := strings.Cut(w.Header().Get("Link"), "<")
			link, _, _ = strings.Cut(link, ">")
			s := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, link, nil)
			r.Header.Set("Authorization", "Bearer alice")
			if g.Status().ServeHTTP(s, r); s.Code != http.StatusOK || !strings.Contains(s.Body.String(), `"result_kept":false`) {
				t.Errorf("swept %v: its state is %d %s", swept, s.Code, s.Body)
			}
			if w := call(h, "k", "another payload", nil); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("swept %v: another payload got %d %s", swept, w.Code, w.Body)
			}
		}
		<-time.After(23 * time.Hour)
		if w := call(h, "k", "1", nil); w.Code != http.StatusCreated || runs.Load() != 2 {
			t.Errorf("%d %s after %d runs", w.Code, w.Body, runs.Load())
		}
	})
}
