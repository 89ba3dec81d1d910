package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// hookURL is where a sender posts to that signs the address, too.
const hookURL = "https://hooks.example.com/square"

// signedAs is the header of a delivery that the sender of a source has signed now.
func signedAs(t *testing.T, source, secret, body string, header ...string) []string {
	t.Helper()
	s, err := webhook.Builtin(source)
	if err != nil {
		t.Fatal(err)
	}
	d := &webhook.Delivery{Header: http.Header{}, Body: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		d.Header.Set(header[i], header[i+1])
	}
	if err := s.Sign(d, secret, hookURL, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name := range d.Header {
		header = append(header, name, d.Header.Get(name))
	}
	return header
}

// TestWebhooks takes webhooks without any Go code, and posts each event to an upstream.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	const secret = "a webhook's secret"
	key := []byte(strings.Repeat("k", 32))
	up := newReceiver(t, key)
	dir := t.TempDir()
	for name, text := range map[string]string{"secret": secret + "\n", "up": "whsec_" + base64.StdEncoding.EncodeToString(key)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`
store: {url: "pebble:%[1]s/data"}
limits: {shutdown_grace: 50ms}
auth: {default_tenant: acme, trusted_header: {from: [127.0.0.1/32], tenant: X-Tenant, principal: X-Principal}}
routes: [{match: /webhooks/, upstream: "http://127.0.0.1:1", mode: "off"}]
webhooks:
  - {path: /webhooks/shopify, source: shopify, secret_files: ["%[1]s/secret"], upstream: %[2]q, upstream_secret_files: ["%[1]s/up"]}
  - {path: /webhooks/github, source: github, secret_files: ["%[1]s/secret"], upstream: %[2]q, mode: sync}
  - {path: /webhooks/stripe, source: stripe, secret_files: ["%[1]s/secret"], upstream: %[2]q, payments: card}
`, dir, up.URL)
	file := write(t, text)
	s := start(t, file)
	post := func(path, body string, header []string) int {
		t.Helper()
		status, _, _ := do(t, http.MethodPost, s.data(path), body, header...)
		return status
	}
	shopify := func(id, body string) []string {
		return signedAs(t, "shopify", secret, body, "X-Shopify-Event-Id", id, "X-Shopify-Shop-Domain", "acme.myshopify.com", "X-Shopify-Topic", "orders/create")
	}

	t.Run("an event that is acknowledged is posted once", func(t *testing.T) {
		body := `{"id":1}`
		for range 3 {
			if status := post("/webhooks/shopify", body, shopify("e1", body)); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		if p := <-up.got; p.body != body || !p.signed || !strings.HasPrefix(p.id, "evt_") || p.kind != "application/json" {
			t.Errorf("%+v", p)
		}
		if taken := records(t, s, "webhook.shopify"); len(taken) != 1 || len(taken[0].Outbox) != 1 || taken[0].ID.Tenant != "acme" {
			t.Errorf("%+v", taken)
		}
	})
	t.Run("what nobody has signed is refused and leaves nothing", func(t *testing.T) {
		if status := post("/webhooks/shopify", `{"id":2}`, shopify("e2", `{"id":3}`)); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
		if taken := records(t, s, "webhook.shopify"); len(taken) != 1 || len(up.got) != 0 {
			t.Errorf("%d taken, %d posted", len(taken), len(up.got))
		}
	})
	t.Run("with sync the upstream decides", func(t *testing.T) {
		body := `{"zen":"x"}`
		header := signedAs(t, "github", secret, body, "X-GitHub-Delivery", "d1", "X-GitHub-Event", "ping")
		up.answer(http.StatusInternalServerError)
		if status := post("/webhooks/github", body, header); status != http.StatusServiceUnavailable {
			t.Errorf("status %d", status)
		}
		up.answer(http.StatusNoContent)
		for range 2 {
			if status := post("/webhooks/github", body, header); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		}
		first, second := <-up.got, <-up.got
		if first.id != second.id || len(up.got) != 0 {
			t.Errorf("%+v, %+v, and %d more", first, second, len(up.got))
		}
	})
	t.Run("another event with the id waits for an operator", func(t *testing.T) {
		up.answer(http.StatusNoContent)
		first, second := `{"zen":"y"}`, `{"zen":"z"}`
		for _, body := range []string{first, second} {
			if status := post("/webhooks/github", body, signedAs(t, "github", secret, body, "X-GitHub-Delivery", "d2", "X-GitHub-Event", "ping")); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		}
		if p := <-up.got; p.body != first || len(up.got) != 0 {
			t.Fatalf("%+v, and %d more", p, len(up.got))
		}
		taken := records(t, s, "webhook.github")
		i := slices.IndexFunc(taken, func(rec semel.Record) bool { return len(rec.Outbox) > 0 })
		if i < 0 || taken[i].Outbox[0].State != store.MessageParked || taken[i].Outbox[0].Failure.Code != "conflict" {
			t.Fatalf("%+v", taken)
		}
		original := slices.IndexFunc(taken, func(rec semel.Record) bool { return rec.ID.Key == "webhook:github:d2" })
		line := fmt.Sprintf(`level=WARN msg=delivery door=webhook operation=webhook.github decision=conflict record=%s `, taken[original].ID)
		if text := s.log.String(); !strings.Contains(text, line) || !strings.Contains(text, "webhook=github source=github type=ping digest=") || !strings.Contains(text, "parked="+taken[i].ID.String()) {
			t.Errorf("no %s in %s", line, text)
		}
		id, m := taken[i].ID, taken[i].Outbox[0]
		if _, err := s.Engine().Internal().SettleMessage(t.Context(), id, m.ID, store.MessageFinding{State: store.MessagePending, Replay: true}); err != nil {
			t.Fatal(err)
		}
		if p := <-up.got; p.body != second {
			t.Errorf("%+v", p)
		}
	})
	t.Run("an event that the upstream refuses is parked with its words", func(t *testing.T) {
		clause.Proves(t, "IDS-IX.6")
		up.refuse(http.StatusUnprocessableEntity, `{"error":"unknown customer 17"}`)
		body := `{"id":17}`
		if status := post("/webhooks/shopify", body, shopify("e17", body)); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		<-up.got
		for {
			taken := records(t, s, "webhook.shopify")
			i := slices.IndexFunc(taken, func(rec semel.Record) bool { return rec.Outbox[0].State == store.MessageParked })
			if i < 0 {
				runtime.Gosched()
				continue
			}
			if f := taken[i].Outbox[0].Failure; f.Code != "status_422" || f.Message != "status 422: unknown customer 17" {
				t.Errorf("%+v", f)
			}
			break
		}
		up.answer(http.StatusNoContent)
	})
	t.Run("a payment's event that can't happen is parked", func(t *testing.T) {
		stripe := func(id, kind string) {
			body := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"object":{"id":"pi_1"}}}`, id, kind)
			if status := post("/webhooks/stripe", body, signedAs(t, "stripe", secret, body)); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		stripe("evt_1", "payment_intent.canceled")
		if p := <-up.got; !strings.Contains(p.body, "evt_1") {
			t.Errorf("%+v", p)
		}
		stripe("evt_2", "payment_intent.succeeded")
		for {
			taken := records(t, s, "webhook.stripe")
			if n := len(taken); n != 2 {
				t.Fatalf("%d are taken", n)
			}
			parked := 0
			for _, rec := range taken {
				if m := rec.Outbox[0]; m.State == "parked" && m.Failure.Code == "invalid_transition" {
					parked++
				}
			}
			if parked == 1 {
				break
			}
		}
		if len(up.got) != 0 {
			t.Errorf("%+v was posted", <-up.got)
		}
	})
	t.Run("nobody else can send what is posted, or be who takes it", func(t *testing.T) {
		begin := s.data("/v1/operations/webhook.shopify/executions")
		if status, _, text := do(t, "POST", begin, `{}`, "Idempotency-Key", "x", "X-Tenant", "acme", "X-Principal", "mallory"); status < 400 {
			t.Error(status, text)
		}
		if status, _, text := do(t, "POST", s.data("/v1/operations/default/executions"), `{}`, "Idempotency-Key", "x", "X-Tenant", "acme", "X-Principal", webhook.Principal); status < 400 {
			t.Error(status, text)
		}
	})
	t.Run("a message that another call sends is parked", func(t *testing.T) {
		as := []string{"X-Tenant", "acme", "X-Principal", "mallory"}
		_, _, text := do(t, "POST", s.data("/v1/operations/default/executions"), `{}`, append(as, "Idempotency-Key", "forged")...)
		var begun struct{ Execution string }
		if err := json.Unmarshal([]byte(text), &begun); err != nil || begun.Execution == "" {
			t.Fatal(text, err)
		}
		forged := `{"messages":[{"name":"event","destination":"webhook.shopify","payload":{"source":"shopify"}}]}`
		if status, _, text := do(t, "POST", s.data("/v1/executions/"+begun.Execution+"/complete"), forged, as...); status != http.StatusOK {
			t.Fatal(status, text)
		}
		for {
			m := records(t, s, "default")[0].Outbox[0]
			if m.State == "parked" && m.Failure.Code == "not_allowed" {
				break
			}
			if m.State != "pending" {
				t.Fatalf("%+v", m)
			}
		}
		if len(up.got) != 0 {
			t.Errorf("%+v was posted", <-up.got)
		}
	})
	t.Run("another secret is taken after a reload, and another mode is not", func(t *testing.T) {
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte("the next secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, change := range []struct{ old, new, refused string }{
			{fmt.Sprintf(`source: shopify, secret_files: ["%s/secret"]`, dir), fmt.Sprintf(`source: shopify, secret_files: [%q, "%s/secret"]`, next, dir), ""},
			{"mode: sync", "mode: ack", "changing webhooks[1].mode needs a restart"},
		} {
			if err := os.WriteFile(file, []byte(strings.Replace(text, change.old, change.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Reload(); err == nil != (change.refused == "") || err != nil && !strings.Contains(err.Error(), change.refused) {
				t.Error(err)
			}
		}
		body := `{"id":4}`
		header := signedAs(t, "shopify", "the next secret", body, "X-Shopify-Event-Id", "e4", "X-Shopify-Shop-Domain", "acme.myshopify.com", "X-Shopify-Topic", "orders/create")
		if status := post("/webhooks/shopify", body, header); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		if p := <-up.got; p.body != body {
			t.Errorf("%+v", p)
		}
	})
	if logged := s.log.String(); strings.Contains(logged, secret) || strings.Contains(logged, "webhook:shopify:e1") {
		t.Error("the log has a secret or a key")
	}
}
