// Package semelhttptest is for unit tests of guarded handlers. It gives you an engine in
// memory, a clock that you can move, and a guard that accepts every caller, even in
// requests from httptest.NewRequest, which no server has received.
//
//	s := semelhttptest.New(t, nil)
//	h := s.Guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, charge)
//	first := s.Post(h, "order-1", `{"amount":12}`)
//	s.Advance(25 * time.Hour) // past the window: the same request is a new call
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
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/transport/semelhttp"
)

// CallerHeader says in a test who sent a request. Without it the caller is "tester".
const CallerHeader = "X-Test-Caller"

// Service is everything that a test needs. Its methods may be called concurrently.
type Service struct {
	Store  *memstore.Store
	Engine *semel.Engine
	// Guard identifies callers by [CallerHeader].
	Guard *semelhttp.Guard

	t testing.TB
}

// New makes a service, which ends with the test. The engine's options may be nil. If the
// guard reports an error, such as an outcome that can't be recorded, the test fails.
func New(t testing.TB, opts *semel.Options) *Service {
	t.Helper()
	s := &Service{Store: memstore.New(), t: t}
	var err error
	if s.Engine, err = semel.New(s.Store, opts); err != nil {
		t.Fatal(err)
	}
	s.Guard, err = semelhttp.New(s.Engine, &semelhttp.Options{
		StatusPath: "/semel/status/",
		Identity:   identify,
		OnError:    func(_ context.Context, err error) { t.Errorf("semelhttptest: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Guard.Close(ctx), s.Engine.Close(ctx), s.Store.Close()); err != nil {
			t.Errorf("semelhttptest: %v", err)
		}
	})
	return s
}

// identify believes what the request says.
func identify(r *http.Request) (tenant, principal string, err error) {
	if who := r.Header.Get(CallerHeader); who != "" {
		return "", who, nil
	}
	return "", "tester", nil
}

// Advance moves the clock by which leases and windows are judged, and lets the engine
// sweep what is due by then.
func (s *Service) Advance(d time.Duration) {
	s.t.Helper()
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
