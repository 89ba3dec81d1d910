package service_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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
)

// hookSecret is the secret of webhooks, as some sources write it.
const hookSecret = "the secret of all the webhooks"

// shop is a service with the door commerce, and the back end behind it.
type shop struct {
	*running
	t    *testing.T
	dir  string
	file string

	mu      sync.Mutex
	charged map[string]int    // by key
	users   map[string]string // what apply_url got, by entity and id
	sent    []string
	saved   []string // what carts.saved got
	hooks   int      // events of the gateway that the back end got
	orders  int
	tokens  int
	lose    atomic.Bool  // answers of charges
	refuse  atomic.Int64 // the status of charges, if it isn't zero
	down    atomic.Bool  // apply_url
}

// shopCallers are a back end that acts for users, and two users.
const shopCallers = `
    - {name: shop, token_file: shop.token, rights: [commerce.users]}
    - {name: user_1, token_file: user_1.token}
    - {name: user_2, token_file: user_2.token}
`

// openShop starts a service on the embedded store. more is added to the section commerce.
func openShop(t *testing.T, more string) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir(), charged: map[string]int{}, users: map[string]string{}}
	t.Chdir(s.dir)
	for _, name := range []string{"shop", "user_1", "user_2"} {
		s.write(name+".token", name+"-secret")
	}
	s.write("hook.secret", hookSecret)
	s.newKey("old.key")
	s.newKey("new.key")
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	s.write("evidence.key", string(keys.Text()))
	back := httptest.NewServer(http.HandlerFunc(s.backEnd))
	t.Cleanup(back.Close)
	s.file = filepath.Join(s.dir, "semel.yaml")
	s.write("commands.yaml", fmt.Sprintf("version: 1\ncommands: [{entity: order, action: place, handler: {url: %q}}]\n", back.URL+"/orders"))
	s.write("semel.yaml", strings.NewReplacer("BACK", back.URL, "CALLERS", strings.TrimLeft(shopCallers, "\n"), "MORE", more).Replace(`
store: {url: 'pebble:data'}
archive: {dir: archive}
evidence: {key_file: evidence.key}
auth:
  default_tenant: acme
  tokens:
CALLERS
commerce:
  path: /commerce
  session_key_files: [old.key]
  token_url: BACK/token
  charge_url: BACK/charge
  reconcile_url: BACK/ask
  origin: shop
  apply_url: BACK/apply
  send_url: BACK/send
  commands: {order.place: mandate}
MORE
commands: {registry: commands.yaml}
operations:
  - {name: orders, share: tenant}
  - {name: carts.saved, sequenced: true}
  - {name: payments, share: tenant}
webhooks:
  - {path: /hooks/gateway, source: stripe, secret_files: [hook.secret], upstream: BACK/hooks, payments: card, settles: data.object.metadata.reference}
routes:
  - match: POST /pay
    upstream: BACK
    operation: payments
    key_template: {format: payment, values: {order_id: 'json:/order', amount: 'json:/amount', currency: 'json:/currency', intent.created_at: 'json:/intent_at'}}
    attributes: {user_id: 'json:/user', transaction_id: 'answer:/transaction_id'}
  - match: PUT /carts
    upstream: BACK/saved
    operation: carts.saved
    sequence: json:/number
    key_template: {template: 'session_update:{session_id}:save_cart', scope: session, scope_field: session_id, values: {session_id: 'json:/session'}}
  - match: POST /orders
    upstream: BACK
    operation: orders
    key_template: {format: order, values: {cart_mandate_id: 'json:/mandate', user_id: 'json:/user'}}
    attributes: {user_id: 'json:/user'}
    requires_mandate: json:/mandate
`))
	s.running = start(t, s.file)
	return s
}

func (s *shop) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) newKey(name string) {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	s.write(name, base64.StdEncoding.EncodeToString(key))
}

// again stops the service and starts it on the same store, with other text in its file.
func (s *shop) again(oldnew ...string) {
	s.t.Helper()
	s.stop()
	err := <-s.done
	s.done <- nil
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("semel.yaml", strings.NewReplacer(oldnew...).Replace(string(text)))
	s.running = start(s.t, s.file)
}

// backEnd is the program behind the service.
func (s *shop) backEnd(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var in struct {
		Entity, ID, Reference, Order string
		Content                      json.RawMessage
	}
	_ = json.Unmarshal(body, &in)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/token":
		s.tokens++
		fmt.Fprintf(w, `{"token":"jwt-%d"}`, s.tokens)
	case "/charge":
		if status := s.refuse.Load(); status != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status))
			fmt.Fprint(w, `{"code":"no_funds","message":"The card has no funds."}`)
			return
		}
		if s.charged[r.Header.Get("Idempotency-Key")]++; s.lose.Load() {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"transaction_id":"pi_%s"}`, strings.Split(in.Reference, ":")[1])
	case "/apply":
		if s.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.users[in.Entity+"/"+in.ID] = string(in.Content)
	case "/send":
		s.sent = append(s.sent, string(body))
	case "/ask": // the gateway knows of one order
		if strings.Contains(string(body), "payment:o6:") {
			fmt.Fprint(w, `{"transaction_id":"pi_o6"}`)
			return
		}
		fmt.Fprint(w, `{}`)
	case "/pay":
		if s.charged[in.Order]++; s.lose.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"transaction_id":"pi_%s"}`, in.Order)
	case "/saved/carts":
		s.saved = append(s.saved, string(in.Content))
	case "/hooks":
		s.hooks++
	case "/orders":
		s.orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"order":%d}`, s.orders)
	}
}

// charges is how often the gateway has charged under a key.
func (s *shop) charges(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charged[key]
}

// as sends a request as a caller, and reads the answer.
func (s *shop) as(who, method, path, body string) (status int, got map[string]any) {
	s.t.Helper()
	status, _, text := do(s.t, method, s.data(path), body, "Authorization", "Bearer "+who+"-secret")
	if text != "" {
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			s.t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
	}
	return status, got
}

// must is as for the back end, with the status that is wanted.
func (s *shop) must(want int, method, path, body string) map[string]any {
	s.t.Helper()
	status, got := s.as("shop", method, path, body)
	if status != want {
		s.t.Fatalf("%s %s: %d %v, want %d", method, path, status, got, want)
	}
	return got
}

// atOnce makes the same request n times at the same time, and returns the different answers with
// how many got each.
func (s *shop) atOnce(n int, method, path, body, member string) map[string]int {
	var mu sync.Mutex
	got := map[string]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_, doc := s.as("shop", method, path, body)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(doc[member])]++
		})
	}
	all.Wait()
	return got
}

const (
	session1 = `{"user": "user_1", "device": "phone"}`
	cart1    = `{"currency": "USD", "lines": [{"variant": "shirt", "quantity": 2, "price": "19.90"}, {"variant": "mug", "quantity": 1, "price": "7.50"}]}`
	cart1too = `{"lines": [{"quantity": 1, "price": "7.50", "variant": "mug"}, {"variant": "shirt", "price": "19.90", "quantity": 2}], "currency": "USD"}`
)

// eventually waits until the back end has what it is to have: the dispatcher posts it.
func (s *shop) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		s.mu.Lock()
		ok := is()
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: the back end has %v and %d events, and was sent %v", what, s.users, s.hooks, s.sent)
		}
		s.must(200, "GET", "/commerce/sessions", "")
	}
}

// gateway delivers an event of the payment gateway: a transaction was captured.
func (s *shop) gateway(want int, event, transaction, reference string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"id": %q, "type": "payment_intent.succeeded", "data": {"object": {"id": %q, "metadata": {"reference": %q}}}}`, event, transaction, reference)
	if status, _, text := do(s.t, "POST", s.data("/hooks/gateway"), body, signedAs(s.t, "stripe", hookSecret, body)...); status != want {
		s.t.Fatalf("%s: %d %s", event, status, text)
	}
}
