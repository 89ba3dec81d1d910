package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/store"
)

// settled sweeps until no call is held.
func (s *running) settled(t *testing.T) {
	t.Helper()
	for {
		if _, err := s.Engine().Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		page, err := s.Engine().Search(t.Context(), store.Query{Held: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) == 0 {
			return
		}
	}
}

// TestAHeldCommandIsSettledByASetting: the answer of a charge is lost, and what the vendor knows
// settles it, with nothing but settings.
func TestAHeldCommandIsSettledByASetting(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	var charges atomic.Int64
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges.Add(1)
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	defer handler.Close()
	var asked atomic.Pointer[string]
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, id, _ := strings.Cut(strings.TrimSuffix(r.URL.Query().Get("query"), "'"), ":'")
		question := r.Header.Get("Authorization") + " " + r.URL.Path + " " + id
		asked.Store(&question)
		fmt.Fprintf(w, `{"object":"search_result","has_more":false,"data":[{"id":"pi_1","metadata":{"command_id":%q},"status":"succeeded","client_secret":"pi_1_secret"}]}`, id)
	}))
	defer stripe.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	registry := fmt.Sprintf(`
version: 1
commands:
  - entity: card
    action: pay
    class: I3
    handler: {url: %[1]q}
    shields:
      - strategy: S4
        every: 1ms
        reconcile: {source: stripe, with: {value: '{attribute:command_id}', field: command_id}, secret_file: %[2]q, url: %[3]q}
        compensation: card.repay
        compensate_url: %[1]q
  - {entity: card, action: repay, handler: {url: %[1]q}}
`, handler.URL, file("stripe.key", "sk_test_1"), stripe.URL)
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	token, sum := auth.NewToken()
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
auth: {tokens: [{name: alice, tenant: acme, sha256: %q}]}
commands: {registry: %q}
evidence: {key_file: %q}
`, sum, file("commands.yaml", registry), file("evidence.key", string(keys.Text())))))
	pay := func() string {
		_, _, body := do(t, http.MethodPost, s.data("/v1/commands"), `{"tenant_id":"acme","actor_id":"alice","command_id":"cmd_7","intent":{"entity":"card","action":"pay","target":"c-1"}}`, "Authorization", "Bearer "+token)
		return body
	}
	if body := pay(); !strings.Contains(body, `"outcome_unknown"`) {
		t.Fatal(body)
	}
	s.settled(t)
	body := pay()
	if !strings.Contains(body, `"executed"`) || !strings.Contains(body, `"payment_intent":"pi_1"`) || !strings.Contains(body, "Its own answer was lost") {
		t.Error(body)
	}
	if strings.Contains(body, "pi_1_secret") {
		t.Errorf("duplicates see a secret of the vendor: %s", body)
	}
	if q := *asked.Load(); q != "Bearer sk_test_1 /v1/payment_intents/search cmd_7" || charges.Load() != 1 {
		t.Errorf("asked %q after %d charges", q, charges.Load())
	}
}

// TestAHeldRouteIsSettledByADatabase asks the books of the upstream themselves.
func TestAHeldRouteIsSettledByADatabase(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	pg := pgtest.Shared(t)
	database := pg.Database(t)
	pg.Exec(t, database, "CREATE TABLE charges (id int, order_id text, outcome text); INSERT INTO charges VALUES (9, 'order-7', 'done'), (10, 'order-8', 'refused')")
	var charges atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		charges.Add(1)
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	defer upstream.Close()
	secret := filepath.Join(t.TempDir(), "books.url")
	if err := os.WriteFile(secret, []byte(pg.URL(database)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, write(t, fmt.Sprintf(`
store: {url: "memory:"}
operations:
  - name: default
    attributes: {order_id: json:/order}
    reconcile_every: 1s
    reconcile:
      source: sql
      with: {value: '{attribute:order_id}'}
      secret_file: %q
      query: SELECT outcome, id FROM charges WHERE order_id = $1
routes: [{match: "POST /charges", upstream: %q}]
`, secret, upstream.URL)))
	for order, want := range map[string]string{"order-7": `"id":"9"`, "order-8": "says that it was refused"} {
		charge := func() (int, string) {
			status, _, body := do(t, http.MethodPost, s.data("/charges"), `{"order":"`+order+`"}`, "Idempotency-Key", order)
			return status, body
		}
		if status, body := charge(); status != http.StatusGatewayTimeout && status != http.StatusBadGateway {
			t.Fatal(status, body)
		}
		s.settled(t)
		if status, body := charge(); !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", order, status, body)
		}
	}
	if charges.Load() != 2 {
		t.Errorf("%d charges", charges.Load())
	}
}
