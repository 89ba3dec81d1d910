package forrst_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
)

// upstream is a Forrst server without the idempotency extension.
type upstream struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

// newUpstream answers with what a test says, in which ID stands for the request's id.
func newUpstream(t *testing.T, answer func(w http.ResponseWriter, n int) string) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.requests, u.bodies = append(u.requests, r), append(u.bodies, string(body))
		n := len(u.bodies)
		u.mu.Unlock()
		var req struct{ ID string }
		_ = json.Unmarshal(body, &req)
		text := answer(w, n)
		fmt.Fprint(w, strings.Replace(text, "ID", req.ID, 1))
	}))
	t.Cleanup(u.Close)
	return u
}

// before is a service in front of an upstream.
func before(t *testing.T, op semel.Operation, opts forrst.UpstreamOptions) *world {
	t.Helper()
	up, err := forrst.NewUpstream(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return serving(t, op, up.Run)
}

const charged = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"ID","result":{"charge_id":"ch_1"},"extensions":[{"urn":"urn:forrst:ext:tracing","data":{"span_id":"s"}},{"urn":"urn:forrst:ext:idempotency","data":{"status":"unheard"}}],"meta":{"node":"up-1"}}`

func refusal(code string) string {
	return `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"ID","result":null,"errors":[{"code":"` + code + `","message":"Told","details":{"sku":"A"}}]}`
}

// TestUpstream: it gets each call once, without the extension.
func TestUpstream(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1")
	u := newUpstream(t, func(http.ResponseWriter, int) string { return charged })
	w := before(t, semel.Operation{Effects: []string{}}, forrst.UpstreamOptions{URL: u.URL + "/rpc", EffectHeader: "X-Call-Key"})
	request := strings.Replace(call("req_1", `{"amount":1.10}`, `{"key":"k"}`), `"extensions":[`, `"context":{"caller":"shop"},"extensions":[{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"t"}},`, 1)
	first := w.post(request, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("X-Forrst-Caller", "shop")
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set("Cookie", "a=b")
	})
	first.want(t, 200, "", "processed")
	if string(first.Result) != `{"charge_id":"ch_1"}` || first.data("tracing")["span_id"] != "s" || strings.Contains(first.body, "up-1") || strings.Contains(first.body, "unheard") {
		t.Error(first.body)
	}
	second := w.post(strings.Replace(request, "req_1", "req_2", 1))
	second.want(t, 200, "", "cached")
	if string(second.Result) != `{"charge_id":"ch_1"}` || len(second.Extensions) != 1 {
		t.Error(second.body)
	}
	const got = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","call":{"function":"payments.charge","version":"1.0.0","arguments":{"amount":1.10}},` +
		`"context":{"caller":"shop"},"extensions":[{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"t"}}]}`
	if len(u.bodies) != 1 || u.bodies[0] != got {
		t.Errorf("the upstream got %q", u.bodies)
	}
	h := u.requests[0].Header
	if h.Get("Authorization") != "Bearer x" || h.Get("X-Forrst-Caller") != "shop" || h.Get("Idempotency-Key") != "" || h.Get("Cookie") != "" || len(h.Get("X-Call-Key")) != 43 {
		t.Errorf("with %v", h)
	}
}

// TestTheKeyReachesTheUpstream in the header that the option names, whatever the sender has there,
// the same at each attempt. Context, traces and other extensions do as they came.
func TestTheKeyReachesTheUpstream(t *testing.T) {
	clause.Proves(t, "FOR-CTX.1")
	u := newUpstream(t, func(w http.ResponseWriter, n int) string {
		if n == 1 {
			w.WriteHeader(500)
			return refusal("INTERNAL_ERROR")
		}
		return charged
	})
	up, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: u.URL, PassKey: "idempotency-key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	f := charging(semel.Operation{OnFailure: semel.RetryFailure}, up.Run)
	f.Key = semelhttp.KeyOptional
	w := newWorld(t, forrst.Options{Functions: []forrst.Function{f}})
	const before = `"context":{"caller":"shop","n":1.0,"text":"<é>"}`
	const extensions = `{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"t","n":1e2}},{"urn":"urn:acme:ext:audit"}`
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	request := strings.Replace(call("req_1", "{}", `{"key":"order_cust42_1702500000"}`), `"extensions":[`, before+`,"extensions":[`+extensions+`,`, 1)
	header := func(r *http.Request) {
		r.Header.Set("Idempotency-Key", "mine")
		r.Header.Set("Traceparent", trace)
		r.Header.Set("Tracestate", "a=b")
	}
	w.post(request, header).want(t, 500, forrst.InternalError, "")
	w.post(strings.Replace(request, "req_1", "req_2", 1), header).want(t, 200, "", "processed")
	bare := call("req_3", "{}", "")
	w.post(bare[:strings.Index(bare, `,"extensions"`)]+"}", header).want(t, 200, "", "")
	if len(u.bodies) != 3 {
		t.Fatalf("the upstream got %q", u.bodies)
	}
	for i, key := range []string{"order_cust42_1702500000", "order_cust42_1702500000", ""} {
		if h := u.requests[i].Header; h.Get("Idempotency-Key") != key || len(h["Idempotency-Key"]) != min(1, len(key)) || h.Get("Traceparent") != trace || h.Get("Tracestate") != "a=b" {
			t.Errorf("%d: the upstream got %v", i, h)
		}
		if want := before + `,"extensions":[` + extensions + `]}`; key != "" && !strings.HasSuffix(u.bodies[i], want) {
			t.Errorf("%d: the upstream got %s, want %s at its end", i, u.bodies[i], want)
		}
	}
}

func TestWhatUpstreamsSay(t *testing.T) {
	clause.Proves(t, "FOR-FAIL.1", "FOR-DUP.1", "IDS-V.2")
	for name, c := range map[string]struct {
		status int
		answer string
		first  string
		second string
		sent   int
	}{
		"a refusal":                     {422, refusal("SHOP_SOLD_OUT"), "422 SHOP_SOLD_OUT", "422 SHOP_SOLD_OUT", 1},
		"a refusal with status 200":     {200, refusal("NOT_FOUND"), "404 NOT_FOUND", "404 NOT_FOUND", 1},
		"a failure":                     {500, refusal("INTERNAL_ERROR"), "500 INTERNAL_ERROR", "500 INTERNAL_ERROR", 1},
		"a timeout":                     {408, refusal("DEADLINE_EXCEEDED"), "408 DEADLINE_EXCEEDED", "409 IDEMPOTENCY_PROCESSING", 1},
		"that a dependency failed":      {502, refusal("DEPENDENCY_ERROR"), "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"that it is down for repair":    {503, refusal("SERVER_MAINTENANCE"), "503 SERVER_MAINTENANCE", "409 IDEMPOTENCY_PROCESSING", 1},
		"that the token is bad":         {401, refusal("UNAUTHORIZED"), "401 UNAUTHORIZED", "401 UNAUTHORIZED", 2},
		"errors of null":                {200, strings.Replace(charged, `"result"`, `"errors":null,"result"`, 1), "200 ", "200 ", 1},
		"a page of a proxy in front":    {503, "<html>", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"a failure of somebody else":    {500, "<html>", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"a proxy that is told to wait":  {503, "later", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"that nothing was done":         {504, "none", "502 DEPENDENCY_ERROR", "502 DEPENDENCY_ERROR", 2},
		"a result that may be partial":  {200, "unknown", "409 IDEMPOTENCY_PROCESSING", "409 IDEMPOTENCY_PROCESSING", 1},
		"that there is no such page":    {404, "<html>", "502 DEPENDENCY_ERROR", "502 DEPENDENCY_ERROR", 2},
		"a firewall in front":           {403, "<html>", "403 FORBIDDEN", "403 FORBIDDEN", 1},
		"a gateway without an answer":   {504, "<html>", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"something else with 200":       {200, "{}", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"the answer of another request": {200, strings.Replace(charged, "ID", "req_0", 1), "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"errors that are none":          {200, `{"protocol":{},"id":"ID","errors":[]}`, "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
		"half an answer":                {200, "half", "502 DEPENDENCY_ERROR", "409 IDEMPOTENCY_PROCESSING", 1},
	} {
		for _, op := range []semel.Operation{{}, {Effects: []string{}}} {
			t.Run(fmt.Sprintf("%s, ledger %t", name, op.Effects != nil), func(t *testing.T) {
				u := newUpstream(t, func(w http.ResponseWriter, _ int) string {
					answer := c.answer
					switch answer {
					case "half":
						w.Header().Set("Content-Length", "1000")
					case "later":
						w.Header().Set("Retry-After", "1")
					case "none", "unknown":
						w.Header().Set("Semel-Effect", answer)
						answer = charged
						if c.status == 504 {
							answer = "<html>"
						}
					}
					w.WriteHeader(c.status)
					return answer
				})
				w := before(t, op, forrst.UpstreamOptions{URL: u.URL})
				first, second := w.post(call("req_1", "{}", `{"key":"k"}`)), w.post(call("req_2", "{}", `{"key":"k"}`))
				if got := fmt.Sprint(first.status, " ", first.code()); got != c.first {
					t.Errorf("first %s: %s", got, first.body)
				}
				if got := fmt.Sprint(second.status, " ", second.code()); got != c.second {
					t.Errorf("second %s: %s", got, second.body)
				}
				if len(u.bodies) != c.sent {
					t.Errorf("sent %d times", len(u.bodies))
				}
				if strings.HasPrefix(name, "a refusal") && second.Errors[0].Details["sku"] != "A" {
					t.Error(second.body)
				}
			})
		}
	}
}

// TestWhenUpstreamsWantARetry: their word counts, and not what Forrst says of the code. By
// it they ask for the same request again, so that nothing was done.
func TestWhenUpstreamsWantARetry(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ int) string {
		w.WriteHeader(http.StatusServiceUnavailable)
		return strings.Replace(refusal("UNAVAILABLE"), `"result"`, `"extensions":[{"urn":"urn:forrst:ext:retry","data":{"allowed":true,"strategy":"fixed"}}],"result"`, 1)
	})
	s := before(t, semel.Operation{}, forrst.UpstreamOptions{URL: u.URL}).post(call("req_1", "{}", `{"key":"k"}`))
	s.want(t, 503, forrst.Unavailable, "processing") // whoever passed it on says the same
	if s.data("retry") != nil {
		t.Error(s.body)
	}
	for _, by := range []string{"503", "503 json:/errors/0/code=UNAVAILABLE"} {
		opts := forrst.UpstreamOptions{URL: u.URL, Answers: judge.Answers{NotExecuted: []string{by}}}
		s := before(t, semel.Operation{Financial: true}, opts).post(call("req_1", "{}", `{"key":"k"}`))
		s.want(t, 503, forrst.Unavailable, "")
		if strings.Count(s.body, "ext:retry") != 1 || s.data("retry")["strategy"] != "fixed" {
			t.Errorf("%s: %s", by, s.body)
		}
	}
}

// TestNoUpstream: where nothing was sent, the next delivery is.
func TestNoUpstream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	for _, op := range []semel.Operation{{}, {Effects: []string{}}} {
		w := before(t, op, forrst.UpstreamOptions{URL: "http://" + address})
		for range 2 {
			s := w.post(call("req_1", "{}", `{"key":"k"}`))
			s.want(t, 502, forrst.DependencyError, "")
			if s.data("retry")["allowed"] != true || strings.Contains(s.body, address) {
				t.Error(s.body)
			}
		}
	}
}

// TestInterrupted: a call that is given up is not made again.
func TestInterrupted(t *testing.T) {
	arrived := make(chan struct{})
	interrupted := make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter, int) string {
		close(arrived)
		<-interrupted
		return charged
	})
	up, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: u.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := serving(t, semel.Operation{}, up.Run)
	go func() {
		<-arrived
		up.Interrupt()
	}()
	first := w.post(call("req_1", "{}", `{"key":"k"}`))
	close(interrupted)
	first.want(t, 502, forrst.DependencyError, "processing")
	w.post(call("req_2", "{}", `{"key":"k"}`)).want(t, 409, forrst.IdempotencyProcessing, "processing")
	for _, url := range []string{"", "shop", "ftp://shop", "http://"} {
		if _, err := forrst.NewUpstream(forrst.UpstreamOptions{URL: url}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
}
