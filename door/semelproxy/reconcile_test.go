package semelproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func TestReconcile(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	for _, c := range []struct {
		name, answer string
		effects      bool
		status       int
		text         string
		runs         int64
	}{
		{"completed with an answer", `{"outcome":"completed","status":201,"headers":{"Location":["/charges/9"],"Set-Cookie":["a=b"]},"body":"cGFpZA=="}`, false, 201, "paid", 1},
		{"completed, in the ledger", `{"outcome":"completed","body":"cGFpZA=="}`, true, 200, "paid", 1},
		{"rejected", `{"outcome":"rejected","message":"no money"}`, true, 422, "", 1},
		{"failed, so that the next delivery runs", `{"outcome":"failed","status":503}`, true, 502, "unknown", 2},
		{"aborted, so that the next delivery runs", `{"outcome":"aborted"}`, true, 502, "unknown", 2},
		{"aborted without a ledger", `{"outcome":"aborted"}`, false, 502, "unknown", 2},
		{"unknown", `{"outcome":"unknown"}`, true, 409, "held", 1},
		{"not JSON", `<html>`, true, 409, "held", 1},
		{"an outcome that does not exist", `{"outcome":"abandoned"}`, true, 409, "held", 1},
		{"a status that is none", `{"outcome":"completed","status":42}`, true, 409, "held", 1},
		{"one member twice", `{"outcome":"unknown","outcome":"aborted"}`, true, 409, "held", 1},
		{"one member in two spellings", `{"outcome":"unknown","Outcome":"aborted"}`, true, 409, "held", 1},
		{"404", ``, true, 409, "held", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked url.Values
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked = r.URL.Query()
				if c.answer == "" {
					http.NotFound(w, r)
					return
				}
				_, _ = io.WriteString(w, c.answer)
			}))
			defer provider.Close()
			target, err := url.Parse(provider.URL + "/state?v=1")
			if err != nil {
				t.Fatal(err)
			}
			up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) { readAll(in) })
			reconcile := semelproxy.ReconcileHTTP(target, nil)
			w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) {
				o.Route.Operation.Reconcile = reconcile
				if c.effects {
					o.EffectHeader = "X-Effect-Key"
				}
				o.Route.Operation.OnFailure = semel.RetryFailure
			})
			w.send("POST", "/charges", "k1", "one").want(t, 502, "unknown")
			id := semel.ID{Operation: "payments.charge", Key: "k1"}
			rec, err := w.engine.Lookup(t.Context(), id)
			if err != nil || !rec.Held {
				t.Fatalf("got %+v, %v; want a held record", rec, err)
			}
			settlement, err := reconcile(t.Context(), rec)
			if settlement.Outcome == 0 && err == nil && !strings.HasPrefix(c.answer, `{"outcome":"unknown"`) {
				t.Error("nothing was found and there is no error")
			}
			if err != nil && strings.Contains(err.Error(), "k1") {
				t.Errorf("the error has the key: %v", err)
			}
			mu.Lock()
			if asked.Get("operation") != "payments.charge" || asked.Get("key") != "k1" || asked.Get("v") != "1" || asked.Get("attempt") != "1" ||
				asked.Get("started_at") == "" || asked.Has("effect_key") != c.effects {
				t.Errorf("asked %v", asked)
			}
			mu.Unlock()
			if settlement.Outcome != 0 {
				if _, err := w.engine.Settle(t.Context(), id, settlement, "asked the upstream"); err != nil {
					t.Fatal(err)
				}
			}
			a := w.send("POST", "/charges", "k1", "one")
			a.want(t, c.status, c.text)
			if a.Header.Get("Set-Cookie") != "" || up.conns.Load() != c.runs {
				t.Errorf("headers %v, %d upstream hits", a.Header, up.conns.Load())
			}
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		u, err := url.Parse("http://127.0.0.1:1/state")
		if err != nil {
			t.Fatal(err)
		}
		_, err = semelproxy.ReconcileHTTP(u, nil)(t.Context(), semel.Record{ID: semel.ID{Operation: "op", Key: "secret"}})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	})
}

// An effect that somebody has confirmed without saying what the answer was.
func TestAConfirmedEffectIsNotCalledAgain(t *testing.T) {
	up := newBrokenUpstream(t, func(_ net.Conn, in *bufio.Reader) { readAll(in) })
	w := newWorld(t, up.url(), func(_ *world, o *semelproxy.Options) { o.EffectHeader = "X-Effect-Key" })
	w.send("POST", "/charges", "k1", "one").want(t, 502, "unknown")
	_, err := w.engine.Settle(t.Context(), semel.ID{Operation: "payments.charge", Key: "k1"}, semel.Settlement{
		Effects: []store.EffectFinding{{Name: semelproxy.UpstreamEffect, State: store.EffectConfirmed}},
	}, "it is in the books")
	if err != nil && !errors.Is(err, semel.ErrHeld) {
		t.Fatal(err)
	}
	w.send("POST", "/charges", "k1", "one").want(t, 409, "held")
	w.send("POST", "/charges", "k1", "one").want(t, 409, "held")
	if n := up.conns.Load(); n != 1 {
		t.Errorf("%d upstream hits", n)
	}
}

func TestRefusalsHaveTheFormOfTheProfile(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Route.Profile = semelhttp.Stripe() })
	w.send("POST", "/charges", "k1", "one", "Connection: upgrade", "Upgrade: websocket").want(t, 501, `"error":{"type":"api_error","code":"not_guardable"`)
	// Stripe's keys are optional.
	w.send("POST", "/charges", "", "one").want(t, 201, "run 1")
}

// Where a question is sent on to, somebody else would say what became of the call.
func TestReconcileAsksNobodyElse(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with Referer %q", r.Header.Get("Referer"))
		_, _ = io.WriteString(w, `{"outcome":"completed","body":"Zm9yZ2Vk"}`)
	}))
	defer elsewhere.Close()
	asked := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/state", http.StatusFound))
	defer asked.Close()
	target, err := url.Parse(asked.URL + "/state?token=secret")
	if err != nil {
		t.Fatal(err)
	}
	held := semel.Record{ID: semel.ID{Operation: "payments.charge", Key: "k1"}}
	if s, err := semelproxy.ReconcileHTTP(target, nil)(t.Context(), held); s.Outcome != 0 || err == nil {
		t.Error("settled by another:", s, err)
	}
}
