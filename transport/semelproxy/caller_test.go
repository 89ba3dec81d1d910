package semelproxy_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/transport/semelhttp"
	"github.com/semelhq/semel/transport/semelproxy"
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

func TestShadowTellsOfOtherCallers(t *testing.T) {
	up := newUpstream(t, nil, run)
	var reports []semelproxy.ShadowReport
	var mu sync.Mutex
	w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) {
		o.Mode = semelproxy.ModeShadow
		o.Shadow.OnReport = func(r semelproxy.ShadowReport) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, r)
		}
	})
	for _, credential := range []string{"1", "2", "1"} {
		w.send("POST", "/orders", unguessable, "one", "Authorization: Bearer "+credential)
	}
	mu.Lock()
	defer mu.Unlock()
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
