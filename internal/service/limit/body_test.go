package limit_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/limit"
)

// unsized hides the length of a body, as a chunked one does.
type unsized struct{ io.Reader }

func byTenant(r *http.Request) limit.Caller { return limit.Caller{Tenant: r.Header.Get("Tenant")} }

// send sends a tenant's request to the handler.
func send(h http.Handler, tenant string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	r.Header.Set("Tenant", tenant)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, code, retryAfter string) {
	t.Helper()
	var doc semelhttp.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if w.Code != status || doc.Status != status || string(doc.Code) != code || doc.Type != "https://semel.example/problems/"+code || doc.Title == "" || doc.Detail == "" {
		t.Errorf("got %d %+v, want %d %s", w.Code, doc, status, code)
	}
	h := w.Header()
	if h.Get("Retry-After") != retryAfter || h.Get("Content-Type") != semelhttp.ProblemType || h.Get("Cache-Control") != "no-store" || h.Get("Connection") != "close" {
		t.Errorf("header %v", h)
	}
}

func TestHandler(t *testing.T) {
	opts := limit.Options{Caller: byTenant, TypeBase: "https://semel.example/problems/"}
	// nested answers an outer request with the answer to an inner one.
	nested := func(b *limit.Budget, tenant string, body func() io.Reader) (outer, inner *httptest.ResponseRecorder) {
		var h http.Handler
		depth := 0
		h = b.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if depth++; depth == 1 {
				inner = send(h, tenant, body())
			}
			w.WriteHeader(http.StatusCreated)
		}), opts)
		outer = send(h, "a", body())
		return outer, inner
	}
	kinds := map[string]func(n int) func() io.Reader{
		"with a length": func(n int) func() io.Reader {
			return func() io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
		},
		"without a length, byte by byte,": func(n int) func() io.Reader {
			return func() io.Reader { return iotest.OneByteReader(strings.NewReader(strings.Repeat("x", n))) }
		},
		"without a length": func(n int) func() io.Reader {
			return func() io.Reader { return unsized{strings.NewReader(strings.Repeat("x", n))} }
		},
	}
	for kind, body := range kinds {
		t.Run("bodies "+kind+" count while they are handled, and no longer", func(t *testing.T) {
			b := newBudget(t, 100, 60)
			outer, inner := nested(b, "a", body(31))
			if outer.Code != http.StatusCreated {
				t.Error(outer.Code)
			}
			wantProblem(t, inner, http.StatusTooManyRequests, "overloaded", "1")
			outer, inner = nested(b, "b", body(51))
			if outer.Code != http.StatusCreated {
				t.Error(outer.Code)
			}
			wantProblem(t, inner, http.StatusServiceUnavailable, "overloaded", "1")
			outer, inner = nested(b, "b", body(50))
			if outer.Code != http.StatusCreated || inner.Code != http.StatusCreated {
				t.Error(outer.Code, inner.Code)
			}
			wantInFlight(t, b, 0, 0)
		})
		t.Run("bodies "+kind+" that would never fit are told so", func(t *testing.T) {
			b := newBudget(t, 100, 60)
			outer, _ := nested(b, "a", body(61))
			wantProblem(t, outer, http.StatusRequestEntityTooLarge, "over_budget", "")
			outer, _ = nested(newBudget(t, 40, 0), "a", body(61))
			wantProblem(t, outer, http.StatusRequestEntityTooLarge, "over_budget", "")
			wantInFlight(t, b, 0, 0)
		})
		t.Run("bodies "+kind+" are given back by a handler that panics", func(t *testing.T) {
			b := newBudget(t, 100, 60)
			h := b.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				wantInFlight(t, b, 10, 1)
				panic(http.ErrAbortHandler)
			}), opts)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was lost")
					}
				}()
				send(h, "a", body(10)())
			}()
			wantInFlight(t, b, 0, 0)
		})
	}
	t.Run("a length that does not fit is refused before anything is read", func(t *testing.T) {
		h := newBudget(t, 10, 10).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("handled") }), opts)
		r := httptest.NewRequest(http.MethodPost, "/", unsized{readerFunc(func([]byte) (int, error) {
			t.Error("read")
			return 0, io.EOF
		})})
		r.ContentLength = 11
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		wantProblem(t, w, http.StatusRequestEntityTooLarge, "over_budget", "")
	})
	t.Run("requests without a body always pass", func(t *testing.T) {
		b := newBudget(t, 1, 1)
		if _, ok := b.Acquire(limit.Caller{Tenant: "a"}, 1); !ok {
			t.Fatal("the first byte")
		}
		h := b.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), limit.Options{})
		if w := send(h, "a", nil); w.Code != http.StatusNoContent {
			t.Error(w.Code)
		}
	})
	t.Run("the refusal has nothing of the answer that it replaces, but what was there before", func(t *testing.T) {
		h := newBudget(t, 10, 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			if e, ok := errors.AsType[*limit.ExhaustedError](err); !ok || e.Limit != 10 {
				t.Error(err)
			}
			if _, again := r.Body.Read(make([]byte, 1)); !errors.Is(again, err) {
				t.Error(again)
			}
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Del("X-Outer")
			w.WriteHeader(http.StatusOK)
			if _, err := io.WriteString(w, "all is well"); err != nil {
				t.Error(err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}), opts)
		w := httptest.NewRecorder()
		w.Header().Set("X-Outer", "1")
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", unsized{strings.NewReader("more than ten bytes")}))
		wantProblem(t, w, http.StatusRequestEntityTooLarge, "over_budget", "")
		if w.Header().Get("Set-Cookie") != "" || w.Header().Get("X-Outer") != "1" {
			t.Error(w.Header())
		}
	})
	t.Run("what is read after the handler returned takes nothing", func(t *testing.T) {
		b := newBudget(t, 10, 10)
		var body io.Reader
		h := b.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { body = r.Body }), opts)
		send(h, "a", unsized{strings.NewReader("late")})
		if text, err := io.ReadAll(body); string(text) != "late" || err != nil {
			t.Error(string(text), err)
		}
		wantInFlight(t, b, 0, 0)
	})
	t.Run("an answer that has begun stays", func(t *testing.T) {
		h := newBudget(t, 10, 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "begun")
			_, err := io.ReadAll(r.Body)
			if err == nil {
				t.Error("read whole")
			}
		}), opts)
		if w := send(h, "a", unsized{strings.NewReader("more than ten bytes")}); w.Code != http.StatusOK || w.Body.String() != "begun" {
			t.Error(w.Code, w.Body)
		}
	})
	t.Run("a chunked body over a real connection is refused, and answers still stream and end in trailers", func(t *testing.T) {
		srv := httptest.NewServer(newBudget(t, 10, 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write(body)
			w.(http.Flusher).Flush()
			w.Header().Set("X-Sum", "42")
		}), opts))
		defer srv.Close()
		post := func(body string) (*http.Response, string) {
			resp, err := srv.Client().Post(srv.URL, "text/plain", unsized{strings.NewReader(body)})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp, string(text)
		}
		if resp, text := post("ten bytes!"); resp.StatusCode != http.StatusOK || text != "ten bytes!" || resp.Trailer.Get("X-Sum") != "42" {
			t.Error(resp.Status, text, resp.Trailer)
		}
		if resp, text := post("eleven byte"); resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "over_budget") {
			t.Error(resp.Status, text)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
