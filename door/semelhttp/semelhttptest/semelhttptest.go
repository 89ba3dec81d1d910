// Package semelhttptest is for unit tests of guarded handlers. It gives you an engine in
// memory, a clock that you can move, and a guard that accepts every caller, even in requests
// from httptest.NewRequest, which never went through a server.
//
//	s := semelhttptest.New(t, nil)
//	h := s.Guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, charge)
//	first := s.Post(h, "order-1", `{"amount":12}`)
//	s.Advance(25 * time.Hour) // past the window: the same request is a new call
//
// For routes with a transaction, [semelhttp.Route].Tx, use [NewOn] with the store in your
// test's database.
package semelhttptest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/semeltest"
)

// CallerHeader says who sent a request in a test. Without it the caller is "tester".
const CallerHeader = "X-Test-Caller"

// Service is everything that a test needs. Its guard and its requests may be used concurrently.
type Service struct {
	*semeltest.World
	// Guard identifies callers by [CallerHeader]. After a crash it is another one.
	Guard *semelhttp.Guard

	t testing.TB
}

// New makes a service on a store in memory. Both end with the test. The engine's options
// may be nil. If the guard reports an error, such as an outcome that can't be recorded, the
// test fails.
func New(t testing.TB, opts *semel.Options) *Service {
	t.Helper()
	return serve(t, semeltest.New(t, observed(t, opts)))
}

// NewOn is New on your own store, with which handlers can write in the transaction of their
// call:
//
//	st, err := pgstore.New(ctx, pool, &pgstore.Options{Migrate: true})
//	...
//	s := semelhttptest.NewOn(t, st)
//	h := s.Guard.Handler(semelhttp.Route{Tx: pgstore.Transactions(pool), Operation: op}, handler)
//
// See [semeltest.NewOn] for what differs on it.
func NewOn(t testing.TB, st semel.Store) *Service {
	t.Helper()
	return serve(t, semeltest.NewOn(t, st, observed(t, nil)))
}

func serve(t testing.TB, w *semeltest.World) *Service {
	t.Helper()
	s := &Service{World: w, t: t}
	s.guard()
	t.Cleanup(func() {
		if err := s.Guard.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("semelhttptest: %v", err)
		}
	})
	return s
}

// guard makes a guard on the engine.
func (s *Service) guard() {
	s.t.Helper()
	guard, err := semelhttp.New(s.Engine, &semelhttp.Options{
		StatusPath: "/semel/status/",
		Identity:   identify,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Guard = guard
}

// Crash is [semeltest.World.Crash], and makes a guard for the next process. Put your handlers
// behind that one.
func (s *Service) Crash(at semeltest.Point, f func()) {
	s.t.Helper()
	dead := s.Guard
	s.World.Crash(at, f)
	s.guard()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	cancel()
	_ = dead.Close(ctx)
}

// observed fails the test if the guard meets an error that no caller gets.
func observed(t testing.TB, opts *semel.Options) *semel.Options {
	if opts == nil {
		opts = &semel.Options{}
	}
	o, events := *opts, semel.Events{}
	if o.Events != nil {
		events = *o.Events
	}
	troubled := events.Troubled
	events.Troubled = func(e semel.Troubled) {
		switch {
		case errors.Is(e.Err, semelhttp.ErrNoAnswer):
			t.Logf("semelhttptest: %v", e.Err) // the test may mean an empty 200
		case e.Door == semelhttp.Name:
			t.Errorf("semelhttptest: %v", e.Err)
		}
		if troubled != nil {
			troubled(e)
		}
	}
	o.Events = &events
	return &o
}

// identify believes the request's own word.
func identify(r *http.Request) (tenant, principal string, err error) {
	if who := r.Header.Get(CallerHeader); who != "" {
		return "", who, nil
	}
	return "", "tester", nil
}

// Post sends a request with a key and a JSON body to a handler.
func (s *Service) Post(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set(semelhttp.DefaultKeyHeader, key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Replayed reports whether an answer is a replay.
func Replayed(w *httptest.ResponseRecorder) bool {
	return w.Header().Get(semelhttp.IETF().Marker) == "true"
}
