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
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/memstore"
)

// CallerHeader says who sent a request in a test. Without it the caller is "tester".
const CallerHeader = "X-Test-Caller"

// Service is everything that a test needs. Its methods may be called concurrently.
type Service struct {
	// Store is the memory store; nil if the service is on another, see [NewOn].
	Store  *memstore.Store
	Engine *semel.Engine
	// Guard identifies callers by [CallerHeader].
	Guard *semelhttp.Guard

	t testing.TB
}

// New makes a service on a store in memory. Both end with the test. The engine's options
// may be nil. If the guard reports an error, such as an outcome that can't be recorded, the
// test fails.
func New(t testing.TB, opts *semel.Options) *Service {
	t.Helper()
	st := memstore.New()
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("semelhttptest: %v", err)
		}
	})
	s := newOn(t, st, opts)
	s.Store = st
	return s
}

// NewOn is New on your own store, with which handlers can write in the transaction of their
// call:
//
//	st, err := pgstore.New(ctx, pool, &pgstore.Options{Migrate: true})
//	...
//	s := semelhttptest.NewOn(t, st)
//	h := s.Guard.Handler(semelhttp.Route{Tx: pgstore.Transactions(pool), Operation: op}, handler)
//
// The store stays yours: close it when the test is over. Its records stay, too, so give
// each test keys or a database of its own. The service has no Store of its own, and its
// clock is the store's: Advance can't move it.
func NewOn(t testing.TB, st semel.Store) *Service {
	t.Helper()
	return newOn(t, st, nil)
}

func newOn(t testing.TB, st semel.Store, opts *semel.Options) *Service {
	t.Helper()
	s := &Service{t: t}
	var err error
	if s.Engine, err = semel.New(st, observed(t, opts)); err != nil {
		t.Fatal(err)
	}
	s.Guard, err = semelhttp.New(s.Engine, &semelhttp.Options{
		StatusPath: "/semel/status/",
		Identity:   identify,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Guard.Close(ctx), s.Engine.Close(ctx)); err != nil {
			t.Errorf("semelhttptest: %v", err)
		}
	})
	return s
}

// observed fails the test if the guard meets an error that no caller gets, and silences the
// engine's warning that nothing sweeps: tests sweep when they mean to.
func observed(t testing.TB, opts *semel.Options) *semel.Options {
	if opts == nil {
		opts = &semel.Options{}
	}
	o, events := *opts, semel.Events{}
	if o.Events != nil {
		events = *o.Events
	}
	if events.Unswept == nil {
		events.Unswept = func(semel.Unswept) {}
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

// Advance moves the clock of leases and windows, and has the engine sweep the records that are
// due by then. You can only move the clock of the memory store: with another one the test ends.
func (s *Service) Advance(d time.Duration) {
	s.t.Helper()
	if s.Store == nil {
		s.t.Fatal("semelhttptest: the clock of your own store can't be moved: use New")
	}
	s.Store.Advance(d)
	if _, err := s.Engine.Sweep(s.t.Context()); err != nil {
		s.t.Errorf("semelhttptest: %v", err)
	}
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
