package dashboard_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

const (
	adminToken  = "semel_the-admin-of-all-tenants"
	viewerToken = "semel_a-viewer-of-acme"
	callerToken = "semel_a-caller-of-acme"
)

// world is a service with every kind of record.
type world struct {
	*service.Server
	t        *testing.T
	upstream *upstream
}

// upstream charges, and misbehaves as its path and the key say.
type upstream struct {
	*httptest.Server
	release chan struct{} // closed: what waits goes on
	stuck   chan struct{} // has one for each call that waits
	mu      sync.Mutex
	seen    map[string]int
	found   atomic.Pointer[string] // what it says of calls that are held
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{release: make(chan struct{}), stuck: make(chan struct{}, 10), seen: map[string]int{}}
	u.found.Store(new(`{"outcome":"unknown"}`))
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/outcome" {
			fmt.Fprint(w, *u.found.Load())
			return
		}
		key := r.Header.Get("Idempotency-Key")
		u.mu.Lock()
		u.seen[key]++
		times := u.seen[key]
		u.mu.Unlock()
		switch {
		case strings.HasPrefix(key, "lost-"):
			panic(http.ErrAbortHandler) // the answer is lost on its way
		case strings.HasPrefix(key, "slow-"):
			select {
			case <-u.release:
			case <-time.After(120 * time.Millisecond): // as slow as a bank
			}
		case strings.HasPrefix(key, "stuck-"):
			u.stuck <- struct{}{}
			<-u.release
		case strings.HasPrefix(key, "flaky-") && times < 3:
			http.Error(w, `{"error":"the bank is down"}`, http.StatusInternalServerError)
			return
		case strings.HasPrefix(key, "poor-"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"error":"insufficient_funds"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"charge":"ch_%s","amount":4200,"currency":"EUR","big":9007199254740993}`, key)
	}))
	t.Cleanup(u.Close)
	t.Cleanup(u.letGo)
	return u
}

// letGo lets what waits go on.
func (u *upstream) letGo() {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.release:
	default:
		close(u.release)
	}
}

// newWorld starts a service. guarded: operators need a token.
func newWorld(t *testing.T, guarded bool) *world {
	t.Helper()
	u := newUpstream(t)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(refuses.Close)
	dir := t.TempDir()
	keys, err := evidence.GenerateKeys("example.com/semel")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens := ""
	if guarded {
		tokens = fmt.Sprintf(", {name: admin, roles: [admin], sha256: %s}, {name: vera, tenant: acme, roles: [viewer], sha256: %s}", auth.HashToken(adminToken), auth.HashToken(viewerToken))
	}
	path := file("semel.yaml", fmt.Sprintf(`
auth: {tokens: [{name: shop, tenant: acme, sha256: %s}%s]}
store: {url: "memory:"}
evidence: {key_file: %q}
operations:
  - {name: payments.charge, financial: true, archive: false, evidence: decisions, in_flight: wait, max_wait: 20s, lease: 60s}
  - {name: orders.create, evidence: changes, in_flight: refuse, lease: 60s, keep_payload: true}
  - {name: refunds.create, reconcile_url: %q, reconcile_every: 1h, lease: 60s}
  - {name: default, evidence: changes}
routes:
  - {match: POST /charges, upstream: %q, operation: payments.charge, attributes: {order: json:/order, amount: json:/amount}}
  - {match: POST /refunds, upstream: %q, operation: refunds.create, attributes: {order: json:/order}}
  - {match: POST /orders, upstream: %q, operation: orders.create}
dispatch:
  destinations:
    - {name: billing, operations: [default], url: %q, secret_files: [%q], max_tries: 1, allow_private: true}
`, auth.HashToken(callerToken), tokens, file("evidence.key", string(keys.Text())), u.URL+"/outcome", u.URL, u.URL, u.URL, refuses.URL,
		file("secret", "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))+"\n")))
	cfg, _, err := config.Load(config.Source{
		Path: path, Env: func(string) (string, bool) { return "", false },
		Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, upstream: u}
	if w.Server, err = service.New(t.Context(), service.Options{Config: cfg, Log: slog.New(slog.DiscardHandler), Version: "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		u.letGo()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

func (w *world) data(path string) string { return "http://" + w.DataAddr().String() + path }
func (w *world) page() string            { return "http://" + w.AdminAddr().String() }

// send sends a request as the shop.
func (w *world) send(path, key, body string) (status int, text string) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodPost, w.data(path), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+callerToken)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

// seed makes one of everything: what is in each screen's picture.
func (w *world) seed() {
	w.t.Helper()
	for n := range 18 {
		key := fmt.Sprintf("order-%d", 1000+n)
		for range 1 + (n*7)%5 {
			w.send("/charges", key, fmt.Sprintf(`{"amount":%d}`, 100*(n+1)))
		}
		w.send("/orders", fmt.Sprintf("cart-%d", n), `{"items":3}`)
	}
	w.send("/charges", "order-1003", `{"amount":9999}`) // another payload
	w.send("/charges", "order-1003", `{"amount":9998}`)
	w.send("/orders", "cart-4", `{"items":4}`)
	w.send("/orders", "cart-99", `{"items":[{"sku":"tea","quantity":2},{"sku":"cup","quantity":1}],"total":{"amount":4200,"currency":"EUR"},"ref":9007199254740993}`)
	w.send("/orders", "cart-99", `{"total":{"currency":"EUR","amount":4300},"items":[{"sku":"tea","quantity":3},{"sku":"cup","quantity":1}],"ref":9007199254740992,"gift":true}`)
	w.send("/charges", "poor-1", `{"amount":1}`)
	w.send("/charges", "poor-1", `{"amount":1}`)
	for range 4 {
		w.send("/orders", "flaky-77", `{"items":1}`)
	}
	for _, key := range []string{"lost-4711", "lost-4712"} {
		w.send("/charges", key, `{"amount":4200}`)
		w.send("/charges", key, `{"amount":4200}`)
	}
	w.send("/charges", "order-1000-again", `{"amount":100}`) // the payload of order-1000 under a new key
	w.execution()
}

// storm sends copies of one call while the first one is executed, and some afterwards.
func (w *world) storm(key string, copies int) {
	w.t.Helper()
	var work sync.WaitGroup
	pace := time.NewTicker(9 * time.Millisecond)
	defer pace.Stop()
	for range copies {
		work.Go(func() { w.send("/charges", key, `{"amount":777}`) })
		<-pace.C
	}
	work.Wait()
	for range 3 {
		w.send("/charges", key, `{"amount":777}`)
		<-pace.C
	}
	w.send("/charges", key, `{"amount":778}`)
}

// stick leaves a call in flight until the test ends.
func (w *world) stick(key string) {
	w.t.Helper()
	var work sync.WaitGroup
	work.Go(func() { w.send("/orders", key, `{"items":7}`) })
	w.t.Cleanup(func() {
		w.upstream.letGo()
		work.Wait()
	})
	select {
	case <-w.upstream.stuck:
	case <-w.t.Context().Done():
		w.t.Fatal("the upstream never got ", key)
	}
	w.send("/orders", key, `{"items":7}`) // is told to come back
}

// execution completes a call over the API, with effects and a message that is refused.
func (w *world) execution() {
	w.t.Helper()
	_, text := w.send("/v1/operations/default/executions", "invoice-9", `{}`)
	var begun struct{ Execution string }
	if err := json.Unmarshal([]byte(text), &begun); err != nil || begun.Execution == "" {
		w.t.Fatal(text, err)
	}
	at := "/v1/executions/" + begun.Execution
	for _, step := range [][2]string{
		{"/effects", `{"name":"charge card"}`},
		{"/effects/settle", `{"name":"charge card","state":"confirmed","result":{"id":"ch_9"}}`},
		{"/effects", `{"name":"send mail"}`},
		{"/effects/settle", `{"name":"send mail","state":"refuted","error":{"code":"mailbox_full","message":"try another address"}}`},
		{"/complete", `{"result":{"invoice":9},"messages":[{"name":"invoice.made","destination":"billing","payload":{"id":9}}]}`},
	} {
		if status, text := w.send(at+step[0], "", step[1]); status >= 300 {
			w.t.Fatal(step[0], status, text)
		}
	}
}

// times is how often the upstream got a call.
func (u *upstream) times(key string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[key]
}
