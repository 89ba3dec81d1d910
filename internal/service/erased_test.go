package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/store"
)

// feed is what a reader of the decisions of a node gets who missed all of them.
func feed(t *testing.T, s *running) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the stream doesn't end
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin("/v1/decisions"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", "1")
	resp, err := stage.Direct.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		text.WriteString(lines.Text())
	}
	return text.String()
}

// Who was erased is in no list of any node within seconds, and in none after a restart.
func TestErasedIsErasedOnAllNodes(t *testing.T) {
	t.Parallel()
	const person = "PERSON-anna.schmidt@example.com-1977"
	for name, open := range map[string]func(t *testing.T) (url string, nodes int){
		"embedded":   func(t *testing.T) (string, int) { return "pebble:" + filepath.Join(t.TempDir(), "data"), 1 },
		"PostgreSQL": func(t *testing.T) (string, int) { pg := pgtest.Shared(t); return pg.URL(pg.Database(t)), 2 },
		"Redis":      func(t *testing.T) (string, int) { return redistest.Start(t, "").URL(), 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, n := open(t)
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusCreated)
			}))
			t.Cleanup(upstream.Close)
			file := fmt.Sprintf("api: 'off'\nstore: {url: '%s', migrate: %v}\noperations: [{name: pay, keep_payload: true, EVIDENCE}]\nroutes: [{match: POST /pay, upstream: '%s', operation: pay}]\n", url, name == "PostgreSQL", upstream.URL)
			level, signed := "", ""
			if name != "Redis" { // which has no evidence, and nothing to erase in it
				keys, err := evidence.GenerateKeys("example.com/log")
				key := filepath.Join(t.TempDir(), "evidence.key")
				if err == nil {
					err = os.WriteFile(key, keys.Text(), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				level, signed = "evidence: decisions", fmt.Sprintf("evidence: {key_file: %s, signed_file: SIGNED}\n", key)
			}
			node := func() *running {
				mine := strings.Replace(signed, "SIGNED", filepath.Join(t.TempDir(), "signed"), 1)
				return start(t, write(t, strings.Replace(file, ", EVIDENCE", strings.TrimSuffix(", "+level, ", "), 1)+mine))
			}
			nodes := make([]*running, n)
			for i := range nodes {
				nodes[i] = node()
			}
			post := func(s *running, key, body string, want int) {
				t.Helper()
				if status, _, text := do(t, "POST", s.data("/pay"), body, "Idempotency-Key", key, "Authorization", "Bearer shop"); status != want {
					t.Fatalf("%s: %d %s", key, status, text)
				}
			}
			for _, key := range []string{person, "OTHER-0123456789abcdef"} {
				for _, s := range nodes {
					post(s, key, "1", 201)
					post(s, key, "1", 201)
					post(s, key, "2", 422)
				}
			}
			lists := func(s *running) string {
				var all strings.Builder
				for _, path := range []string{"/v1/conflicts", "/v1/figures?minutes=60"} {
					status, _, text := do(t, "GET", s.admin(path), "")
					if status != 200 {
						t.Fatalf("%s: %d %s", path, status, text)
					}
					all.WriteString(text)
				}
				return all.String() + feed(t, s)
			}
			_, _, found := do(t, "GET", nodes[0].admin("/v1/records?q=key:"+person), "")
			var page struct{ Records []struct{ ID string } }
			if err := json.Unmarshal([]byte(found), &page); err != nil || len(page.Records) != 1 {
				t.Fatal(found, err)
			}
			id := page.Records[0].ID
			for i, s := range nodes {
				servertest.Eventually(t, "the person is in the lists of all nodes", func() error {
					if text := lists(s); !strings.Contains(text, person) || strings.Count(text, id) < 4 {
						return fmt.Errorf("node %d shows %s", i, text)
					}
					return nil
				})
			}
			if status, _, text := do(t, "POST", nodes[0].admin("/v1/records/"+id+"/purge"), `{"reason":"asked for","erase_evidence":true}`, "Content-Type", "application/json"); status/100 != 2 {
				t.Fatalf("%d %s", status, text)
			}
			gone := func(when string) {
				t.Helper()
				for i, s := range nodes {
					servertest.Eventually(t, when, func() error {
						text := lists(s)
						if strings.Contains(text, person) || strings.Contains(text, id) {
							return fmt.Errorf("node %d names the person: %s", i, text)
						}
						if !strings.Contains(text, "OTHER-0123456789abcdef") {
							return fmt.Errorf("node %d doesn't name others: %s", i, text)
						}
						return nil
					})
				}
			}
			gone("nobody names the person")
			for i, s := range nodes {
				s.stop()
				if err := <-s.done; err != nil {
					t.Fatal(err)
				}
				s.done <- nil
				nodes[i] = node()
			}
			gone("nobody names the person after a restart")
		})
	}
}

// The state of a payment follows on all nodes when what told of it is erased, and no node applies
// an event to it that comes late. It can be purged by itself, too.
func TestErasedPaymentsAreErasedOnAllNodes(t *testing.T) {
	t.Parallel()
	const secret = "a webhook's secret"
	for name, open := range map[string]func(t *testing.T) string{
		"PostgreSQL": func(t *testing.T) string { pg := pgtest.Shared(t); return pg.URL(pg.Database(t)) },
		"Redis":      func(t *testing.T) string { return redistest.Start(t, "").URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := newReceiver(t, []byte(secret))
			keys := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(keys, []byte(secret), 0o600); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("auth: {default_tenant: acme}\nstore: {url: '%s', migrate: %v}\nwebhooks: [{path: /hook, source: stripe, secret_files: ['%s'], upstream: '%s', payments: card}]\n", open(t), name == "PostgreSQL", keys, up.URL)
			first := start(t, write(t, text))
			second := start(t, write(t, text))
			event := func(kind, payment string) string {
				return fmt.Sprintf(`{"id":"evt_%s_%s","type":"payment_intent.%s","data":{"object":{"id":%q}}}`, payment, kind, kind, payment)
			}
			post := func(s *running, body string) {
				t.Helper()
				if status, _, text := do(t, "POST", s.data("/hook"), body, signedAs(t, "stripe", secret, body)...); status != 200 {
					t.Fatalf("%d %s", status, text)
				}
			}
			purge := func(rec *semel.Record) {
				t.Helper()
				servertest.Eventually(t, rec.ID.Key+" is purged", func() error {
					status, _, text := do(t, "POST", first.admin("/v1/records/"+rec.ID.Encode()+"/purge"), `{"reason":"asked for","erase_evidence":true,"force":true}`, "Content-Type", "application/json")
					if status/100 != 2 {
						return fmt.Errorf("%d %s", status, text)
					}
					return nil
				})
			}
			for _, payment := range []string{"pi_anna", "pi_berta", "pi_other"} {
				post(first, event("canceled", payment))
				<-up.got
			}
			for _, rec := range records(t, first, "webhook.stripe") {
				if rec.Attributes[store.AttributePayment] == "card/stripe:pi_anna" {
					purge(&rec)
				}
			}
			for _, rec := range records(t, first, store.PaymentOperation+"card") {
				if rec.ID.Key == "stripe:pi_berta" {
					purge(&rec)
				}
			}
			if kept := records(t, second, store.PaymentOperation+"card"); len(kept) != 1 || kept[0].ID.Key != "stripe:pi_other" {
				t.Errorf("kept are %+v", kept)
			}
			late := []string{event("canceled", "pi_anna"), event("succeeded", "pi_anna"), event("succeeded", "pi_berta")}
			for _, body := range late {
				post(second, body)
			}
			servertest.Eventually(t, "what came late is parked", func() error {
				parked := 0
				for _, rec := range records(t, second, "webhook.stripe") {
					if m := rec.Outbox[0]; m.State == store.MessageParked && m.Failure.Code == string(webhook.CodeErased) {
						parked++
					}
				}
				if parked != len(late) {
					return fmt.Errorf("%d are parked", parked)
				}
				return nil
			})
			if kept := records(t, second, store.PaymentOperation+"card"); len(kept) != 1 || len(up.got) != 0 {
				t.Errorf("%d were posted, kept are %+v", len(up.got), kept)
			}
		})
	}
}
