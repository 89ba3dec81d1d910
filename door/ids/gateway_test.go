package ids_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// shopRegistry has a command of each kind that a gateway treats differently.
const shopRegistry = `
version: 1
commands:
  - entity: refund
    action: create
    financial: true
    per_record: {per_second: 0.001, burst: 3}
    rights: {execute: ['refunds:create'], read: ['refunds:read']}
    redact: [{path: iban, unless: 'refunds:iban'}]
    handler: {func: refund}
  - {entity: refund, action: undo, handler: {func: refund}}
  - entity: order
    action: cancel
    binding: {principal: effective_actor, acting: ['orders:retry']}
    handler: {func: cancel}
  - {entity: order, action: show, mutates: false, handler: {func: show}}
  - {entity: order, action: refuse, handler: {func: refuse}}
  - {entity: order, action: lose, handler: {func: lose}}
  - {entity: order, action: retry, handler: {func: retry}}
  - {entity: mail, action: send, class: I3, shields: [{strategy: S2, destination: mailer}], handler: {url: 'http://127.0.0.1:1/'}}
  - {entity: card, action: charge, class: I3, shields: [{strategy: S1, header: X-Charge-Key}], handler: {url: UPSTREAM}}
  - entity: card
    action: pay
    class: I3
    shields: [{strategy: S4, reconciler: ask, compensation: card.repay, compensator: repay}]
    handler: {func: refund}
  - {entity: card, action: repay, rights: {execute: ['cards:repay']}, handler: {func: refund}}
`

// shop is a gateway with the commands of shopRegistry.
type shop struct {
	t       *testing.T
	engine  *semel.Engine
	log     *evidence.Log
	gateway *ids.Gateway
	mu      sync.Mutex
	ran     map[string]int // by kind of command
	served  []string
	keys    []string // that the upstream got
}

func newShop(t *testing.T, change ...func(*ids.Options)) *shop {
	t.Helper()
	s := &shop{t: t, ran: map[string]int{}}
	store := memstore.New()
	keys, err := evidence.GenerateKeys("example.com/shop")
	if err != nil {
		t.Fatal(err)
	}
	if s.log, err = evidence.New(store, keys, nil); err != nil {
		t.Fatal(err)
	}
	events := &semel.Events{Answered: func(e semel.Delivered) {
		s.mu.Lock()
		defer s.mu.Unlock()
		attrs := map[string]string{}
		for _, a := range e.Attrs {
			attrs[a.Key] = a.Value.String()
		}
		if e.Door != ids.Name || strings.Contains(attrs["command"], "secret") {
			t.Errorf("told of %+v", e)
		}
		s.served = append(s.served, strings.TrimSpace(strings.Join([]string{string(e.Decision), string(e.Code), attrs["command_status"]}, " ")))
	}}
	if s.engine, err = semel.New(store, &semel.Options{Witness: s.log, Events: events}); err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.keys = append(s.keys, r.Header.Get("X-Charge-Key"))
		s.mu.Unlock()
		if strings.Contains(string(body), "secret") {
			t.Errorf("the upstream got %s", body)
		}
		_, _ = io.WriteString(w, `{"charged":true}`)
	}))
	run := func(f func(d *ids.Derivation) (semel.Result, error)) ids.Handler {
		return func(_ context.Context, _ semel.Execution, d *ids.Derivation) (semel.Result, error) {
			s.mu.Lock()
			s.ran[d.Entry.Name()]++
			s.mu.Unlock()
			return f(d)
		}
	}
	b := &ids.Bindings{
		Handlers: map[string]ids.Handler{
			"refund": run(func(*ids.Derivation) (semel.Result, error) {
				return ids.Done("Refunded to DE02", map[string]any{"iban": "DE02", "amount": 5})
			}),
			"cancel": run(func(*ids.Derivation) (semel.Result, error) { return ids.Done("Cancelled", nil) }),
			"show":   run(func(*ids.Derivation) (semel.Result, error) { return ids.Done("", map[string]any{"state": "open"}) }),
			"refuse": run(func(*ids.Derivation) (semel.Result, error) {
				return semel.Result{}, semel.Rejected("too_late", errors.New("the order was shipped"))
			}),
			"lose": run(func(*ids.Derivation) (semel.Result, error) {
				return semel.Result{}, semel.Unknown(errors.New("no answer"))
			}),
			"retry": run(func(*ids.Derivation) (semel.Result, error) {
				return semel.Result{}, semel.Aborted(errors.New("not now"))
			}),
		},
		Reconcilers: map[string]semel.Reconciler{"ask": func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }},
		Compensators: map[string]semel.Compensator{"repay": func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			s.mu.Lock()
			s.ran["repay"]++
			s.mu.Unlock()
			return ids.Done("Repaid", nil)
		}},
	}
	text := strings.ReplaceAll(shopRegistry, "UPSTREAM", upstream.URL)
	registry, err := ids.Load([]byte(text), ids.LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	opts := ids.Options{
		Registry: registry, Bindings: b,
		Identify: func(r *http.Request) (ids.Caller, error) {
			name, rights, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			if name == "" {
				return ids.Caller{}, errors.New("nobody")
			}
			return ids.Caller{Tenant: "acme", Principal: name, Rights: strings.Fields(rights)}, nil
		},
	}
	for _, c := range change {
		c(&opts)
	}
	if s.gateway, err = ids.New(s.engine, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		upstream.Close()
		ctx := context.Background()
		if err := errors.Join(s.log.Close(ctx), s.engine.Close(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is an answer over HTTP.
type reply struct {
	*httptest.ResponseRecorder
	ids.Response
	Code string
}

func (s *shop) send(who, method, path, body string) reply {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", who)
	w := reply{ResponseRecorder: httptest.NewRecorder()}
	s.gateway.ServeHTTP(w, r)
	if strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem") {
		var p struct {
			Code, Type, Title, Detail string
			Status                    int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.ResponseRecorder.Code || p.Type == "" || p.Title == "" || p.Detail == "" {
			s.t.Fatalf("problem %s, %v", w.Body, err)
		}
		w.Code = p.Code
	} else if err := json.Unmarshal(w.Body.Bytes(), &w.Response); err != nil {
		s.t.Fatalf("%v in %s", err, w.Body)
	}
	return w
}

// command delivers an envelope of alice's, with further members.
func (s *shop) command(who, kind, members string) reply {
	s.t.Helper()
	entity, action, _ := strings.Cut(kind, ".")
	return s.send(who, "POST", "/v1/commands", `{"tenant_id":"acme","intent":{"entity":"`+entity+`","action":"`+action+`"}`+members+`}`)
}

func (s *shop) want(r reply, status int, what ids.Status, ran string, times int) reply {
	s.t.Helper()
	s.mu.Lock()
	n := s.ran[ran]
	s.mu.Unlock()
	if r.ResponseRecorder.Code != status || r.Response.Status != what || n != times {
		s.t.Fatalf("HTTP %d, status %q after %d executions; want %d, %q after %d: %s", r.ResponseRecorder.Code, r.Response.Status, n, status, what, times, r.Body)
	}
	return r
}

func (s *shop) refused(r reply, status int, code semel.Code) {
	s.t.Helper()
	if r.ResponseRecorder.Code != status || r.Code != string(code) {
		s.t.Errorf("HTTP %d, %q; want %d, %q: %s", r.ResponseRecorder.Code, r.Code, status, code, r.Body)
	}
}

const (
	alice  = "alice refunds:create refunds:read refunds:iban"
	byHer  = `,"actor_id":"alice","command_id":"c-1","correlation_id":"talk-9"`
	refund = "refund.create"
)

func TestGateway(t *testing.T) {
	t.Run("an outcome is stored once and replayed with its summary and ids", func(t *testing.T) {
		clause.Proves(t, "IDS-VIII.2", "IDS-IX.1", "IDS-IX.4")
		s := newShop(t)
		first := s.want(s.command(alice, refund, byHer), 200, ids.StatusExecuted, refund, 1)
		if first.Decision != ids.FirstSeen || first.Summary != "Refunded to DE02" || first.CommandID != "c-1" || first.CorrelationID != "talk-9" {
			t.Errorf("%+v", first.Response)
		}
		again := s.want(s.command(alice, refund, `,"actor_id":"alice","command_id":"c-2","correlation_id":"talk-10"`), 200, ids.StatusExecuted, refund, 1)
		if again.Decision != ids.DuplicateReplayed || again.Header().Get("Idempotency-Replayed") != "true" {
			t.Errorf("%+v", again.Response)
		}
		if strings.Replace(first.Body.String(), ids.FirstSeen, ids.DuplicateReplayed, 1) != again.Body.String() {
			t.Errorf("the replay differs:\n%s\n%s", first.Body, again.Body)
		}
		st := s.want(s.send(alice, "GET", first.StatusURL, ""), 200, ids.StatusExecuted, refund, 1)
		if st.CreatedAt.IsZero() || st.UpdatedAt.IsZero() || st.TTLExpiresAt.IsZero() || !strings.HasPrefix(st.OutcomeRef, "sha256:") || !strings.HasPrefix(st.IdempotencyKey, ids.KeyVersion) {
			t.Errorf("the dedup record shows %+v", st.Response)
		}
	})

	t.Run("a reader gets no more than its rights now", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.4")
		s := newShop(t)
		first := s.command(alice, refund, byHer)
		less := s.want(s.command("alice refunds:create refunds:read", refund, byHer), 200, ids.StatusExecuted, refund, 1)
		if !less.Redacted || less.Summary != "" || strings.Contains(less.Body.String(), "DE02") || !strings.Contains(string(less.Outcome), `"amount":5`) {
			t.Errorf("a reader without the right is shown %s", less.Body)
		}
		none := s.want(s.command("alice refunds:create", refund, byHer), 200, ids.StatusExecuted, refund, 1)
		if !none.Redacted || none.Outcome != nil || none.Summary != "" || none.OutcomeRef != first.OutcomeRef {
			t.Errorf("a caller who may not read is shown %s", none.Body)
		}
		s.refused(s.send("bob refunds:create", "GET", first.StatusURL, ""), 404, semel.CodeNotFound)
		if other := s.want(s.send("bob refunds:read", "GET", first.StatusURL, ""), 200, ids.StatusExecuted, refund, 1); !other.Redacted {
			t.Errorf("a reader is shown %s", other.Body)
		}
		s.refused(s.command("alice", refund, byHer), 403, semel.CodeForbidden)
	})

	t.Run("nobody acts for another without the right", func(t *testing.T) {
		clause.Proves(t, "IDS-VII.6", "IDS-XV.4")
		s := newShop(t)
		s.refused(s.command("mallory refunds:create", refund, byHer), 403, semel.CodeForbidden)
		s.refused(s.send(alice, "POST", "/v1/commands", `{"tenant_id":"evil","actor_id":"alice","intent":{"entity":"refund","action":"create"}}`), 403, semel.CodeForbidden)
		for _, who := range []string{"alice", "retrier orders:retry", "alice"} {
			name, _, _ := strings.Cut(who, " ")
			s.want(s.command(who, "order.cancel", `,"effective_actor_id":"alice","actor_id":"`+name+`"`), 200, ids.StatusExecuted, "order.cancel", 1)
		}
		s.refused(s.command("mallory", "order.cancel", `,"effective_actor_id":"alice"`), 403, semel.CodeForbidden)
	})

	t.Run("what changes nothing runs each time and is logged", func(t *testing.T) {
		clause.Proves(t, "IDS-VI.3")
		s := newShop(t)
		for i := range 3 {
			r := s.want(s.command("alice", "order.show", `,"actor_id":"alice"`), 200, ids.StatusExecuted, "order.show", i+1)
			if string(r.Outcome) != `{"state":"open"}` || r.StatusURL != "" {
				t.Errorf("%+v", r.Response)
			}
		}
		if len(s.served) != 3 || s.served[0] != "execute  executed" {
			t.Errorf("served %q", s.served)
		}
	})

	t.Run("one message brings one command", func(t *testing.T) {
		clause.Proves(t, "IDS-V.1")
		s := newShop(t)
		const msg = byHer + `,"trace":{"message_id":"wamid.1","phone_number_id":"100"}`
		s.want(s.command(alice, refund, msg), 200, ids.StatusExecuted, refund, 1)
		s.want(s.command(alice, refund, msg), 200, ids.StatusExecuted, refund, 1)
		// The same message, read differently the second time.
		r := s.want(s.command(alice, refund, msg+`,"args":{"amount":6}`), 422, ids.StatusRejected, refund, 1)
		if r.Reason != "idempotency_conflict" {
			t.Errorf("%s", r.Body)
		}
		// Another message with the same command.
		s.want(s.command(alice, refund, strings.Replace(msg, "wamid.1", "wamid.2", 1)), 200, ids.StatusExecuted, refund, 1)
	})

	t.Run("a key of another envelope is a conflict, with evidence of both", func(t *testing.T) {
		clause.Proves(t, "IDS-VIII.5", "IDS-VIII.6")
		s := newShop(t)
		first := s.command(alice, refund, byHer)
		r := s.want(s.command(alice, refund, byHer+`,"args":{"amount":6},"idempotency_key":"`+first.IdempotencyKey+`"`), 422, ids.StatusRejected, refund, 1)
		if r.Type != evidence.TypeRejected || r.Reason != "idempotency_conflict" || r.Decision != ids.ConflictRejected || r.Outcome != nil {
			t.Errorf("%s", r.Body)
		}
		s.log.Close(t.Context())
		list, err := shown(t.Context(), s.log, "c-1")
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		if last := list[len(list)-1]; last["decision"] != ids.ConflictRejected || last["fingerprint"] == "" || last["presented_fingerprint"] == "" || last["fingerprint"] == last["presented_fingerprint"] {
			t.Errorf("the evidence is %+v", list)
		}
	})

	t.Run("each end has its status", func(t *testing.T) {
		s := newShop(t)
		const by = `,"actor_id":"alice"`
		for range 2 {
			if r := s.want(s.command("alice", "order.refuse", by), 422, ids.StatusRejected, "order.refuse", 1); r.Reason != "too_late" || r.Detail != "the order was shipped" {
				t.Errorf("%s", r.Body)
			}
			if r := s.want(s.command("alice", "order.lose", by), 202, ids.StatusProcessing, "order.lose", 1); r.Reason != ids.ReasonUnknownOutcome || r.Header().Get("Retry-After") == "" || r.Header().Get("Location") == "" {
				t.Errorf("%s", r.Body)
			}
		}
		for i := range 2 {
			s.want(s.command("alice", "order.retry", by), 503, ids.StatusFailed, "order.retry", i+1)
		}
	})

	t.Run("an upstream gets a key of its own, and is asked once", func(t *testing.T) {
		clause.Proves(t, "IDS-XI.S1")
		s := newShop(t)
		for range 3 {
			r := s.command("alice", "card.charge", `,"actor_id":"alice"`)
			if r.ResponseRecorder.Code != 200 || string(r.Outcome) != `{"charged":true}` {
				t.Fatalf("%s", r.Body)
			}
		}
		if len(s.keys) != 1 || len(s.keys[0]) != 43 {
			t.Errorf("the upstream got the keys %q", s.keys)
		}
	})

	t.Run("a queued command is a message of its record", func(t *testing.T) {
		clause.Proves(t, "IDS-XI.S2")
		s := newShop(t)
		r := s.command("alice", "mail.send", `,"actor_id":"alice","confirmation_token":"secret"`)
		id, err := store.DecodeID(r.StatusID)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := s.engine.Lookup(t.Context(), id)
		if err != nil || len(rec.Outbox) != 1 || rec.Outbox[0].Destination != "mailer" || strings.Contains(string(rec.Outbox[0].Payload), "secret") {
			t.Errorf("%+v, %v", rec.Outbox, err)
		}
	})

	t.Run("a compensated command says so", func(t *testing.T) {
		clause.Proves(t, "IDS-XI.S4", "IDS-VIII.2")
		s := newShop(t)
		first := s.want(s.command("alice", "card.pay", `,"actor_id":"alice"`), 200, ids.StatusExecuted, "card.pay", 1)
		s.refused(s.send("alice", "POST", first.StatusURL+"/compensate", ""), 403, semel.CodeForbidden)
		for range 2 {
			s.want(s.send("alice cards:repay", "POST", first.StatusURL+"/compensate", `{"reason":"by mistake"}`), 200, ids.StatusCompensated, "repay", 1)
		}
		s.want(s.command("alice", "card.pay", `,"actor_id":"alice"`), 200, ids.StatusCompensated, "card.pay", 1)
		s.refused(s.send("alice", "POST", s.command("alice", "order.refuse", `,"actor_id":"alice"`).StatusURL+"/compensate", ""), 501, semel.CodeUnsupported)
	})

	t.Run("too many duplicates are put off", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.3")
		s := newShop(t)
		for range 4 {
			s.want(s.command(alice, refund, byHer), 200, ids.StatusExecuted, refund, 1)
		}
		s.refused(s.command(alice, refund, byHer), 429, semel.CodeThrottled)
	})

	t.Run("what is wrong with a request is said, and nothing is executed", func(t *testing.T) {
		s := newShop(t)
		for _, c := range []struct {
			body   string
			status int
			code   semel.Code
		}{
			{`{`, 400, semel.CodeInvalidCall},
			{`{"tenant_id":"acme","tenant_id":"evil"}`, 400, semel.CodeInvalidCall},
			{`{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"refund","action":"create"},"amount":5}`, 400, semel.CodeInvalidCall},
			{`{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"refund","action":"vanish"}}`, 404, semel.CodeUnknownOperation},
			{`{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"refund","action":"create"},"args":{"timestamp":1}}`, 400, semel.CodeInvalidCall},
			{`{"tenant_id":"acme","intent":{"entity":"refund","action":"create"}}`, 400, semel.CodeInvalidCall},
			{strings.Repeat(" ", ids.MaxEnvelope+1), 413, "too_large"},
		} {
			s.refused(s.send(alice, "POST", "/v1/commands", c.body), c.status, c.code)
		}
		s.refused(s.send("", "POST", "/v1/commands", "{}"), 401, "unauthorized")
		s.refused(s.send(alice, "GET", "/v1/commands", ""), 405, "method_not_allowed")
		s.refused(s.send(alice, "GET", "/v1/commands/nothing", ""), 404, semel.CodeNotFound)
		s.refused(s.send(alice, "GET", "/elsewhere", ""), 404, semel.CodeNotFound)
		if len(s.ran) != 0 {
			t.Errorf("it ran %v", s.ran)
		}
	})
}
