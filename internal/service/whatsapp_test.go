package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids/whatsapp"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// The tenant of the number, the secrets of the app, and the path of the webhook.
const (
	number    = "770001"
	customer  = "351910000007"
	appSecret = "an app's secret"
	verify    = "the owner's token"
	hookPath  = "/webhooks/whatsapp"
)

// answered is a reply as its receiver reads it.
type answered struct {
	TenantID string `json:"tenant_id"`
	To       string
	ReplyTo  string `json:"in_reply_to"`
	Button   string `json:"confirm_button"`
	Response struct{ Status, Decision, Summary, Reason, Detail string }
	Refused  struct{ Code string }
}

// chat is everything around a service that takes commands from WhatsApp.
type chat struct {
	t       *testing.T
	dir     string
	text    string // of the configuration
	phone   *receiver
	asked   atomic.Int64 // questions to the mapper
	began   chan struct{}
	hold    chan struct{} // questions are answered when it is closed; nil: at once
	refunds chan string   // bodies of commands that were executed
}

// newChat makes a mapper that understands "ACTION ORDER", a service that executes
// commands, and a receiver of the replies.
func newChat(t *testing.T, store string) *chat {
	c := &chat{t: t, dir: t.TempDir(), began: make(chan struct{}, 100), refunds: make(chan string, 100)}
	key := []byte(strings.Repeat("k", 32))
	c.phone = newReceiver(t, key)
	mapper := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		c.began <- struct{}{}
		if c.hold != nil {
			select {
			case <-c.hold:
			case <-r.Context().Done():
				return
			}
		}
		var m whatsapp.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		action, order, ok := strings.Cut(m.Text, " ")
		if !ok {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		envelope := map[string]any{"intent": map[string]string{"entity": "order", "action": action, "target": order}}
		if token, id, pressed := strings.Cut(m.Button, "."); pressed {
			envelope["confirmation_token"], envelope["command_id"] = token, id
		}
		if err := json.NewEncoder(w).Encode(envelope); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(mapper.Close)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.refunds <- string(body)
		if strings.Contains(string(body), `"target":"o-9"`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"summary":"There is no order o-9.","code":"no_order"}`)
			return
		}
		fmt.Fprint(w, `{"summary":"Done"}`)
	}))
	t.Cleanup(upstream.Close)
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	entry := func(action, more string) string {
		return fmt.Sprintf("  - {entity: order, action: %s, %s handler: {url: %q}}\n", action, more, upstream.URL)
	}
	c.text = fmt.Sprintf(`
store: {url: %q}
limits: {shutdown_grace: 50ms}
auth: {default_tenant: acme, trusted_header: {from: [127.0.0.1/32], tenant: X-Tenant, principal: X-Principal}}
routes: [{match: /webhooks/, upstream: "http://127.0.0.1:1", mode: "off"}]
commands:
  registry: %q
  whatsapp:
    path: %s
    verify_token_file: %q
    app_secret_files: [%q]
    mapper_url: %q
    mapper_timeout: 10m
    numbers: [{phone_number_id: %q, rights: ['orders:refund']}]
    reply_url: %q
    reply_secret_files: [%q]
evidence: {key_file: %q}
`, strings.ReplaceAll(store, "DIR", c.dir),
		c.file("commands.yaml", "version: 1\ncommands:\n"+entry("refund", "rights: {execute: ['orders:refund']},")+
			entry("ship", "rights: {execute: ['orders:ship']},")+entry("cancel", "confirmation: {ttl: 5m},")),
		hookPath, c.file("verify", verify+"\n"), c.file("secret", appSecret+"\n"), mapper.URL, number, c.phone.URL,
		c.file("reply", "whsec_"+base64.StdEncoding.EncodeToString(key)), c.file("evidence.key", string(keys.Text())))
	return c
}

func (c *chat) file(name, text string) string {
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// reply is the next posted reply.
func (c *chat) reply() (a answered) {
	c.t.Helper()
	p := <-c.phone.got
	if err := json.Unmarshal([]byte(p.body), &a); err != nil || !p.signed || !strings.HasPrefix(p.id, "reply_") {
		c.t.Fatalf("got %+v, %v", p, err)
	}
	return a
}

// says is a message with a text, and perhaps a button that was pressed.
func says(id, text, button string) string {
	if button != "" {
		return fmt.Sprintf(`{"from":%q,"id":%q,"type":"interactive","interactive":{"button_reply":{"id":%q,"title":%q}}}`, customer, id, button, text)
	}
	return fmt.Sprintf(`{"from":%q,"id":%q,"type":"text","text":{"body":%q}}`, customer, id, text)
}

// batch is the body of a delivery.
func batch(number string, messages ...string) string {
	return fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":%q},"messages":[%s]}}]}]}`,
		number, strings.Join(messages, ","))
}

// deliver posts a delivery that the app's secret has signed.
func (s *running) deliver(body string) int {
	s.t.Helper()
	status, _, _ := do(s.t, http.MethodPost, s.data(hookPath), body, whatsapp.SignatureHeader, whatsapp.Sign(appSecret, []byte(body)))
	return status
}

// TestWhatsApp takes commands out of messages, without any Go code.
func TestWhatsApp(t *testing.T) {
	t.Parallel()
	c := newChat(t, "pebble:DIR/data")
	file := write(t, c.text)
	s := start(t, file)

	t.Run("the handshake gives the challenge back to who knows the token", func(t *testing.T) {
		ask := func(token string) string {
			return s.data(hookPath + "?" + url.Values{"hub.mode": {"subscribe"}, "hub.challenge": {"1158201444"}, "hub.verify_token": {token}}.Encode())
		}
		if status, _, text := do(t, http.MethodGet, ask(verify), ""); status != http.StatusOK || text != "1158201444" {
			t.Error(status, text)
		}
		if status, _, text := do(t, http.MethodGet, ask("another token"), ""); status != http.StatusForbidden || strings.Contains(text, "1158201444") {
			t.Error(status, text)
		}
	})
	t.Run("what nobody has signed is refused and leaves nothing", func(t *testing.T) {
		body := batch(number, says("wamid.0", "refund o-0", ""))
		if status, _, _ := do(t, http.MethodPost, s.data(hookPath), body, whatsapp.SignatureHeader, whatsapp.Sign("another secret", []byte(body))); status != http.StatusForbidden {
			t.Errorf("status %d", status)
		}
		if status, _, _ := do(t, http.MethodPost, s.data(hookPath), body); status != http.StatusUnauthorized {
			t.Errorf("status %d", status)
		}
		if got := records(t, s, ""); len(got) != 0 || c.asked.Load() != 0 {
			t.Errorf("%d records, %d questions", len(got), c.asked.Load())
		}
	})
	t.Run("a message that comes again and again is one command", func(t *testing.T) {
		one, two := says("wamid.1", "refund o-1", ""), says("wamid.2", "refund o-2", "")
		for _, body := range []string{batch(number, one, one), batch(number, one), batch(number, two, one)} {
			if status := s.deliver(body); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
		}
		for range 2 {
			if a := c.reply(); a.Response.Status != "executed" || a.Response.Decision != "first_seen" || a.Response.Summary != "Done" || a.To != customer || a.TenantID != "acme" {
				t.Errorf("got %+v", a)
			}
			if body := <-c.refunds; !strings.Contains(body, `"actor_id":"`+customer+`"`) || !strings.Contains(body, `"tenant_id":"acme"`) {
				t.Error(body)
			}
		}
		taken := records(t, s, whatsapp.MessageOperation)
		if len(taken) != 2 || len(taken[0].Outbox) != 1 || len(taken[1].Outbox) != 1 {
			t.Errorf("%d messages are taken", len(taken))
		}
		if c.asked.Load() != 2 || len(c.refunds) != 0 || len(c.phone.got) != 0 {
			t.Errorf("%d questions, %d more executions, %d more replies", c.asked.Load(), len(c.refunds), len(c.phone.got))
		}
	})
	t.Run("another message with the same meaning gets the same outcome", func(t *testing.T) {
		s.deliver(batch(number, says("wamid.3", "refund o-1", "")))
		if a := c.reply(); a.Response.Status != "executed" || a.Response.Decision != "duplicate_replayed" || a.ReplyTo != "wamid.3" || len(c.refunds) != 0 {
			t.Errorf("got %+v after %d executions", a, len(c.refunds))
		}
	})
	t.Run("a refusal is told in the handler's words", func(t *testing.T) {
		clause.Proves(t, "IDS-IX.6")
		for i, decision := range []string{"first_seen", "duplicate_replayed"} {
			s.deliver(batch(number, says(fmt.Sprintf("wamid.9%d", i), "refund o-9", "")))
			if a := c.reply(); a.Response.Status != "rejected" || a.Response.Decision != decision || a.Response.Reason != "no_order" || a.Response.Detail != "There is no order o-9." {
				t.Errorf("got %+v", a)
			}
		}
		<-c.refunds
	})
	t.Run("the number has no right to it", func(t *testing.T) {
		s.deliver(batch(number, says("wamid.4", "ship o-1", "")))
		if a := c.reply(); a.Refused.Code != "forbidden" || a.Response.Status != "" || len(c.refunds) != 0 {
			t.Errorf("got %+v after %d executions", a, len(c.refunds))
		}
	})
	t.Run("a button confirms", func(t *testing.T) {
		s.deliver(batch(number, says("wamid.5", "cancel o-1", "")))
		a := c.reply()
		if a.Response.Status != "confirmation_required" || a.Button == "" || len(c.refunds) != 0 {
			t.Fatalf("got %+v after %d executions", a, len(c.refunds))
		}
		s.deliver(batch(number, says("wamid.6", "cancel o-1", a.Button)))
		if a := c.reply(); a.Response.Status != "executed" || len(c.refunds) != 1 {
			t.Errorf("got %+v after %d executions", a, len(c.refunds))
		}
		<-c.refunds
	})
	t.Run("a number that is nobody's is not taken", func(t *testing.T) {
		if status := s.deliver(batch("770009", says("wamid.7", "refund o-7", ""))); status != http.StatusServiceUnavailable {
			t.Errorf("status %d", status)
		}
	})
	t.Run("another number is taken after a reload, and another path is not", func(t *testing.T) {
		for _, change := range []struct{ old, new, refused string }{
			{"numbers: [", `numbers: [{phone_number_id: "770009"}, `, ""},
			{hookPath, "/webhooks/other", "changing commands.whatsapp.path needs a restart"},
		} {
			if err := os.WriteFile(file, []byte(strings.Replace(c.text, change.old, change.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Reload(); err == nil != (change.refused == "") || err != nil && !strings.Contains(err.Error(), change.refused) {
				t.Error(err)
			}
		}
		if status := s.deliver(batch("770009", says("wamid.7", "cancel o-7", ""))); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		if a := c.reply(); a.ReplyTo != "wamid.7" {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("nothing secret and nobody's number is logged", func(t *testing.T) {
		for _, text := range []string{appSecret, verify, "whsec_", "wamid.", customer} {
			if strings.Contains(s.log.String(), text) {
				t.Errorf("%q is in the log: %s", text, s.log)
			}
		}
		for _, decision := range []string{"execute", "replay"} {
			line := regexp.MustCompile("level=INFO msg=delivery door=whatsapp operation=whatsapp.message decision=" + decision + " .* number=" + number + "\n")
			if !line.MatchString(s.log.String()) {
				t.Errorf("no line %q: %s", line, s.log)
			}
		}
	})
}

// records are those of the tenant, of one operation or all.
func records(t *testing.T, s *running, operation string) (all []semel.Record) {
	t.Helper()
	q := store.Query{Tenant: new("acme"), Operation: operation, Limit: store.MaxSearchLimit}
	for {
		page, err := s.Engine().Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Records...)
		if q.Cursor = page.Next; page.Next == "" {
			return all
		}
	}
}

// TestWhatsAppForged sends messages that look like received ones.
func TestWhatsAppForged(t *testing.T) {
	c := newChat(t, "memory:")
	s := start(t, write(t, c.text))
	begin := func(operation, as string) (int, string) {
		status, _, text := do(t, http.MethodPost, s.data("/v1/operations/"+operation+"/executions"), `{}`, "Idempotency-Key", number+"/wamid.1", "X-Tenant", "acme", "X-Principal", as)
		return status, text
	}
	t.Run("a caller of the API can't send a command in the name of another", func(t *testing.T) {
		if status, text := begin(whatsapp.MessageOperation, "mallory"); status != http.StatusNotFound {
			t.Errorf("an execution of the webhook's operation is begun: %d, %s", status, text)
		}
		_, text := begin("default", "mallory")
		var begun struct{ Execution string }
		if err := json.Unmarshal([]byte(text), &begun); err != nil || begun.Execution == "" {
			t.Fatal(text, err)
		}
		forged := fmt.Sprintf(`{"operation":%q,"tenant_id":"acme","phone_number_id":%q,"raw":%s}`, whatsapp.MessageOperation, number, says("wamid.1", "refund o-1", ""))
		status, _, text := do(t, http.MethodPost, s.data("/v1/executions/"+begun.Execution+"/complete"),
			`{"messages":[{"name":"work","destination":"whatsapp","payload":`+forged+`}]}`, "X-Tenant", "acme", "X-Principal", "mallory")
		if status != http.StatusOK {
			t.Fatal(status, text)
		}
		for {
			// The API doesn't announce messages, so the test asks again.
			m := records(t, s, "default")[0].Outbox[0]
			if m.State == store.MessagePending && t.Context().Err() == nil {
				runtime.Gosched()
				continue
			}
			if m.State != store.MessageParked || c.asked.Load() != 0 || len(c.refunds) != 0 {
				t.Errorf("it is %v, after %d questions and %d executions", m.State, c.asked.Load(), len(c.refunds))
			}
			break
		}
	})
	t.Run("a caller who is called like the webhook is refused", func(t *testing.T) {
		if status, text := begin("default", "whatsapp"); status != http.StatusUnauthorized {
			t.Error(status, text)
		}
	})
	t.Run("the real message is executed", func(t *testing.T) {
		if status := s.deliver(batch(number, says("wamid.1", "refund o-1", ""))); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		if a := c.reply(); a.Response.Status != "executed" || len(c.refunds) != 1 {
			t.Errorf("got %+v", a)
		}
	})
}

// TestWhatsAppStops stops a service while it works on a message, and starts it again.
func TestWhatsAppStops(t *testing.T) {
	t.Parallel()
	c := newChat(t, "pebble:DIR/data")
	c.hold = make(chan struct{})
	// Only WhatsApp is known here, so nobody else can deliver a command.
	file := write(t, regexp.MustCompile(`, trusted_header: .*`).ReplaceAllString(c.text, "}")+"\napi: 'off'\n")
	s := start(t, file)
	if status, _, text := do(t, http.MethodPost, s.data("/v1/commands"), `{"tenant_id":"acme","actor_id":"`+customer+`","intent":{"entity":"order","action":"cancel","target":"o-1"}}`); status != http.StatusUnauthorized {
		t.Error(status, text)
	}
	if status := s.deliver(batch(number, says("wamid.1", "refund o-1", ""))); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	<-c.began
	s.stop()
	if err := <-s.done; err != nil {
		t.Fatal(err)
	}
	s.done <- nil
	if len(c.refunds)+len(c.phone.got) != 0 {
		t.Fatal("it was executed")
	}
	close(c.hold)
	start(t, file)
	if a := c.reply(); a.Response.Status != "executed" || a.Response.Decision != "first_seen" || len(c.refunds) != 1 || c.asked.Load() != 2 {
		t.Errorf("got %+v after %d executions and %d questions", a, len(c.refunds), c.asked.Load())
	}
}
