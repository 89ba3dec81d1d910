package ids_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/ids"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// bare is a gateway with one command and no functions.
func bare(t *testing.T, entry string, b *ids.Bindings) *ids.Gateway {
	t.Helper()
	registry, err := ids.Load([]byte("version: 1\ncommands:\n  - "+entry), ids.LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := on(t, memstore.New(), registry, b)
	return g
}

// on is a gateway on a store, and its engine.
func on(t *testing.T, store semel.Store, registry *ids.Registry, b *ids.Bindings) (*ids.Gateway, *semel.Engine) {
	t.Helper()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	engine, _ := witnessed(t, store)
	g, err := ids.New(engine, ids.Options{Registry: registry, Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	return g, engine
}

func TestConflictsAreServed(t *testing.T) {
	clause.Proves(t, "IDS-VIII.5")
	s := newShop(t)
	r := s.command(alice, refund, `,"actor_id":"alice","idempotency_key":"mine"`)
	if r.Decision != ids.ConflictRejected || r.CommandID == "" || r.CorrelationID == "" {
		t.Errorf("%s", r.Body)
	}
	if len(s.served) != 1 || s.served[0] != "conflict rejected" {
		t.Errorf("served %q", s.served)
	}
}

// Who may read the commands of others may not undo them for that.
func TestAReaderDoesNotCompensate(t *testing.T) {
	clause.Proves(t, "IDS-XV.4")
	handler := func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
		return ids.Done("", nil)
	}
	undone := 0
	b := &ids.Bindings{
		Handlers:    map[string]ids.Handler{"pay": handler},
		Reconcilers: map[string]semel.Reconciler{"ask": func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }},
		Compensators: map[string]semel.Compensator{"repay": func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			undone++
			return ids.Done("", nil)
		}},
	}
	g := bare(t, `{entity: card, action: pay, class: I3, rights: {read: ['cards:read']}, handler: {func: pay},
     shields: [{strategy: S4, reconciler: ask, compensation: card.repay, compensator: repay}]}
  - {entity: card, action: repay, handler: {func: pay}}`, b)
	ctx := t.Context()
	paid, err := g.Execute(ctx, ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
		TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"},
	})
	if err != nil {
		t.Fatal(err)
	}
	bob := ids.Caller{Tenant: "acme", Principal: "bob", Rights: []string{"cards:read"}}
	if _, err := g.Status(ctx, bob, paid.StatusID); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if _, err := g.Compensate(ctx, bob, paid.StatusID, ""); !errors.Is(err, &semel.Error{Code: semel.CodeForbidden}) || undone != 0 {
		t.Errorf("%v, undone %d times", err, undone)
	}
	r, err := g.Compensate(ctx, ids.Caller{Tenant: "acme", Principal: "alice"}, paid.StatusID, "")
	if err != nil || r.Status != ids.StatusCompensated || r.Decision != "" || undone != 1 {
		t.Errorf("%+v, %v, undone %d times", r, err, undone)
	}
}

// What a handler says of a refusal may tell as much as an outcome.
func TestAFailureIsForReaders(t *testing.T) {
	clause.Proves(t, "IDS-XV.4")
	b := &ids.Bindings{Handlers: map[string]ids.Handler{"refuse": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
		return semel.Result{}, semel.Rejected("no_funds", errors.New("the account has 3 euros"))
	}}}
	g := bare(t, `{entity: card, action: pay, rights: {read: ['cards:read']}, handler: {func: refuse}}`, b)
	for rights, detail := range map[string]string{"cards:read": "the account has 3 euros", "cards:none": ""} {
		r, err := g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice", Rights: []string{rights}}, ids.Command{
			TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"},
		})
		if err != nil || r.Reason != "no_funds" || r.Detail != detail || r.Redacted == (detail != "") {
			t.Errorf("%s: %+v, %v", rights, r, err)
		}
	}
}

// A command whose handler has failed is not run again, whether the handler has marked its error or
// not, and every duplicate gets the first one's status, reason, words and identifiers.
func TestAnErrorIsReplayedAsItWas(t *testing.T) {
	clause.Proves(t, "IDS-IX.5")
	for name, c := range map[string]struct {
		err            error
		status         ids.Status
		reason, detail string
	}{
		"a plain error": {errors.New("the printer burns"), ids.StatusFailed, "failed", "the printer burns"},
		"a failure":     {semel.Failure(errors.New("the printer burns")), ids.StatusFailed, "failed", "the printer burns"},
		"a rejection":   {semel.Rejected("no_funds", errors.New("the account has 3 euros")), ids.StatusRejected, "no_funds", "the account has 3 euros"},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			b := &ids.Bindings{Handlers: map[string]ids.Handler{"fail": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
				runs++
				return semel.Result{}, c.err
			}}}
			g := bare(t, `{entity: card, action: pay, handler: {func: fail}}`, b)
			deliver := func(id string) *ids.Response {
				r, err := g.Execute(t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}, ids.Command{
					CommandID: id, CorrelationID: "talk of " + id, TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"},
				})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := deliver("c-1")
			if first.Status != c.status || first.Reason != c.reason || first.Detail != c.detail || first.CommandID != "c-1" || first.CorrelationID != "talk of c-1" || first.Decision != ids.FirstSeen {
				t.Errorf("the first gets %+v", first)
			}
			want, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			again := deliver("c-2")
			if again.Decision != ids.DuplicateReplayed || runs != 1 {
				t.Errorf("a duplicate is %s, and the handler ran %d times", again.Decision, runs)
			}
			again.Decision = ids.FirstSeen
			if got, err := json.Marshal(again); err != nil || string(got) != string(want) {
				t.Errorf("a duplicate gets %s, %v\nand the first  %s", got, err, want)
			}
		})
	}
}

func TestUpstreams(t *testing.T) {
	const entry = `{entity: card, action: pay, redact: [{path: iban}], handler: {url: 'URL', timeout: 5s}}`
	command := ids.Command{TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"}}
	caller := ids.Caller{Tenant: "acme", Principal: "alice"}

	t.Run("a part of an outcome is none", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"iban": "DE02", "rest": strings.Repeat("x", 200<<10)})
		}))
		defer srv.Close()
		g := bare(t, strings.Replace(entry, "URL", srv.URL, 1), nil)
		for range 2 {
			r, err := g.Execute(t.Context(), caller, command)
			if err != nil || r.Status != ids.StatusExecuted || r.Reason != ids.ReasonNotKept || r.Outcome != nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})

	t.Run("one that can't be reached is not named", func(t *testing.T) {
		srv := httptest.NewServer(nil)
		srv.Close()
		g := bare(t, strings.Replace(entry, "URL", srv.URL, 1), nil)
		r, err := g.Execute(t.Context(), caller, command)
		if err != nil || r.Status != ids.StatusFailed || r.Reason != "aborted" || r.Detail == "" || strings.Contains(r.Detail, "127.0.0.1") {
			t.Errorf("%+v, %v", r, err)
		}
	})

	t.Run("what is not JSON is hidden where anything is", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "iban=DE02") }))
		defer srv.Close()
		g := bare(t, strings.Replace(entry, "URL", srv.URL, 1), nil)
		if r, err := g.Execute(t.Context(), caller, command); err != nil || !r.Redacted || strings.Contains(string(r.Outcome), "DE02") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestMessagesOfTwoNumbersAreTwo(t *testing.T) {
	s := newShop(t)
	for i, trace := range []string{
		`{"phone_number_id":"a/b","message_id":"c"}`,
		`{"phone_number_id":"a","message_id":"b/c"}`,
		`{"phone_number_id":"a","message_id":"` + strings.Repeat("m", 1024) + `"}`,
	} {
		args := fmt.Sprintf(`,"actor_id":"alice","args":{"n":%d},"trace":%s`, i, trace)
		s.want(s.command(alice, refund, args), 200, ids.StatusExecuted, refund, i+1)
	}
}

// forgetful loses the note that a compensation is done, as a crash would.
type forgetful struct {
	semel.Store
	lose bool
}

func (s *forgetful) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if c := w.Record.Compensation; s.lose && c != nil && c.State == store.CompensationDone {
		return nil, false, errors.New("it crashed")
	}
	return s.Store.Apply(ctx, w)
}

// A sweep has no caller. What it resumes is authorised all the same.
func TestACompensationIsResumedByNobody(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	synctest.Test(t, resumedByNobody) // the engine writes again and again before it gives up
}

func resumedByNobody(t *testing.T) {
	undone := 0
	b := &ids.Bindings{
		Handlers: map[string]ids.Handler{"pay": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
			return ids.Done("", nil)
		}},
		Reconcilers: map[string]semel.Reconciler{"ask": func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }},
		Compensators: map[string]semel.Compensator{"repay": func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
			undone++
			return ids.Done("", nil)
		}},
	}
	registry, err := ids.NewRegistry([]ids.Entry{
		{Entity: "card", Action: "repay", Handler: ids.HandlerEntry{Func: "pay"}},
		{
			Entity: "card", Action: "pay", Class: semel.Shielded, Handler: ids.HandlerEntry{Func: "pay"},
			Shields: []ids.ShieldEntry{{Strategy: semel.ShieldReconcile, Reconciler: "ask", Compensation: "card.repay", Compensator: "repay"}},
		},
	}, ids.LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	st := &forgetful{Store: memstore.New()}
	g, engine := on(t, st, registry, b)
	ctx, alice := t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}
	paid, err := g.Execute(ctx, alice, ids.Command{TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"}})
	if err != nil {
		t.Fatal(err)
	}
	st.lose = true
	if _, err := g.Compensate(ctx, alice, paid.StatusID, ""); err == nil {
		t.Fatal("the note was not lost")
	}
	st.lose = false
	id, err := store.DecodeID(paid.StatusID)
	if err != nil {
		t.Fatal(err)
	}
	// As a sweep does, which waits for 30 seconds.
	rec, err := engine.Compensate(ctx, id, "operator", "")
	if err != nil || rec.Compensation.State != store.CompensationDone || undone != 1 {
		t.Errorf("%+v, %v, undone %d times", rec.Compensation, err, undone)
	}
}

// Who is asked to confirm is told how.
func TestConfirmationSaysHow(t *testing.T) {
	clause.Proves(t, "IDS-X.1")
	const proof = "123456"
	b := &ids.Bindings{
		Handlers: map[string]ids.Handler{"pay": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
			return ids.Done("Paid", nil)
		}},
		StepUps: map[string]func(context.Context, semel.Call) error{"totp": func(_ context.Context, call semel.Call) error {
			if call.StepUp != proof {
				return errors.New("the code is wrong")
			}
			return nil
		}},
	}
	g := bare(t, `{entity: card, action: pay, confirmation: {ttl: 1m, step_up: totp}, handler: {func: pay}}`, b)
	caller := ids.Caller{Tenant: "acme", Principal: "alice"}
	c := ids.Command{TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"}}
	asked, err := g.Execute(t.Context(), caller, c)
	if err != nil || asked.Status != ids.StatusUnconfirmed || asked.CommandID == "" {
		t.Fatalf("%+v, %v", asked, err)
	}
	for _, member := range []string{"same envelope", "command_id", "confirmation_token", "step_up"} {
		if !strings.Contains(asked.Detail, member) {
			t.Errorf("%q does not speak of %s", asked.Detail, member)
		}
	}
	c.ConfirmationToken, c.StepUp = asked.Confirmation.Token, proof
	if r, err := g.Execute(t.Context(), caller, c); err == nil && r.Status == ids.StatusExecuted {
		t.Error("it was confirmed under another command_id")
	}
	c.CommandID = asked.CommandID
	if r, err := g.Execute(t.Context(), caller, c); err != nil || r.Status != ids.StatusExecuted {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReconciliationAndCompensation: for a command shielded by S4, the gateway's engine asks
// the declared function what became of a lost effect, and undoes a duplicate by the declared
// command, once.
func TestReconciliationAndCompensation(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	synctest.Test(t, func(t *testing.T) {
		charged, ran, asked := 0, 0, 0
		b := &ids.Bindings{
			Handlers: map[string]ids.Handler{"pay": func(context.Context, semel.Execution, *ids.Derivation) (semel.Result, error) {
				charged, ran = charged+1, ran+1
				return semel.Result{}, semel.Unknown(errors.New("the answer was lost"))
			}},
			Reconcilers: map[string]semel.Reconciler{"ask": func(_ context.Context, held semel.Record) (semel.Settlement, error) {
				if asked++; !held.Held || charged != 1 {
					t.Errorf("asked about %q after %d charges", held.HeldReason, charged)
				}
				done, err := ids.Done("Paid", map[string]any{"charge": "ch_1"})
				return semel.Settlement{Outcome: semel.DispositionCompleted, Result: done}, err
			}},
			Compensators: map[string]semel.Compensator{"repay": func(_ context.Context, _ semel.Execution, undo semel.Record) (semel.Result, error) {
				if charged--; undo.State != semel.Completed {
					t.Errorf("a payment that is %s is paid back", undo.State)
				}
				return ids.Done("Paid back", nil)
			}},
		}
		registry, err := ids.NewRegistry([]ids.Entry{
			{Entity: "card", Action: "repay", Handler: ids.HandlerEntry{Func: "pay"}},
			{
				Entity: "card", Action: "pay", Class: semel.Shielded, Handler: ids.HandlerEntry{Func: "pay"},
				Shields: []ids.ShieldEntry{{Strategy: semel.ShieldReconcile, Reconciler: "ask", Compensation: "card.repay", Compensator: "repay", Every: ids.Duration(time.Minute)}},
			},
		}, ids.LoadOptions{Bindings: b})
		if err != nil {
			t.Fatal(err)
		}
		g, engine := on(t, memstore.New(), registry, b)
		ctx, alice := t.Context(), ids.Caller{Tenant: "acme", Principal: "alice"}
		pay := func(want ids.Status) *ids.Response {
			t.Helper()
			r, err := g.Execute(ctx, alice, ids.Command{TenantID: "acme", ActorID: "alice", Intent: ids.Intent{Entity: "card", Action: "pay"}})
			if err != nil || r.Status != want || ran != 1 {
				t.Fatalf("%+v, %v; it ran %d times", r, err, ran)
			}
			return r
		}
		first := pay(ids.StatusProcessing)
		pay(ids.StatusProcessing) // a duplicate never runs, nor does it ask
		if _, err := g.Compensate(ctx, alice, first.StatusID, ""); err == nil || asked != 0 {
			t.Errorf("what nobody knows was undone: %v, asked %d times", err, asked)
		}
		if _, err := engine.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if done := pay(ids.StatusExecuted); asked != 1 || done.StatusID != first.StatusID {
			t.Errorf("asked %d times, %+v", asked, done)
		}
		charged++ // the provider's books say that it charged a second time
		for range 2 {
			if _, err := g.Compensate(ctx, alice, first.StatusID, "charged twice"); err != nil || charged != 1 {
				t.Errorf("%v, charged %d times", err, charged)
			}
		}
		pay(ids.StatusCompensated)
	})
}
