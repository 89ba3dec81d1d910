package semelproxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
)

const unguessable = "0f8fad5b-d9cb-469f-a165-70867728950e"

// TestARenewedCredentialReachesTheUpstreamOnce: access tokens live for minutes, and
// retries come after them.
func TestARenewedCredentialReachesTheUpstreamOnce(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, nil)
	w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer jwt-10:00").want(t, 201, "run 1")
	again := w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer jwt-10:15")
	again.want(t, 409, `"code":"other_caller"`)
	if again.Header.Get("Link") == "" || again.Header.Get("Idempotency-Replayed") != "" {
		t.Error(again.Header)
	}
	w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer jwt-10:00").want(t, 201, "run 1")
	if n := up.count(); n != 1 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// TestNobodyKeepsAKeyFromItsOwner: while nothing has happened under a key, whoever comes
// with a credential that the upstream accepts gets the call executed, once. That is so
// for a stranger's made-up credential, and for one's own that has expired meanwhile.
func TestNobodyKeepsAKeyFromItsOwner(t *testing.T) {
	t.Parallel()
	const owner, stranger = "Authorization: Bearer owner", "Authorization: Bearer made-up"
	answering := func(status int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, refuse := range map[string]func(w http.ResponseWriter, r *http.Request){
		"refused with 401": answering(401), "refused with 403": answering(403), "refused with 400": answering(400), "refused with 422": answering(422),
	} {
		for _, key := range []string{
			unguessable, "invoice-2026-11-23-000042", "order-1002-attempt-1-2026", "checkout:customer-1234:2026-11",
			"00000000-0000-0000-0000-000000000001", "urn:order:2026:11:23:00017", "payment:1002:4999:EUR:2026-11-23T12:00:00Z",
		} {
			t.Run(name+", "+key, func(t *testing.T) {
				effects := 0
				up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
					if "Authorization: "+r.Header.Get("Authorization") != owner {
						refuse(w, r)
						return
					}
					effects++
					w.WriteHeader(201)
					_, _ = io.WriteString(w, "paid")
				})
				w := newWorld(t, up.URL, nil)
				for range 20 {
					w.send("POST", "/orders", key, "a guess", stranger)
				}
				w.send("POST", "/orders", key, "one", owner).want(t, 201, "paid")
				if again := w.send("POST", "/orders", key, "a guess", stranger); again.StatusCode < 400 || strings.Contains(again.body, "paid") {
					t.Errorf("the stranger then got %d %s", again.StatusCode, again.body)
				}
				w.send("POST", "/orders", key, "one", owner).want(t, 201, "paid")
				if effects != 1 {
					t.Errorf("executed %d times", effects)
				}
			})
		}
	}
	t.Run("not reached", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close() // nobody listens there now
		w := newWorld(t, "http://"+addr, nil)
		w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer expires").want(t, 502, "upstream_unreachable")
		newUpstream(t, func(s *httptest.Server) {
			_ = s.Listener.Close()
			if s.Listener, err = net.Listen("tcp", addr); err != nil {
				t.Fatal(err)
			}
			s.Start()
		}, run)
		w.send("POST", "/orders", unguessable, "one", owner).want(t, 201, "run 1")
	})
	t.Run("while the refusal takes its time", func(t *testing.T) {
		arrived, goOn := make(chan struct{}), make(chan struct{})
		up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				close(arrived)
				<-goOn
				w.WriteHeader(401)
				return
			}
			run(w, r, n)
		})
		w := newWorld(t, up.URL, nil)
		refused := make(chan int)
		go func() { refused <- w.send("POST", "/orders", unguessable, "a guess", stranger).StatusCode }()
		<-arrived
		busy := w.send("POST", "/orders", unguessable, "one", owner)
		if busy.want(t, 409, `"code":"in_flight"`); busy.Header.Get("Retry-After") == "" {
			t.Error(busy.Header)
		}
		waiting := make(chan reply)
		go func() { waiting <- w.send("POST", "/orders", unguessable, "one", owner, "Prefer: wait=30") }()
		close(goOn)
		if status := <-refused; status != 401 {
			t.Errorf("the stranger got %d", status)
		}
		(<-waiting).want(t, 201, "run 2")
	})
	t.Run("where another customer executes first", func(t *testing.T) {
		up := newUpstream(t, nil, run)
		w := newWorld(t, up.URL, nil)
		w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer another").want(t, 201, "run 1")
		w.send("POST", "/orders", unguessable, "one", owner).want(t, 409, `"code":"other_caller"`)
		w.send("POST", "/orders", unguessable, "one", owner, "Prefer: wait=5").want(t, 409, `"code":"other_caller"`)
		if up.count() != 1 {
			t.Error("it was executed twice")
		}
	})
	t.Run("for a thousand keys", func(t *testing.T) {
		up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
			if r.Header.Get("Authorization") != "Bearer owner" {
				w.WriteHeader(401)
				return
			}
			w.WriteHeader(201)
		})
		w := newWorld(t, up.URL, nil)
		for n := range 1000 {
			w.send("POST", "/orders", fmt.Sprintf("invoice-2026-11-23-%06d", n), "x", stranger).want(t, 401, "")
		}
		for n := range 1000 {
			w.send("POST", "/orders", fmt.Sprintf("invoice-2026-11-23-%06d", n), "x", owner).want(t, 201, "")
		}
	})
}

// TestNobodyGetsTheAnswerOfAnother, whatever tells the two apart.
func TestNobodyGetsTheAnswerOfAnother(t *testing.T) {
	for _, c := range []struct {
		first, second string
		want          int // with a key that can't be guessed
	}{
		{"X-Api-Key: victim", "X-Api-Key: attacker", 409},
		{"Cookie: session=victim", "Cookie: session=attacker", 409},
		{"X-Api-Key: victim", "X-Kept: no credential", 409},
		{"X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 203.0.113.2", 401},
	} {
		t.Run(c.second, func(t *testing.T) {
			up := newUpstream(t, nil, run)
			w := newWorld(t, up.URL, nil)
			first := w.send("POST", "/orders", unguessable, "one", c.first)
			w.send("POST", "/orders", unguessable, "one", c.second).want(t, c.want, "")
			if first.StatusCode == 401 {
				if up.count() != 0 {
					t.Error("a caller that is nobody reached the upstream")
				}
				return
			}
			first.want(t, 201, "run 1")
			// One that can be guessed is a call of each.
			w.send("POST", "/orders", "order-1", "one", c.first).want(t, 201, "run 2")
			w.send("POST", "/orders", "order-1", "one", c.second).want(t, 201, "run 3")
			w.send("POST", "/orders", "order-1", "one", c.first).want(t, 201, "run 2")
		})
	}
}

func TestHostsThatAreKeptHaveKeysOfTheirOwn(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, n int) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, r.Host)
	})
	for preserve, want := range map[semelproxy.HostRule]string{semelproxy.HostAlways: "shop-b", semelproxy.HostNever: strings.TrimPrefix(up.URL, "http://")} {
		w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { o.PreserveHost = preserve })
		send := func(host string) reply {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/orders", strings.NewReader("one"))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			r.Header.Set("Idempotency-Key", "order-1")
			r.Header.Set("Authorization", "Bearer one")
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return reply{resp, string(body), err}
		}
		send("shop-a").want(t, 201, "")
		again := send("shop-b")
		again.want(t, 201, want)
		if replayed := again.Header.Get("Idempotency-Replayed") == "true"; replayed == (preserve == semelproxy.HostAlways) {
			t.Errorf("preserve_host %v: replayed %v", preserve, replayed)
		}
		if again := send("Shop-B"); again.Header.Get("Idempotency-Replayed") != "true" {
			t.Error("a host in other letters is the same")
		}
	}
}

// TestShadowTellsWhatIsFree: what the upstream refused would be another caller's to begin.
func TestShadowTellsWhatIsFree(t *testing.T) {
	up := newUpstream(t, nil, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(422) })
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Mode = semelproxy.ModeShadow
	})
	for _, credential := range []string{"1", "1", "2"} {
		w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer "+credential)
	}
	var verdicts []semelproxy.Verdict
	for _, r := range w.reported() {
		verdicts = append(verdicts, r.Verdict)
	}
	if want := []semelproxy.Verdict{semelproxy.WouldExecute, semelproxy.WouldReplay, semelproxy.WouldExecute}; !slices.Equal(verdicts, want) {
		t.Errorf("told of %v", verdicts)
	}
}

func TestShadowTellsOfOtherCallers(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Mode = semelproxy.ModeShadow
	})
	for _, credential := range []string{"1", "2", "1"} {
		w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer "+credential)
	}
	reports := w.reported()
	for i, want := range []semelproxy.Verdict{semelproxy.WouldExecute, semelproxy.WouldOther, semelproxy.WouldReplay} {
		if reports[i].Verdict != want {
			t.Errorf("%d: %s", i, reports[i].Verdict)
		}
	}
	if n := w.proxy.ShadowCounts().OtherCaller; n != 1 {
		t.Errorf("%d counted", n)
	}
}

// TestConnectionMayNotNameWhatTellsCallersApart, or a proxy on the way would drop it.
func TestConnectionMayNotNameWhatTellsCallersApart(t *testing.T) {
	up := newUpstream(t, nil, run)
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Route.Profile, o.Route.Key = semelhttp.Stripe(), semelhttp.KeyRequired
	})
	for _, name := range []string{"X-Api-Key", "Stripe-Account", "Plaid-Secret"} {
		w.send("POST", "/orders", "k1", "one", "Connection: "+name).want(t, 400, name)
	}
}
