package semelhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
)

var noAnswer = semelhttp.Refusal{Status: http.StatusBadGateway, Code: "no_answer", Title: "No answer", Detail: "Nobody answered."}

func TestVerdictsEndAttempts(t *testing.T) {
	for _, c := range []struct {
		name        string
		say         func(ctx context.Context, why string, f semelhttp.Refusal)
		onAbandoned semel.AfterAbandon
		second      int
		runs        int
	}{
		{"refuted runs again", semelhttp.Refuted, semel.HoldAbandoned, 502, 2},
		{"silent is held", semelhttp.Silent, semel.HoldAbandoned, 409, 1},
		{"silent runs again where the operation says so", semelhttp.Silent, semel.RetryAbandoned, 502, 2},
		{"held is held whatever the operation says", semelhttp.Held, semel.RetryAbandoned, 409, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs := 0
			g := newGuard(t, newEngine(t, nil), &semelhttp.Options{StatusPath: "/status/"})
			h := g.Handler(semelhttp.Route{
				Operation: semel.Operation{Name: "op", OnAbandoned: c.onAbandoned}, Anonymous: semelhttp.AnonymousShare,
			}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				w.Header().Set("X-Dropped", "yes")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "dropped")
				c.say(r.Context(), "nobody answered", noAnswer)
			}))
			first := call(h, "k1", "one", nil)
			if first.Code != 502 || !strings.Contains(first.Body.String(), `"code":"no_answer"`) || first.Header().Get("X-Dropped") != "" ||
				!strings.Contains(first.Header().Get("Link"), "/status/") || strings.Contains(first.Body.String(), "dropped") {
				t.Errorf("got %d %v %s", first.Code, first.Header(), first.Body)
			}
			if second := call(h, "k1", "one", nil); second.Code != c.second || runs != c.runs {
				t.Errorf("the second got %d after %d runs, want %d after %d", second.Code, runs, c.second, c.runs)
			}
		})
	}
	t.Run("it does nothing without a guard", func(t *testing.T) {
		semelhttp.Silent(t.Context(), "nobody answered", noAnswer)
	})
}

func TestAVerdictAboutAnAnswerThatPassesBreaksIt(t *testing.T) {
	for name, say := range map[string]func(context.Context, string, semelhttp.Refusal){"silent": semelhttp.Silent, "refuted": semelhttp.Refuted} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, newEngine(t, nil), nil)
			runs := 0
			h := g.Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}, Anonymous: semelhttp.AnonymousShare},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					_, _ = io.WriteString(w, "half")
					_ = http.NewResponseController(w).Flush()
					say(r.Context(), "the rest did not come", noAnswer)
				}))
			func() {
				defer func() {
					if v := recover(); v != http.ErrAbortHandler {
						t.Errorf("recovered %v", v)
					}
				}()
				call(h, "k1", "one", nil)
			}()
			if again := call(h, "k1", "one", nil); again.Code != 409 || runs != 1 {
				t.Errorf("the second got %d %s after %d runs", again.Code, again.Body, runs)
			}
		})
	}
}

func TestInspectorSeesWhatAGuardWould(t *testing.T) {
	e := newEngine(t, nil)
	g := newGuard(t, e, nil)
	rt := semelhttp.Route{Operation: semel.Operation{Name: "op"}, Anonymous: semelhttp.AnonymousShare}
	i, err := g.Inspect(rt)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := e.Internal().Operation("op"); ok || i.Operation().Name != "op" {
		t.Errorf("inspecting registered the operation %+v", i.Operation())
	}
	h := g.Handler(rt, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	request := func(method, key, body string) *http.Request {
		r := httptest.NewRequest(method, "/charges?b=1&a=2", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		return r
	}
	for n, body := range []string{"", `{"b":1,"a":2}`, "not json", strings.Repeat("x", 100<<10)} {
		r := request("POST", fmt.Sprint("k", n), body)
		if !i.Guards(r) {
			t.Error("a POST is not guarded")
		}
		got, code := i.ID(r, nil)
		if code != "" {
			t.Fatal(code)
		}
		fp := i.Fingerprint(r, []byte(body))
		h.ServeHTTP(httptest.NewRecorder(), r)
		rec, err := e.Lookup(t.Context(), got.ID)
		if err != nil || rec.Fingerprint != fp {
			t.Errorf("the record of %.20q has %v, %v; want %v", body, rec.Fingerprint, err, fp)
		}
	}
	if i.Guards(request("GET", "k1", "")) {
		t.Error("a GET is guarded")
	}
	if _, code := i.ID(request("POST", "", ""), nil); code != door.CodeKeyMissing {
		t.Errorf("code %q", code)
	}
	if _, code := i.ID(request("POST", "a,b", ""), nil); code != door.CodeKeyInvalid {
		t.Errorf("code %q", code)
	}
	for status, want := range map[int]bool{200: false, 404: false, 401: true, 429: true, 500: true, 503: true, 504: true, 408: false, 599: false} {
		if i.RunsAgain(status, nil) != want {
			t.Errorf("RunsAgain(%d) is %t", status, !want)
		}
	}
	if _, err := g.Inspect(semelhttp.Route{Operation: semel.Operation{Name: "op"}, Key: "perhaps"}); err == nil {
		t.Error("a bad route was taken")
	}
}
