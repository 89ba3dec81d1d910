package semelhttp_test

import (
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// A router calls a middleware for each route, and some frameworks for each request.
func TestMiddleware(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	var runs atomic.Int64
	// The operation says more than its name, so it can be declared once only.
	guarded := g.Middleware(semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: true}})
	for range 2 {
		for _, want := range []int64{1, 2} {
			key := []string{"", "a", "b"}[want]
			if w := call(guarded(charged(&runs)), key, "{}", nil); w.Code != http.StatusCreated || runs.Load() < want {
				t.Errorf("%s: answered %d %s in run %d", key, w.Code, w.Body, runs.Load())
			}
		}
	}
	if runs.Load() != 2 || !g.Serves("op") {
		t.Errorf("ran %d times, want once for each key", runs.Load())
	}
	for name, wrong := range map[string]func(){
		"no handler":           func() { guarded(nil) },
		"a second declaration": func() { g.Middleware(semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: true}}) },
		"something is wrong":   func() { g.Middleware(semelhttp.Route{}) },
		"a handler per request": func() {
			g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: true}}, charged(&runs))
		},
		"a handler that is none": func() { g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "y"}}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				v := recover()
				err, ok := v.(error)
				if !ok || strings.Contains(name, "per request") && !strings.Contains(err.Error(), "make a Middleware once") {
					t.Errorf("panicked with %v", v)
				}
			}()
			wrong()
			t.Error("was accepted")
		})
	}
}

// What wraps a handler for each request keeps none of them, however it does that.
func TestNothingThatIsWrappedIsKept(t *testing.T) {
	g := newGuard(t, newEngine(t, nil), nil)
	byName := semelhttp.Route{Operation: semel.Operation{Name: "named"}}
	guarded := g.Middleware(semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: true}})
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"Middleware": guarded,
		"Handler":    func(next http.Handler) http.Handler { return g.Handler(byName, next) },
	} {
		t.Run(name, func(t *testing.T) {
			var kept []weak.Pointer[request]
			for range 100 {
				r := &request{}
				kept = append(kept, weak.Make(r))
				call(wrap(r), "key", "{}", nil)
			}
			runtime.GC()
			for _, r := range kept {
				if r.Value() != nil {
					t.Fatal("a handler is kept that nobody has any more")
				}
			}
		})
	}
	next := &request{}
	if n := testing.AllocsPerRun(100, func() { guarded(next) }); n > 1 {
		t.Errorf("wrapping a handler takes %.0f allocations", n)
	}
}

// request stands for what a framework has of one request.
type request struct{ body [1 << 10]byte }

func (r *request) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(r.body[:1]) }
