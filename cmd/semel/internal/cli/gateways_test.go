package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/gatewaytest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// bank is an upstream that keeps no keys. It charges before it answers.
type bank struct{ charges stage.Counts } // by key

const owner = "Bearer owner"

func newBank(t *testing.T) (b *bank, url string) {
	b = new(bank)
	mux := http.NewServeMux()
	// A charge that takes longer than anybody waits.
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		b.charge(r)
		<-r.Context().Done()
	})
	// A charge that was made, and a page that tells too much of how.
	mux.HandleFunc("POST /leaky", func(w http.ResponseWriter, r *http.Request) {
		b.charge(r)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<html><body>Thank you. Warning: pg_query(): Query failed: ERROR: relation audit does not exist. PostgreSQL query failed: ERROR</body></html>")
	})
	// Who isn't the owner gets a status, and nothing is done.
	mux.HandleFunc("POST /owner/{status}", func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.PathValue("status"))
		if err != nil {
			t.Error(err)
		}
		if r.Header.Get("Authorization") == owner {
			b.charge(r)
			status = http.StatusCreated
		}
		w.Header().Set("Location", "/sign-in")
		w.WriteHeader(status)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return b, s.URL
}

func (b *bank) charge(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // so that the server notices who hangs up
	b.charges.Add(r.Header.Get("Idempotency-Key"), "charge")
}

// pay posts under a key and a credential, and returns the status and the code of a
// refusal.
func pay(t *testing.T, url, key, credential string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"amount":12}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Idempotency-Key": key, "Authorization": credential, "Content-Type": "application/json", "User-Agent": "shop/1", "Accept": "*/*"} {
		r.Header.Set(name, value)
	}
	resp, err := stage.Direct.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := strconv.Itoa(resp.StatusCode)
	if resp.Header.Get("Idempotency-Replayed") == "true" {
		got += " replayed"
	}
	if _, rest, ok := strings.Cut(string(body), `"code":"`); ok {
		code, _, _ := strings.Cut(rest, `"`)
		got += " " + code
	}
	return got
}

// semels are the ways to put Semel in front of a gateway: by one command, and about money.
var semels = map[string]func(t *testing.T, gateway string) (url string){
	"proxy": func(t *testing.T, gateway string) string {
		return startProxy(t, program(t), gateway, "--store", "memory:").URL
	},
	"financial": func(t *testing.T, gateway string) string {
		url, _ := serving(t, fmt.Sprintf("store: {url: \"memory:\"}\noperations: [{name: pay, financial: true, archive: false}]\nroutes: [{match: \"POST /\", upstream: %q, operation: pay}]\n", gateway))
		return url
	},
}

// shortPatience is how long Varnish waits for a charge that never ends by itself.
const shortPatience = 400 * time.Millisecond

// TestGateways puts real gateways between Semel and a program that charges: whatever they
// make of its answers, a key is charged once, and a stranger who was refused keeps a key
// only if nobody can know what happened.
func TestGateways(t *testing.T) {
	thorough.Only(t, "package judge has the answers of these programs in its table")
	gateways := map[string]func(t *testing.T, upstream string) string{
		"varnish":         func(t *testing.T, upstream string) string { return gatewaytest.Varnish(t, upstream, shortPatience) },
		"patient varnish": func(t *testing.T, upstream string) string { return gatewaytest.Varnish(t, upstream, time.Minute) },
		"firewall":        func(t *testing.T, upstream string) string { return gatewaytest.Firewall(t, upstream) },
	}
	// deliveries are credentials and what each got, in their order.
	type deliveries [][2]string
	const renewed = "Bearer renewed"
	for _, c := range []struct {
		gateway, semel, path string
		charges              int
		got                  deliveries
	}{
		// Varnish gives up with 503 and Retry-After while the charge goes on.
		{"varnish", "proxy", "/slow", 1, deliveries{{owner, "503"}, {owner, "409 held"}, {renewed, "409 other_caller"}, {owner, "409 held"}}},
		{"varnish", "financial", "/slow", 1, deliveries{{owner, "503"}, {renewed, "409 other_caller"}, {owner, "409 held"}}},
		// The firewall makes 403 of a page about a charge that was made.
		{"firewall", "proxy", "/leaky", 1, deliveries{{owner, "403"}, {owner, "403 replayed"}, {owner, "403 replayed"}}},
		{"firewall", "financial", "/leaky", 1, deliveries{{owner, "403"}, {owner, "409 held"}, {renewed, "409 other_caller"}, {owner, "409 held"}}},
	} {
		t.Run(c.gateway+" "+c.semel+c.path, func(t *testing.T) {
			t.Parallel()
			b, upstream := newBank(t)
			url := semels[c.semel](t, gateways[c.gateway](t, upstream))
			for i, d := range c.got {
				if got := pay(t, url+c.path, aUUID, d[0]); got != d[1] {
					t.Errorf("delivery %d by %q got %s, want %s", i+1, d[0], got, d[1])
				}
			}
			if n := len(b.charges.Of(aUUID)); n != c.charges {
				t.Errorf("%d charges, want %d", n, c.charges)
			}
		})
	}
	for _, name := range []string{"patient varnish", "firewall"} {
		for semel, owners := range map[string]map[int]string{
			"proxy":     {401: "201", 403: "201", 302: "409 other_caller", 419: "409 other_caller", 503: "409 other_caller"},
			"financial": {401: "201", 403: "409 other_caller", 302: "409 other_caller", 419: "409 other_caller", 503: "409 other_caller"},
		} {
			t.Run("a stranger, then the owner: "+name+" "+semel, func(t *testing.T) {
				t.Parallel()
				b, upstream := newBank(t)
				url := semels[semel](t, gateways[name](t, upstream))
				for status, want := range owners {
					path, key := fmt.Sprint("/owner/", status), fmt.Sprintf("%s-%d", aUUID, status)
					if got := pay(t, url+path, key, "Bearer stranger"); got != strconv.Itoa(status) {
						t.Errorf("%d: the stranger got %s", status, got)
					}
					got := pay(t, url+path, key, owner)
					if charged := len(b.charges.Of(key)); got != want || charged != map[bool]int{true: 1}[want == "201"] {
						t.Errorf("%d: the owner got %s and was charged %d times, want %s", status, got, charged, want)
					}
				}
			})
		}
	}
}

const aUUID = "7b0c9a54-2f5e-4c8e-9a55-0f6d5b3b7a11"

// A synchronous webhook behind Varnish: an event that it gave up on is handled once, however
// often its sender tries.
func TestWebhooksBehindAGateway(t *testing.T) {
	thorough.Only(t, "package judge has the answers of these programs in its table")
	b, upstream := newBank(t)
	gateway := gatewaytest.Varnish(t, upstream, shortPatience)
	url, _ := hooked(t, gateway+"/slow")
	for range 3 {
		if status := hook(t, url, "evt_1"); status < 300 {
			t.Errorf("a delivery got %d", status)
		}
	}
	if n := b.charges.Sum(); n != 1 {
		t.Errorf("the event was handled %d times", n)
	}
}

// hook delivers an event of Stripe to a webhook at /hook, with hookSecret.
func hook(t *testing.T, url, event string) (status int) {
	t.Helper()
	body := fmt.Sprintf(`{"id":%q,"type":"charge.succeeded"}`, event)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = io.WriteString(mac, now+"."+body)
	r, err := http.NewRequest(http.MethodPost, url+"/hook", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Stripe-Signature", fmt.Sprintf("t=%s,v1=%x", now, mac.Sum(nil)))
	resp, err := stage.Direct.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

const hookSecret = "whsec_xxxxxxxx"

// hooked runs a service with a synchronous webhook of Stripe at /hook.
func hooked(t *testing.T, upstream string) (url, admin string) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "hook.secret")
	if err := os.WriteFile(secret, []byte(hookSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return serving(t, fmt.Sprintf(`store: {url: "memory:"}
auth: {default_tenant: acme}
webhooks: [{path: /hook, source: stripe, secret_files: [%q], upstream: %q, mode: sync}]
`, secret, upstream))
}

// An event whose upstream fell silent is held and parked. One command has it posted again,
// under the same id, and its sender gets 2xx from then on.
func TestAHeldEventIsReplayed(t *testing.T) {
	posted := make(chan string, 9)
	var well atomic.Bool
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		posted <- r.Header.Get("webhook-id")
		if !well.Load() {
			panic(http.ErrAbortHandler)
		}
	}))
	defer up.Close()
	url, admin := hooked(t, up.URL)
	for range 3 {
		if status := hook(t, url, "evt_1"); status != http.StatusServiceUnavailable {
			t.Errorf("its sender got %d", status)
		}
	}
	code, out, errs := semelWith(t, "", "messages", "list", "--state", "parked", "--json", "--url", admin)
	message := regexp.MustCompile(`msg_[0-9a-zA-Z_-]+`).FindString(out)
	if code != ExitOK || message == "" || !strings.Contains(out, `"held"`) || strings.Count(out, message) == 0 {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	first := <-posted
	if len(posted) != 0 {
		t.Errorf("it was posted %d times more", len(posted))
	}
	well.Store(true)
	if code, out, errs := semelWith(t, "", "messages", "replay", message, "--reason", "it is back", "--yes", "--url", admin); code != ExitOK {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	if again := <-posted; again != first {
		t.Errorf("it was posted as %s, and then as %s", first, again)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for hook(t, url, "evt_1") != http.StatusOK { // the answer is recorded after it came
		<-tick.C
	}
	if len(posted) != 0 {
		t.Errorf("it was posted %d times more", len(posted))
	}
}
