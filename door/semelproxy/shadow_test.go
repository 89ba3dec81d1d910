package semelproxy_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"net/http"

	"github.com/semelhq/semel/door/semelproxy"
)

func TestShadow(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{}) // of the first; the second is answered at once
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		switch r.URL.Path {
		case "/slow":
			if r.Header.Get("X-Wait") != "" {
				arrived <- struct{}{}
				<-release
			}
		case "/500":
			w.WriteHeader(500)
			return
		}
		run(w, r, n)
	})
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Mode = semelproxy.ModeShadow
		o.Shadow.MaxBody, o.Shadow.MaxCalls = 1<<10, 5
	})
	// last sends a request, which is always passed, and is what was reported.
	last := func(method, path, key, body string, headers ...string) report {
		t.Helper()
		before := up.count()
		w.send(method, path, key, body, headers...)
		if up.count() != before+1 {
			t.Fatalf("the upstream did not get %s %s", method, path)
		}
		reports := w.reported()
		if len(reports) == 0 {
			return report{}
		}
		return reports[len(reports)-1]
	}
	want := func(r report, v semelproxy.Verdict, status int64) {
		t.Helper()
		if r.Verdict != v || r.Status != status {
			t.Errorf("reported %+v, want %s with status %d", r, v, status)
		}
	}
	want(last("POST", "/charges", "k1", `{"a":1,"b":2}`, "Content-Type: application/json"), semelproxy.WouldExecute, 201)
	want(last("POST", "/charges", "k1", `{"b":2, "a":1}`, "Content-Type: application/json"), semelproxy.WouldReplay, 201)
	want(last("POST", "/charges", "k1", `{"a":2}`, "Content-Type: application/json"), semelproxy.WouldConflict, 201)
	want(last("POST", "/other", "k1", `{"a":1,"b":2}`, "Content-Type: application/json"), semelproxy.WouldConflict, 201)
	want(last("POST", "/charges", "k1", `{"a":1,"b":2}`, "Content-Type: application/json", "Authorization: Bearer other"), semelproxy.WouldExecute, 201)
	want(last("POST", "/500", "k2", "one"), semelproxy.WouldExecute, 500)
	want(last("POST", "/500", "k2", "one"), semelproxy.WouldExecute, 500)
	if r := last("POST", "/charges", "", "one"); r.Verdict != semelproxy.WouldRefuse || r.Code != "key_missing" || r.Call != "" {
		t.Errorf("reported %+v", r)
	}
	if r := last("POST", "/charges", "ä", "one", "Connection: Idempotency-Key"); r.Verdict != semelproxy.WouldRefuse || r.Code != "key_invalid" {
		t.Errorf("reported %+v", r)
	}
	if r := last("GET", "/charges", "k1", ""); r.Verdict != "" {
		t.Errorf("a request that is not guarded was reported: %+v", r)
	}
	if r := last("POST", "/charges", "k9", "one", "Connection: Upgrade", "Upgrade: echo"); r.Verdict != "" {
		t.Errorf("a request for another protocol was reported: %+v", r)
	}
	want(last("POST", "/charges", "k3", strings.Repeat("x", 1025)), semelproxy.WouldExecute, 201)
	want(last("POST", "/charges", "k3", strings.Repeat("x", 1025)), semelproxy.NotCompared, 201)

	t.Run("a duplicate in flight", func(t *testing.T) {
		var wg sync.WaitGroup
		wg.Go(func() { w.send("POST", "/slow", "k4", "one", "X-Wait: yes") })
		<-arrived
		want(last("POST", "/slow", "k4", "one"), semelproxy.WouldWait, 201)
		close(release)
		wg.Wait()
		if reports := w.reported(); len(reports) != 1 || reports[0].Verdict != semelproxy.WouldExecute {
			t.Errorf("reported %+v", reports)
		}
	})
	t.Run("the oldest calls are forgotten", func(t *testing.T) {
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			want(last("POST", "/charges", k, "one"), semelproxy.WouldExecute, 201)
		}
		want(last("POST", "/charges", "e", "one"), semelproxy.WouldReplay, 201)
		want(last("POST", "/charges", "k1", `{"a":1,"b":2}`, "Content-Type: application/json"), semelproxy.WouldExecute, 201)
	})
	got, err := json.Marshal(w.proxy.ShadowCounts())
	if err != nil {
		t.Fatal(err)
	}
	c := w.proxy.ShadowCounts()
	if c.Execute != 12 || c.Conflict != 2 || c.Refuse != 2 || c.Unknown != 1 || c.Replay != 2 || c.InFlight != 1 {
		t.Errorf("counts %s", got)
	}
	if n := w.store.applied(); n != 0 {
		t.Errorf("the store was written to %d times", n)
	}
}

func TestOff(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.Mode = semelproxy.ModeOff })
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 1")
	w.send("POST", "/charges", "k1", "one").want(t, 201, "run 2")
	w.send("POST", "/charges", "", "one", "Accept: text/event-stream").want(t, 201, "run 3")
	if n := w.store.applied(); n != 0 {
		t.Errorf("the store was written to %d times", n)
	}
}
