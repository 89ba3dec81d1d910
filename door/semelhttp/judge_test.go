package semelhttp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
)

// bySubject verifies a caller by the first word of a credential: the second is another at each
// renewal.
func bySubject(r *http.Request) (tenant, principal string, err error) {
	subject, _, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if !ok {
		return "", "", errors.New("no subject")
	}
	return "acme", subject, nil
}

// TestWhoMayRunAfterAnAnswer: for every status, of this process and of an upstream, where money
// moves and where it doesn't: whether the same caller runs the call again, or one with another
// credential, verified or not, and how long the outcome is kept.
func TestWhoMayRunAfterAnAnswer(t *testing.T) {
	clause.Proves(t, "IDS-V.2", "IDS-IX.1", "IDS-VIII.4")
	yes := []bool{false, true}
	for _, own := range yes {
		for _, money := range yes {
			for _, verified := range yes {
				t.Run(fmt.Sprintf("own %t, financial %t, verified %t", own, money, verified), func(t *testing.T) {
					whoMayRun(t, own, money, verified)
				})
			}
		}
	}
}

func whoMayRun(t *testing.T, own, money, verified bool) {
	e := newEngine(t, nil)
	opts := &semelhttp.Options{}
	if verified {
		opts.Identity = bySubject
	}
	runs := 0
	rt := semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: money, OnExpiry: semel.DeleteExpired}, Forwards: !own}
	rules, window := rt.Rules(money), semel.DefaultWindow
	if money {
		window = semel.DefaultFinancialWindow
	}
	h := newGuard(t, e, opts).Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		status, _ := strconv.Atoi(r.Header.Get("Answer"))
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(status)
	}))
	inspector, err := newGuard(t, e, opts).Inspect(semelhttp.Route{Operation: semel.Operation{Name: "op"}})
	if err != nil {
		t.Fatal(err)
	}
	deliver := func(key, credential string, status int) (code, ran int, id semel.ID) {
		before := runs
		w := call(h, key, "one", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+credential)
			r.Header.Set("Answer", strconv.Itoa(status))
			got, _ := inspector.ID(r, nil)
			id = got.ID
		})
		return w.Code, runs - before, id
	}
	for status := 200; status <= 999; status++ {
		v := rules.Of(judge.Answer{Status: status}).Verdict
		again := v == judge.Aborted || v == judge.Failed && !money
		kept := v == judge.Completed || v == judge.Rejected || v == judge.Failed && money
		for n, second := range []string{"alice.1", "alice.2"} {
			key := fmt.Sprintf("0f8fad5b-d9cb-469f-a165-7086%03d%05d", status, n)
			_, _, id := deliver(key, "alice.1", status)
			if rec, err := e.Lookup(t.Context(), id); err != nil {
				t.Fatal(err)
			} else if kept && rec.ExpiresAt.Sub(rec.EndedAt) != window || v == judge.Unknown && (!rec.Held || rec.ExpiresAt != 0) {
				t.Errorf("%d is kept %v, held %t", status, rec.ExpiresAt.Sub(rec.EndedAt), rec.Held)
			}
			code, ran, _ := deliver(key, second, 200)
			wantRan, want := 0, http.StatusConflict // held, or of another caller
			switch stranger := second == "alice.2" && !verified; {
			case stranger && (v == judge.Aborted || v == judge.Rejected), !stranger && again:
				wantRan, want = 1, 200
			case !stranger && kept:
				want = status
			}
			if ran != wantRan || code != want {
				t.Errorf("%d is %s: %s then got %d after %d runs, want %d after %d", status, v, second, code, ran, want, wantRan)
			}
		}
	}
}

// TestABodyThatSaysThatNothingWasDone: it counts if it is whole, small and JSON, whatever its
// packing.
func TestABodyThatSaysThatNothingWasDone(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	throttled := `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`
	var gz bytes.Buffer
	zw := gzip.NewWriter(&gz)
	if _, err := io.WriteString(zw, throttled); err != nil || zw.Close() != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		runs    int
	}{
		"as it is": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, throttled) }, 2},
		"packed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gz.Bytes())
		}, 2},
		"in parts": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, throttled[:9])
			fmt.Fprint(w, throttled[9:])
		}, 2},
		"with a word about it": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Semel-Effect", "unknown")
			fmt.Fprint(w, throttled)
		}, 1},
		"passed through": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, throttled)
			_ = http.NewResponseController(w).Flush()
		}, 1},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, throttled+strings.Repeat(" ", judge.MaxBody))
		}, 1},
		"something else": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":{}}`) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{
				Operation: semel.Operation{Name: "op"}, Answers: judge.Answers{NotExecuted: []string{"200 json:/errors/0/extensions/code=THROTTLED"}},
			}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				c.handler(w, r)
			}))
			first := call(h, "k1", "one", nil)
			if call(h, "k1", "one", nil); runs != c.runs {
				t.Errorf("it ran %d times, want %d; the first got %d %s", runs, c.runs, first.Code, first.Body)
			}
		})
	}
}

// TestHandlersDontHearCallersSpeakForThem: a handler that repeats the headers of its request
// says nothing about its effect.
func TestHandlersDontHearCallersSpeakForThem(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	runs := 0
	h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		if said, ok := r.Header["Semel-Effect"]; ok {
			w.Header()["Semel-Effect"] = said
		}
	}))
	for range 2 {
		call(h, "k1", "one", func(r *http.Request) { r.Header.Set("Semel-Effect", "none") })
	}
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
}

// TestTimeoutsAroundAHandler: what stands between the guard and the handler answers by itself
// while the work goes on.
func TestTimeoutsAroundAHandler(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	charges, begun, goOn := 0, make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	charge := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-goOn
		charges++
		done <- struct{}{}
	})
	h := newGuard(t, newEngine(t, nil), nil).Handler(semelhttp.Route{Operation: semel.Operation{Name: "op", Financial: true, OnExpiry: semel.DeleteExpired}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			go charge(w, r)
			<-begun
			http.Error(w, "busy", http.StatusServiceUnavailable) // as http.TimeoutHandler does
		}))
	first := call(h, "k1", "one", nil)
	close(goOn)
	<-done
	for range 2 {
		if again := call(h, "k1", "one", nil); again.Code != http.StatusConflict || !strings.Contains(again.Body.String(), `"held"`) {
			t.Errorf("%d, then %d %s", first.Code, again.Code, again.Body)
		}
	}
	if charges != 1 {
		t.Errorf("charged %d times", charges)
	}
}
