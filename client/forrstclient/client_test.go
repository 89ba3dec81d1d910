package forrstclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client/forrstclient"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/safehttp"
	"github.com/semelhq/semel/store/memstore"
)

// network is a service behind a network on which things happen to requests, by their number.
type network struct {
	t       *testing.T
	service http.Handler
	begun   chan struct{} // the function has begun
	end     chan struct{} // lets it end
	running sync.WaitGroup

	mu       sync.Mutex
	happens  []string
	ids      []string
	keys     []string
	runs     int
	arrivals []time.Time
}

// newNetwork makes one with a service whose function ends when a request is to "end" it.
func newNetwork(t *testing.T, opts forrst.Options, happens ...string) *network {
	t.Helper()
	n := &network{t: t, happens: happens, begun: make(chan struct{}, 1), end: make(chan struct{})}
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	opts.Identify = func(*http.Request) (semelhttp.Caller, error) { return semelhttp.Caller{Principal: "shop"}, nil }
	opts.Functions = []forrst.Function{{Name: "payments.charge", Versions: []forrst.Version{{Version: "1.0.0", Run: n.charge}}}}
	if n.service, err = forrst.New(engine, opts); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *network) charge(context.Context, semel.Execution, *forrst.Request) (any, error) {
	n.mu.Lock()
	n.runs++
	n.mu.Unlock()
	n.begun <- struct{}{}
	<-n.end
	return map[string]string{"charge_id": "ch_1"}, nil
}

// errLost is why there is no answer.
var errLost = errors.New("the connection was closed")

// deliver is one request. Without an answer it is lost.
func (n *network) deliver(r *http.Request) (*httptest.ResponseRecorder, error) {
	body, err := io.ReadAll(r.Body)
	var said struct {
		ID         string
		Extensions []struct{ Options struct{ Key string } }
	}
	if err := errors.Join(err, json.Unmarshal(body, &said)); err != nil {
		return nil, err
	}
	n.mu.Lock()
	happens := n.happens[min(len(n.ids), len(n.happens)-1)]
	n.ids, n.arrivals = append(n.ids, said.ID), append(n.arrivals, time.Now())
	for _, x := range said.Extensions {
		n.keys = append(n.keys, x.Options.Key)
	}
	n.mu.Unlock()
	w := httptest.NewRecorder()
	serve := func() {
		in := httptest.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, "/forrst", strings.NewReader(string(body)))
		in.Header = r.Header
		n.service.ServeHTTP(w, in)
	}
	switch happens {
	case "lost": // while it runs
		n.running.Go(serve)
		<-n.begun
		return nil, errLost
	case "end":
		close(n.end)
		n.running.Wait()
	case "gateway":
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>")
		return w, nil
	}
	if said, ok := refusals[happens]; ok {
		if said.effect != "" {
			w.Header().Set("Semel-Effect", said.effect)
		}
		w.WriteHeader(said.status)
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"result":null,"errors":[`+said.error+`],"extensions":[`+said.extension+`]}`)
		return w, nil
	}
	serve()
	return w, nil
}

// refusals are answers that the network gives itself, by what happens.
var refusals = map[string]struct {
	status                   int
	effect, error, extension string
}{
	"limited":     {429, "none", `{"code":"RATE_LIMITED","message":"Too many requests. Nothing was executed","details":{"retry_after":{"value":5,"unit":"minute"}}}`, mayRetry},
	"unavailable": {503, "none", `{"code":"UNAVAILABLE","message":"Nothing was executed for it"}`, mayRetry},
	"unrecorded":  {503, "unknown", `{"code":"UNAVAILABLE","message":"The function was executed, but its outcome could not be recorded yet"}`, mayRetry},
	"unclear":     {503, "", `{"code":"UNAVAILABLE","message":"Try again"}`, mayRetry},
	"cached":      {409, "", `{"code":"CONFLICT","message":"The order is closed"}`, `{"urn":"urn:forrst:ext:idempotency","data":{"status":"cached"}}`},
	"superseded":  {409, "none", `{"code":"CONFLICT","message":"A newer call was executed"}`, ""},
}

const mayRetry = `{"urn":"urn:forrst:ext:retry","data":{"allowed":true}}`

// RoundTrip makes the network a transport.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := n.deliver(r)
	if err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// ServeHTTP makes it a server.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	said, err := n.deliver(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", said.Header().Get("Content-Type"))
	w.WriteHeader(said.Code)
	_, _ = w.Write(said.Body.Bytes())
}

// told wants as many requests, each with an id of its own, all with the key.
func (n *network) told(requests, runs int) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	ids := slices.Compact(slices.Sorted(slices.Values(n.ids)))
	if len(n.ids) != requests || len(ids) != requests || len(n.keys) != requests || n.runs != runs {
		n.t.Errorf("requests %q with the keys %q, %d runs; want %d and %d", n.ids, n.keys, n.runs, requests, runs)
	}
	for _, key := range n.keys {
		if key != charge.Key {
			n.t.Errorf("a request has the key %q", key)
		}
	}
}

var charge = forrstclient.Call{Function: "payments.charge", Version: "1.0.0", Arguments: map[string]int{"amount": 100}, Key: "charge_order456_v1"}

func (n *network) client(tries int) *forrstclient.Client {
	n.t.Helper()
	c, err := forrstclient.New("http://service/forrst", &forrstclient.Options{Transport: n, Tries: tries})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// TestRetries: an answer that is lost, one of a gateway and one while the function runs are each
// followed by another request with the key and a new id, after the pause that the service asks
// for. The function runs once.
func TestRetries(t *testing.T) {
	clause.Proves(t, "FOR-RETRY.1", "FOR-ID.1")
	for name, opts := range map[string]forrst.Options{"as usual": {}, "as published": {PublishedForm: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, opts, "lost", "gateway", "", "end")
				res, err := n.client(0).Call(t.Context(), charge)
				if err != nil {
					t.Fatal(err)
				}
				if string(res.Data) != `{"charge_id":"ch_1"}` || res.Status != "cached" || res.OriginalRequestID != n.ids[0] || res.RequestID != n.ids[3] || res.Tries != 4 {
					t.Errorf("%+v", res)
				}
				n.told(4, 1)
				if pause := n.arrivals[3].Sub(n.arrivals[2]); pause != time.Second {
					t.Errorf("after %v, and the service asks for a second", pause)
				}
				if pause := n.arrivals[2].Sub(n.arrivals[0]); pause >= 300*time.Millisecond {
					t.Errorf("after %v without an answer", pause)
				}
			})
		})
	}
}

// TestWhatIsNotRetried: a conflict and other refusals, what has no key, and what was tried often
// enough.
func TestWhatIsNotRetried(t *testing.T) {
	clause.Proves(t, "FOR-RETRY.1", "FOR-ERR.1")
	for name, c := range map[string]struct {
		change   func(*forrstclient.Call)
		happens  []string
		tries    int
		requests int
		code     string
	}{
		"a conflict":                {func(c *forrstclient.Call) { c.Arguments = map[string]int{"amount": 1} }, []string{"end", ""}, 4, 1, "IDEMPOTENCY_CONFLICT"},
		"a function that isn't one": {func(c *forrstclient.Call) { c.Function = "payments.refund" }, []string{"end", ""}, 4, 1, "FUNCTION_NOT_FOUND"},
		"a call without a key":      {func(c *forrstclient.Call) { c.Key = "" }, []string{"end", "gateway"}, 4, 1, "unknown"},
		"what runs for long":        {func(c *forrstclient.Call) { c.Key += "2" }, []string{"end", "lost", ""}, 3, 3, "IDEMPOTENCY_PROCESSING"},
		"what never gets an answer": {func(c *forrstclient.Call) { c.Key += "2" }, []string{"end", "gateway"}, 3, 3, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, forrst.Options{}, c.happens...)
				client, call := n.client(c.tries), charge
				if _, err := client.Call(t.Context(), call); err != nil { // ends at once
					t.Fatal(err)
				}
				if slices.Contains(c.happens, "lost") {
					n.end = make(chan struct{})
					defer n.running.Wait()
					defer close(n.end)
					<-n.begun
				}
				before := len(n.ids)
				c.change(&call)
				res, err := client.Call(t.Context(), call)
				if res != nil || err == nil || len(n.ids)-before != c.requests {
					t.Fatalf("%d requests, %v, %v", len(n.ids)-before, res, err)
				}
				code := ""
				if e, ok := errors.AsType[*semel.Error](err); ok {
					code = string(e.Code)
				}
				if errs, ok := errors.AsType[forrst.Errors](err); ok {
					code = string(errs[0].Code)
				}
				if code != c.code {
					t.Errorf("the code is %s, want %s: %v", code, c.code, err)
				}
			})
		})
	}
}

// TestARefusalAfterALostTry isn't the outcome, because the lost try may have run the function. One
// from the call's record is.
func TestARefusalAfterALostTry(t *testing.T) {
	for name, c := range map[string]struct {
		happens []string
		runs    int
		code    forrst.Code
		open    bool
	}{
		"an answer is lost, and the pause is long":         {[]string{"lost", "limited"}, 1, forrst.RateLimited, true},
		"an answer is lost, and the tries run out":         {[]string{"lost", "unavailable"}, 1, forrst.Unavailable, true},
		"an answer is lost, and no try would help":         {[]string{"lost", "superseded"}, 1, forrst.Conflict, true},
		"a gateway answers":                                {[]string{"gateway", "limited"}, 0, forrst.RateLimited, true},
		"the outcome wasn't recorded":                      {[]string{"unrecorded", "limited"}, 0, forrst.RateLimited, true},
		"a refusal proves nothing":                         {[]string{"unclear", "limited"}, 0, forrst.RateLimited, true},
		"the record refuses what was lost":                 {[]string{"gateway", "cached"}, 0, forrst.Conflict, false},
		"the record knows what was lost":                   {[]string{"lost", ""}, 1, forrst.IdempotencyProcessing, false},
		"a try is refused with proof that nothing was run": {[]string{"unavailable", "limited"}, 0, forrst.RateLimited, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, forrst.Options{}, c.happens...)
				_, err := n.client(2).Call(t.Context(), charge)
				wantRefusal(t, err, c.code, c.open)
				n.told(2, c.runs)
				close(n.end)
				n.running.Wait()
			})
		})
	}
}

// TestAPlainRefusal is returned as the service said it, if no try before it may have run the
// function.
func TestAPlainRefusal(t *testing.T) {
	t.Run("the first try is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, forrst.Options{}, "limited")
			_, err := n.client(0).Call(t.Context(), charge)
			wantRefusal(t, err, forrst.RateLimited, false)
			n.told(1, 0)
		})
	})
	t.Run("the first try was never sent", func(t *testing.T) {
		n := newNetwork(t, forrst.Options{}, "limited")
		server := httptest.NewServer(n)
		defer server.Close()
		dials := 0
		c, err := forrstclient.New(server.URL, &forrstclient.Options{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials == 1 {
				return nil, errors.New("there is no route")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Call(t.Context(), charge)
		wantRefusal(t, err, forrst.RateLimited, false)
		if n.told(1, 0); dials != 2 {
			t.Errorf("%d connections were tried", dials)
		}
	})
}

// TestNothingWasSent is about all tries, not the last one alone.
func TestNothingWasSent(t *testing.T) {
	for name, c := range map[string]struct {
		dials  func(n int) bool // which connections are made
		happen string
		want   bool
	}{
		"no try finds a connection":   {func(int) bool { return false }, "", true},
		"the first gets no answer":    {func(n int) bool { return n == 1 }, "gateway", false},
		"the first is refused":        {func(n int) bool { return n == 1 }, "unavailable", false},
		"the last one gets no answer": {func(n int) bool { return n == 2 }, "gateway", false},
		"none of them gets an answer": {func(int) bool { return true }, "gateway", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, forrst.Options{}, c.happen)
			server := httptest.NewServer(n)
			defer server.Close()
			dials, noRoute := 0, errors.New("there is no route")
			c2, err := forrstclient.New(server.URL, &forrstclient.Options{Tries: 2, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials++; !c.dials(dials) {
					return nil, noRoute
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}})
			if err != nil {
				t.Fatal(err)
			}
			defer c2.Close()
			_, err = c2.Call(t.Context(), charge)
			if !errors.Is(err, &semel.Error{Code: semel.CodeUnknown}) || safehttp.NothingSent(err) != c.want || errors.Is(err, noRoute) != !c.dials(2) {
				t.Errorf("nothing was sent: %v; %v", safehttp.NothingSent(err), err)
			}
		})
	}
}

// wantRefusal wants the service's errors: as they are, or below one that leaves the outcome open.
func wantRefusal(t *testing.T, err error, code forrst.Code, open bool) {
	t.Helper()
	errs, _ := errors.AsType[forrst.Errors](err)
	_, plain := err.(forrst.Errors)
	if len(errs) != 1 || errs[0].Code != code || plain == open || errors.Is(err, &semel.Error{Code: semel.CodeUnknown}) != open {
		t.Errorf("got %v; want %s, and that the outcome is open: %v", err, code, open)
	}
}

// TestACallerWhoGivesUp isn't kept waiting, and hears that nobody knows the outcome.
func TestACallerWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, forrst.Options{}, "lost", "")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := n.client(100).Call(ctx, charge)
		if errs, ok := errors.AsType[forrst.Errors](err); !ok || errs[0].Code != forrst.IdempotencyProcessing || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		n.told(2, 1)
		close(n.end)
		n.running.Wait()
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, url := range []string{"", "shop", "ftp://shop", "http://"} {
		if _, err := forrstclient.New(url, nil); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	if _, err := forrstclient.New("http://shop", &forrstclient.Options{Tries: -1}); err == nil {
		t.Error("a negative number of tries is accepted")
	}
}
