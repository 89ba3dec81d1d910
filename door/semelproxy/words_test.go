package semelproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store/memstore"
)

// TestUpstreamsThatRepeatHeaders: a caller can't have an upstream say in its answer what the
// answer proves, nor have it look like a replay.
func TestUpstreamsThatRepeatHeaders(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	for name, c := range map[string]struct {
		status int
		route  semelhttp.Route
		header http.Header
	}{
		"a word about the effect": {500, semelhttp.Route{}, http.Header{"Semel-Effect": {"none"}}},
		"a word of the contract":  {500, semelhttp.Route{Profile: semelhttp.Stripe()}, http.Header{"Stripe-Should-Retry": {"true"}}},
		"a time to wait":          {503, semelhttp.Route{}, http.Header{"Retry-After": {"1"}}},
		"what the route looks at": {503, semelhttp.Route{Answers: judge.Answers{NotExecuted: []string{"503 header:X-Queue=full"}}}, http.Header{"X-Queue": {"full"}}},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, _ int) {
				for name, values := range r.Header {
					if name != "Content-Length" && name != "Accept-Encoding" {
						w.Header()[name] = values
					}
				}
				w.WriteHeader(c.status)
			})
			w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
				c.route.Operation, c.route.Anonymous = semel.Operation{Name: "op", OnFailure: semel.ReplayFailure}, semelhttp.AnonymousShare
				o.Route = c.route
			})
			for range 2 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/charges", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = c.header.Clone()
				r.Header.Set("Idempotency-Key", "k")
				resp, err := w.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			if up.count() != 1 {
				t.Errorf("the upstream was asked %d times", up.count())
			}
		})
	}
}

// TestMarksOfAnUpstream don't reach the caller of a first answer, guarded or not.
func TestMarksOfAnUpstream(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, _ *http.Request, _ int) {
		for _, name := range semelhttp.Marks() {
			w.Header().Set(name, "true")
		}
		w.WriteHeader(http.StatusCreated)
	})
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Route.Key = semelhttp.KeyOptional })
	for _, key := range []string{"k", ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/charges", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		for _, name := range semelhttp.Marks() {
			if got := resp.Header.Get(name); got != "" || resp.StatusCode != http.StatusCreated {
				t.Errorf("key %q: %d with %s: %s", key, resp.StatusCode, name, got)
			}
		}
	}
}

// TestSemelBehindSemel: what the one behind refuses before anything ran doesn't hold a call at
// the one in front, and what may have run does.
func TestSemelBehindSemel(t *testing.T) {
	clause.Proves(t, "IDS-V.2", "MAP-FLOW.6")
	for name, c := range map[string]struct {
		// refuse sets the inner service up so that it refuses a delivery, and returns how to
		// have it accept the next.
		refuse func(t *testing.T, inner *inner) (accept func())
		again  int // what the next delivery to the outer one gets
	}{
		"its store is down": {func(_ *testing.T, in *inner) func() {
			in.store.switchTo(true)
			return func() { in.store.switchTo(false) }
		}, 200},
		"it knows nobody":       {func(_ *testing.T, in *inner) func() { in.forget = true; return func() { in.forget = false } }, 200},
		"the key has a payload": {func(t *testing.T, in *inner) func() { in.deliver(t, "other"); return func() {} }, 422},
		"its handler is at work": {func(t *testing.T, in *inner) func() {
			in.running = make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				in.deliver(t, "{}")
			}()
			<-in.began
			return func() { close(in.running); <-done }
		}, 409},
	} {
		t.Run(name, func(t *testing.T) {
			in := newInner(t)
			w := newWorld(t, in.server.URL, func(_ *world, o *semelproxy.Options) {
				o.Route = semelhttp.Route{Operation: semel.Operation{Name: "outer", Financial: true, OnExpiry: semel.DeleteExpired}, Anonymous: semelhttp.AnonymousShare}
			})
			post := func() (int, string) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/charges", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Idempotency-Key", "k")
				resp, err := w.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(text)
			}
			accept := c.refuse(t, in)
			if status, text := post(); status < 400 {
				t.Fatalf("it was not refused: %d %s", status, text)
			}
			accept()
			if status, text := post(); status != c.again {
				t.Errorf("the next delivery got %d %s, want %d", status, text, c.again)
			}
		})
	}
}

// inner is a guarded service behind another.
type inner struct {
	store          *countingStore
	forget         bool // who calls
	began, running chan struct{}
	server         *httptest.Server
}

func newInner(t *testing.T) *inner {
	t.Helper()
	in := &inner{store: &countingStore{mem: memstore.New()}, began: make(chan struct{}, 10)}
	e, err := semel.New(in.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(e, &semelhttp.Options{Identity: func(*http.Request) (string, string, error) {
		if in.forget {
			return "", "", fmt.Errorf("the issuer is away: %w", context.DeadlineExceeded)
		}
		return "acme", "outer", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	in.server = httptest.NewServer(guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "inner"}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		in.began <- struct{}{}
		if in.running != nil {
			<-in.running
		}
	})))
	t.Cleanup(in.server.Close)
	return in
}

// deliver sends a request past the outer service.
func (in *inner) deliver(t *testing.T, body string) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.server.URL+"/charges", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Idempotency-Key", "k")
	resp, err := stage.Direct.Transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
}
