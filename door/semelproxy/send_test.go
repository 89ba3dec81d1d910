package semelproxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/safehttp"
)

// TestSend: a door that guards requests itself has them forwarded once, by the rules of the
// proxy, and hears of an answer that didn't come.
func TestSend(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.URL.Path == "/broken" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Semel-Effect", "none")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "done")
	})
	s := semelhttptest.New(t, nil)
	proxy := func(upstream string) *semelproxy.Proxy {
		u, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		p, err := semelproxy.New(s.Guard, semelproxy.Options{
			Upstream: u, Mode: semelproxy.ModeOff, Route: semelhttp.Route{Operation: semel.Operation{Name: "op"}},
			EffectHeader: "X-Effect", StripHeaders: []string{"X-Own"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	request := func(path string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("body"))
		for name, value := range map[string]string{"X-Own": "forged", "X-Effect": "forged", "X-Forwarded-For": "1.2.3.4", "Upgrade": "h2c", "X-Kept": "yes", "Idempotency-Key": "k"} {
			r.Header.Set(name, value)
		}
		return r
	}
	p := proxy(up.URL)
	w := httptest.NewRecorder()
	if err := p.Send(w, request("/"), "effect-1"); err != nil || w.Code != http.StatusAccepted || w.Body.String() != "done" {
		t.Errorf("%v: %d %s", err, w.Code, w.Body)
	}
	got := up.requests()[0]
	if h := got.Header; got.body != "body" || h.Get("X-Effect") != "effect-1" || h.Get("X-Own") != "" || h.Get("X-Kept") != "yes" || strings.Contains(h.Get("X-Forwarded-For"), "1.2.3.4") {
		t.Errorf("the upstream got %q and %v", got.body, h)
	}

	w = httptest.NewRecorder()
	p.Pass(w, request("/"))
	if got := up.requests()[1]; w.Code != http.StatusAccepted || w.Header().Get("Semel-Effect") != "" || w.Header().Get(semelhttp.UnguardedHeader) != "" || got.Header.Get("X-Effect") != "" {
		t.Errorf("passed: %d %v, %v", w.Code, w.Header(), got.Header)
	}

	if err := p.Send(httptest.NewRecorder(), request("/broken"), ""); err == nil || safehttp.NothingSent(err) {
		t.Errorf("an answer that broke off: %v", err)
	}
	if n := up.count(); n != 3 {
		t.Errorf("%d requests", n)
	}
	if err := proxy("http://127.0.0.1:1").Send(httptest.NewRecorder(), request("/"), ""); !safehttp.NothingSent(err) {
		t.Errorf("nobody listens there: %v", err)
	}
	p.Interrupt()
	if err := p.Send(httptest.NewRecorder(), request("/"), ""); err == nil {
		t.Error("it was sent after the interruption")
	}
}
