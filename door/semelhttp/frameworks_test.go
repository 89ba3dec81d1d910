package semelhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
)

// What frameworks and the standard library put between a guard and its handler, or around
// the guard, written down with net/http alone. Each has an effect before it answers.

const secretKey = "8842-a-key-that-nobody-can-guess"

// framed is a server with one guarded route, on which a test counts effects.
type framed struct {
	t       *testing.T
	effects int
	told    []semel.Troubled
	log     strings.Builder
	guard   *semelhttp.Guard
	url     string
}

func newFramed(t *testing.T) *framed {
	f := &framed{t: t}
	events := door.Log(slog.New(slog.NewTextHandler(&f.log, nil)), slog.LevelDebug)
	logged := events.Troubled
	events.Troubled = func(e semel.Troubled) { f.told = append(f.told, e); logged(e) }
	events.Unswept = func(semel.Unswept) {}
	f.guard = newGuard(t, newEngine(t, &semel.Options{Events: events}), nil)
	return f
}

func (f *framed) route(op semel.Operation) semelhttp.Route {
	op.Name = "pay"
	return semelhttp.Route{Operation: op}
}

// serve serves h, with net/http's own recoverer outermost.
func (f *framed) serve(h http.Handler) *framed {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discardLog
	s.Start()
	f.t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// post delivers the call. Status -1: the connection broke.
func (f *framed) post(set ...string) (status int, body string, header http.Header) {
	f.t.Helper()
	r, err := http.NewRequest("POST", f.url, strings.NewReader("{}"))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", secretKey)
	for i := 0; i < len(set); i += 2 {
		r.Header.Set(set[i], set[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return -1, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, err.Error(), resp.Header
	}
	return resp.StatusCode, string(b), resp.Header
}

// gets delivers the call again and again, and expects these statuses and so many effects
// after all of them.
func (f *framed) gets(effects int, statuses ...int) {
	f.t.Helper()
	for i, want := range statuses {
		if got, body, _ := f.post(); got != want {
			f.t.Errorf("delivery %d got %d %s, want %d", i+1, got, body, want)
		}
	}
	if f.effects != effects {
		f.t.Errorf("%d effects, want %d", f.effects, effects)
	}
}

// A bank's connection breaks after the charge, or the handler passes on its 503: a handler
// that says so hasn't proved that nothing was done.
func TestAHandlersOwn503(t *testing.T) {
	for _, status := range []int{502, 503, 504} {
		for name, c := range map[string]struct {
			op      semel.Operation
			says    string
			second  int
			effects int
		}{
			"about money it is held":                         {semel.Operation{Financial: true}, "", 409, 1},
			"about money, said not executed":                 {semel.Operation{Financial: true}, "none", status, 2},
			"elsewhere it failed":                            {semel.Operation{}, "", status, 2},
			"elsewhere it failed, and failures are replayed": {semel.Operation{OnFailure: semel.ReplayFailure}, "", status, 1},
		} {
			t.Run(name, func(t *testing.T) {
				f := newFramed(t)
				f.serve(f.guard.Handler(f.route(c.op), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					f.effects++
					if c.says != "" {
						w.Header().Set("Semel-Effect", c.says)
					}
					w.Header().Set("Retry-After", "1")
					http.Error(w, "the bank did not answer", status)
				}))).gets(c.effects, status, c.second)
			})
		}
	}
}

// net/http's TimeoutHandler between guard and handler answers 503 while the handler goes
// on. Around the guard it only gives up waiting.
func TestTimeoutHandler(t *testing.T) {
	for _, c := range []struct {
		name     string
		op       semel.Operation
		outside  bool
		statuses []int
		effects  int64
	}{
		{"inside, about money: held", semel.Operation{Financial: true}, false, []int{503, 409, 409}, 1},
		{"inside, elsewhere: the handler runs again", semel.Operation{}, false, []int{503, 503}, 2},
		{"inside, and failures are replayed", semel.Operation{OnFailure: semel.ReplayFailure}, false, []int{503, 503, 503}, 1},
		{"outside: its answer comes later", semel.Operation{Financial: true}, true, []int{503, 200}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var effects atomic.Int64
				g := newGuard(t, newEngine(t, &semel.Options{Events: &semel.Events{Unswept: func(semel.Unswept) {}}}), nil)
				limit := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Second, "busy") }
				var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					<-time.After(3 * time.Second) // as a client of a bank does that has no context
					effects.Add(1)
					_, _ = io.WriteString(w, "charged")
				})
				if !c.outside {
					h = limit(h)
				}
				h = g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay", Financial: c.op.Financial, OnFailure: c.op.OnFailure}}, h)
				if c.outside {
					h = limit(h)
				}
				for i, want := range c.statuses {
					if w := call(h, secretKey, "{}", nil); w.Code != want {
						t.Errorf("delivery %d got %d %s, want %d", i+1, w.Code, w.Body, want)
					}
					<-time.After(5 * time.Second) // until the handler has ended too
				}
				if n := effects.Load(); n != c.effects {
					t.Errorf("%d effects, want %d", n, c.effects)
				}
				if err := g.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if err := g.Engine().Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// recoverer is chi's: it answers on the writer that it has itself.
func recoverer(inside func(ctx context.Context), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				inside(r.Context())
				http.Error(w, "broken", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func nobody(context.Context) {}

func TestRecoverersAroundHandlers(t *testing.T) {
	clause.Proves(t, "IDS-IX.3")
	panics := func(f *framed) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.effects++
			w.Header().Set("Location", "/charges/1")
			panic("boom")
		})
	}
	t.Run("outside: held", func(t *testing.T) {
		f := newFramed(t)
		f.serve(recoverer(nobody, f.guard.Handler(f.route(semel.Operation{}), panics(f)))).gets(1, 500, 409)
	})
	t.Run("none: the connection breaks, and the call is held", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), panics(f))).gets(1, -1, 409)
	})
	t.Run("inside: held as well, whatever is to be done with failures", func(t *testing.T) {
		for _, op := range []semel.Operation{{}, {OnFailure: semel.ReplayFailure}, {Financial: true}} {
			f := newFramed(t)
			f.serve(f.guard.Handler(f.route(op), recoverer(nobody, panics(f)))).gets(1, 500, 409)
		}
	})
	t.Run("inside, for a panic of the runtime: held", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), recoverer(nobody, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.effects++
			w.WriteHeader([]int{200}[f.effects])
		})))).gets(1, 500, 409)
	})
	t.Run("inside, and it says that nothing was done: runs again", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recoverer(func(context.Context) { w.Header().Set("Semel-Effect", "none") }, panics(f)).ServeHTTP(w, r)
		}))).gets(2, 500, 500)
	})
	t.Run("inside, for a panic by which the handler refuses: the refusal stays", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer func() { http.Error(w, fmt.Sprint(recover()), http.StatusUnprocessableEntity) }()
			f.effects++
			panic("the amount is too small")
		}))).gets(1, 422, 422)
	})
	t.Run("inside, where the panic was only that of a handler before: its own 500 fails", func(t *testing.T) {
		f := newFramed(t)
		f.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { // an error page that is guarded itself
				_ = recover()
				f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					f.effects++
					http.Error(w, "broken", http.StatusInternalServerError)
				})).ServeHTTP(w, r)
			}()
			panic("around the guard")
		})).gets(2, 500, 500)
	})
	t.Run("inside, when it has returned, and it tells the guard: held", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			func() {
				defer func() { _ = recover() }()
				panics(f).ServeHTTP(w, r)
			}()
			semelhttp.Panicked(r.Context())
			http.Error(w, "broken", http.StatusInternalServerError)
		}))).gets(1, 500, 409)
	})
	t.Run("inside, after a success was begun: held, and never a success", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), recoverer(nobody, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.effects++
			_, _ = io.WriteString(w, "charg")
			panic("boom")
		})))).gets(1, 409, 409)
	})
	t.Run("inside, when part of the answer has left: the connection breaks", func(t *testing.T) {
		f := newFramed(t)
		f.serve(f.guard.Handler(f.route(semel.Operation{}), recoverer(nobody, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.effects++
			_, _ = io.WriteString(w, "charg")
			_ = http.NewResponseController(w).Flush()
			panic("boom")
		})))).gets(1, -1, 409)
	})
	t.Run("outside of any guard it does nothing", func(t *testing.T) { semelhttp.Panicked(t.Context()) })
}

// echo and gin hand out their own writer, and put the guard's into it for the handler. So
// what stands around the guard, such as their recoverer, answers on the guard's writer.
func TestRecoverersOnTheGuardsWriter(t *testing.T) {
	for _, c := range []struct {
		name   string
		begun  func(w http.ResponseWriter)
		answer func(w http.ResponseWriter)
		status int
		body   string
	}{
		{"an answer", nil, func(w http.ResponseWriter) { http.Error(w, "broken", http.StatusBadGateway) }, 502, "broken\n"},
		{"a body alone", nil, func(w http.ResponseWriter) { _, _ = io.WriteString(w, "broken") }, 500, "broken"},
		{"a body from elsewhere", nil, func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("broken")) }, 500, "broken"},
		{"a success", nil, func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, 500, ""},
		{"an answer after the handler has begun its own", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "charg") }, func(w http.ResponseWriter) { http.Error(w, "broken", 500) }, 500, "broken\n"},
		{"an answer after part of another has left", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "charg")
			_ = http.NewResponseController(w).Flush()
		}, func(w http.ResponseWriter) { http.Error(w, "broken", 500) }, -1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFramed(t)
			var kept http.ResponseWriter
			guarded := f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				kept = w
				f.effects++
				w.Header().Set("Set-Cookie", "session=of-the-answer-that-nobody-gets")
				if c.begun != nil {
					c.begun(w)
				}
				panic("boom")
			}))
			f.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "stays")
				defer func() {
					if recover() != nil {
						c.answer(kept)
					}
				}()
				guarded.ServeHTTP(w, r)
			}))
			status, body, header := f.post()
			if status != c.status || status > 0 && (body != c.body || header.Get("Set-Cookie") != "" || header.Get("X-Outer") != "stays") {
				t.Errorf("the first caller got %d %q %v", status, body, header)
			}
			f.gets(1, 409)
			if len(f.told) != 0 {
				t.Errorf("told of %v", f.told)
			}
		})
	}
}

// A framework answers the error that a handler returns: echo's HTTPErrorHandler, gin's error
// middleware.
func TestAnswersThatComeTooLate(t *testing.T) {
	// errorHandler answers on the writer that the handler got.
	errorHandler := func(kept *http.ResponseWriter, status int, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			*kept = nil
			next.ServeHTTP(w, r)
			if *kept != nil {
				http.Error(*kept, "amount too small", status)
			}
		})
	}
	for _, c := range []struct {
		name     string
		op       semel.Operation
		writes   int // the status that the handler writes itself
		statuses []int
		recorded string
		silent   bool // and somebody is told of that
	}{
		{"net/http's empty 200 is the answer", semel.Operation{}, 0, []int{200, 200}, "recorded=200", true},
		{"about money nobody knows", semel.Operation{Financial: true}, 0, []int{409, 409}, "recorded=0", false},
		{"the handler's own answer stays", semel.Operation{}, 201, []int{201, 201}, "recorded=201", false},
		{"the same status and a body", semel.Operation{}, 422, []int{422, 422}, "recorded=422", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFramed(t)
			var kept http.ResponseWriter
			f.serve(errorHandler(&kept, 422, f.guard.Handler(f.route(c.op), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				kept = w
				f.effects++
				if c.writes != 0 {
					w.WriteHeader(c.writes)
				}
			})))).gets(1, c.statuses...)
			if len(f.told) > 0 && errors.Is(f.told[0].Err, semelhttp.ErrNoAnswer) == c.silent && c.silent {
				f.told = f.told[1:]
			}
			if len(f.told) != 1 || f.told[0].Door != semelhttp.Name || f.told[0].ID.Operation != "pay" || f.told[0].Status != 422 || f.told[0].Err == nil {
				t.Errorf("told of %+v", f.told)
			}
			line := f.log.String()
			for _, part := range []string{"level=WARN", "put the guard outside of the framework's error handler", "operation=pay", "status=422", c.recorded} {
				if !strings.Contains(line, part) {
					t.Errorf("the log lacks %q:\n%s", part, line)
				}
			}
		})
	}
	t.Run("the guard outside of the error handler records what the caller gets", func(t *testing.T) {
		f := newFramed(t)
		var kept http.ResponseWriter
		f.serve(f.guard.Handler(f.route(semel.Operation{Financial: true}), errorHandler(&kept, 422, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			kept = w
			f.effects++
		})))).gets(1, 422, 422)
		if len(f.told) != 0 {
			t.Errorf("told of %+v", f.told)
		}
	})
	t.Run("after a timeout inside has answered, the timeout is named", func(t *testing.T) {
		f := newFramed(t)
		over, written := make(chan struct{}), make(chan struct{})
		h := f.guard.Handler(f.route(semel.Operation{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			go func() {
				defer close(written)
				<-over
				w.WriteHeader(http.StatusCreated)
			}()
			http.Error(w, "busy", http.StatusServiceUnavailable) // as one does that hands its own writer on
		}))
		if w := call(h, "k", "{}", nil); w.Code != 503 {
			t.Errorf("answered %d", w.Code)
		}
		close(over)
		<-written
		if len(f.told) != 1 || f.told[0].Status != 201 || !strings.Contains(f.log.String(), "put the guard inside of the timeout") || !strings.Contains(f.log.String(), "recorded=503") {
			t.Errorf("told of %+v\n%s", f.told, &f.log)
		}
	})
	t.Run("a program without events is told once, by its default log", func(t *testing.T) {
		var log strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		g := newGuard(t, newEngine(t, &semel.Options{Events: &semel.Events{Unswept: func(semel.Unswept) {}}}), nil)
		var kept http.ResponseWriter
		h := errorHandler(&kept, 422, g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "pay"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { kept = w })))
		call(h, "a", "{}", nil)
		call(h, "b", "{}", nil)
		if n := strings.Count(log.String(), "error handler"); n != 1 || strings.Count(log.String(), "without an answer") != 1 {
			t.Errorf("%d lines:\n%s", n, &log)
		}
	})
}

// What a wrapper looks like whose handler answers by the framework's own writer, or not at
// all. Somebody is told once for each route, not for each call.
func TestHandlersThatReturnWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		op     semel.Operation
		handle http.HandlerFunc
		told   int
	}{
		"it answers elsewhere":               {semel.Operation{}, func(http.ResponseWriter, *http.Request) {}, 1},
		"it sets a header":                   {semel.Operation{}, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/1") }, 0},
		"it says 200":                        {semel.Operation{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, 0},
		"about money it is held, which says": {semel.Operation{Financial: true}, func(http.ResponseWriter, *http.Request) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFramed(t)
			h := f.guard.Handler(f.route(c.op), c.handle)
			call(h, "a", "{}", nil)
			call(h, "b", "{}", nil)
			if len(f.told) != c.told || c.told > 0 && (!errors.Is(f.told[0].Err, semelhttp.ErrNoAnswer) || f.told[0].ID.Operation != "pay" || !strings.Contains(f.log.String(), "level=WARN")) {
				t.Errorf("told of %+v\n%s", f.told, &f.log)
			}
		})
	}
}

// A handler that returns without writing is net/http's empty 200, which proves nothing about
// money.
func TestEmptyAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		op       semel.Operation
		statuses []int
		effects  int
	}{
		"elsewhere it is done":                       {semel.Operation{}, []int{200, 200}, 1},
		"about money it is held":                     {semel.Operation{Financial: true}, []int{409, 409}, 1},
		"about money, and it may be repeated, it is": {semel.Operation{Financial: true, OnAbandoned: semel.RetryAbandoned}, []int{409, 409}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFramed(t)
			f.serve(f.guard.Handler(f.route(c.op), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.effects++ }))).gets(c.effects, c.statuses...)
		})
	}
}
