package semelhttptest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/semeltest"
	"github.com/semelhq/semel/store/memstore"
)

func TestService(t *testing.T) {
	charges := 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charges)
	})
	s := semelhttptest.New(t, nil)
	h := s.Guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, charge)

	first, again := s.Post(h, "order-1", `{"amount":12}`), s.Post(h, "order-1", `{"amount":12}`)
	if first.Code != 201 || again.Body.String() != "charge 1" || semelhttptest.Replayed(first) || !semelhttptest.Replayed(again) {
		t.Errorf("%d %s, %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if other := s.Post(h, "order-1", `{"amount":13}`); other.Code != 422 {
		t.Errorf("another payload: %d", other.Code)
	}
	// Another caller's key is another key.
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"amount":12}`))
	r.Header.Set("Idempotency-Key", "order-1")
	r.Header.Set(semelhttptest.CallerHeader, "bob")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Body.String() != "charge 2" {
		t.Errorf("bob gets %s", w.Body)
	}
	s.Advance(semel.DefaultWindow + time.Hour)
	if n := s.Store.Len(); n != 0 {
		t.Errorf("%d records are left after the window", n)
	}
	if late := s.Post(h, "order-1", `{"amount":12}`); late.Body.String() != "charge 3" {
		t.Errorf("after the window: %s", late.Body)
	}
}

// TestWithoutIt: a guard with the defaults refuses what no server has received, and
// says to the developer what to set.
func TestWithoutIt(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge"}}, http.NotFoundHandler())
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "order-1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if text := w.Body.String(); w.Code != 401 || !strings.Contains(text, "Options.Identity") || !strings.Contains(text, "Route.Anonymous") || !strings.Contains(text, "semelhttptest") {
		t.Errorf("%d, %s", w.Code, text)
	}
}

// TestCrashOfAService: after the crash of a process in a charge, another one holds the call.
func TestCrashOfAService(t *testing.T) {
	s := semelhttptest.New(t, nil)
	charges := 0
	charge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
	})
	var h http.Handler
	start := func() {
		h = s.Guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "charge", Financial: true}}, charge)
	}
	post := func() *httptest.ResponseRecorder { return s.Post(h, "order-1", `{}`) }
	start()
	s.Crash(semeltest.BeforeOutcome, func() { post() })
	start()
	if w := post(); w.Code != 409 {
		t.Errorf("while the dead process may live: %d %s", w.Code, w.Body)
	}
	s.Advance(time.Hour)
	if w := post(); charges != 1 || !strings.Contains(w.Body.String(), "held") {
		t.Errorf("%d charges, and the retry gets %d %s", charges, w.Code, w.Body)
	}
}
