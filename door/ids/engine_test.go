package ids

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// engineRegistry has a command of each kind, without evidence that would need a log.
const engineRegistry = `
version: 1
commands:
  - entity: order
    action: cancel
    binding: {principal: effective_actor, acting: ['orders:retry']}
    handler: {func: run}
  - entity: order
    action: show
    mutates: false
    evidence: none
    handler: {func: run}
  - entity: cart
    action: touch
    class: I2
    window: 30m
    justification: touching twice is harmless
    handler: {func: run}
  - entity: order
    action: import
    caller_key: true
    handler: {func: run}
`

// world is an engine with the commands of engineRegistry.
type world struct {
	engine *semel.Engine
	reg    *Registry
	ran    atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	b := BindingsOf([]string{"run"})
	b.Authorize = func(_ context.Context, _ *Entry, call semel.Call, _ semel.Record) error {
		if call.Principal == "stranger" {
			return errors.New("a stranger")
		}
		return nil
	}
	reg, err := Load([]byte(engineRegistry), LoadOptions{Bindings: b})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := reg.Operations(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		ops[i].Evidence = semel.EvidenceNone // the log is not what is tested here
	}
	store := memstore.New()
	engine, err := semel.New(store, &semel.Options{Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &world{engine: engine, reg: reg}
}

// deliver delivers an envelope for a caller. The outcome is the number of the
// execution, so replays can be told from executions.
func (w *world) deliver(t *testing.T, principal, envelope string) (semel.Answer, error) {
	t.Helper()
	c, err := ParseCommand([]byte(envelope))
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.reg.Derive(c)
	if err != nil {
		t.Fatal(err)
	}
	return w.engine.Do(t.Context(), d.Call(principal), func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte{byte('0' + w.ran.Add(1))}}, nil
	})
}

func (w *world) want(t *testing.T, ans semel.Answer, err error, decision semel.Decision, ran int64) {
	t.Helper()
	if err != nil || ans.Decision != decision || w.ran.Load() != ran {
		t.Errorf("%s after %d executions, %v; want %s after %d", ans.Decision, w.ran.Load(), err, decision, ran)
	}
}

func envelopeOf(entity, action, tenant, rest string) string {
	return `{"tenant_id":"` + tenant + `","intent":{"entity":"` + entity + `","action":"` + action + `"}` + rest + `}`
}

func TestCommandsInAnEngine(t *testing.T) {
	t.Run("deliveries of one command run once, whoever acts for the user", func(t *testing.T) {
		clause.Proves(t, "IDS-VII.6", "IDS-XIII.1", "IDS-XIII.3")
		w := newWorld(t)
		for i, caller := range []string{"u-7", "retrier", "sweeper", "u-7"} {
			ans, err := w.deliver(t, caller, envelopeOf("order", "cancel", "t", `,"effective_actor_id":"u-7","actor_id":"`+caller+`","command_id":"c-`+caller+`"`))
			want := semel.Replay
			if i == 0 {
				want = semel.Execute
			}
			w.want(t, ans, err, want, 1)
			if ans.Record != nil && ans.Record.Attributes[semel.AttributeCommandID] != "c-u-7" {
				t.Errorf("the record is of command %s", ans.Record.Attributes[semel.AttributeCommandID])
			}
		}
		if _, err := w.deliver(t, "stranger", envelopeOf("order", "cancel", "t", `,"effective_actor_id":"u-7"`)); err == nil {
			t.Error("a stranger got the answer")
		}
	})
	t.Run("two tenants have two commands", func(t *testing.T) {
		clause.Proves(t, "IDS-XV.1")
		w := newWorld(t)
		for i, tenant := range []string{"t", "u"} {
			ans, err := w.deliver(t, "a", envelopeOf("cart", "touch", tenant, `,"actor_id":"a"`))
			w.want(t, ans, err, semel.Execute, int64(i+1))
		}
	})
	t.Run("what changes nothing runs for each delivery", func(t *testing.T) {
		clause.Proves(t, "IDS-VI.3")
		w := newWorld(t)
		for i := range int64(3) {
			ans, err := w.deliver(t, "a", envelopeOf("order", "show", "t", `,"actor_id":"a"`))
			w.want(t, ans, err, semel.Execute, i+1)
		}
	})
	t.Run("class I2 is deduplicated inside its window only", func(t *testing.T) {
		clause.Proves(t, "IDS-VI.4", "IDS-VIII.4")
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			const touch = `,"actor_id":"a"`
			ans, err := w.deliver(t, "a", envelopeOf("cart", "touch", "t", touch))
			w.want(t, ans, err, semel.Execute, 1)
			<-time.After(29 * time.Minute)
			ans, err = w.deliver(t, "a", envelopeOf("cart", "touch", "t", touch))
			w.want(t, ans, err, semel.Replay, 1)
			<-time.After(2 * time.Minute)
			ans, err = w.deliver(t, "a", envelopeOf("cart", "touch", "t", touch))
			w.want(t, ans, err, semel.Execute, 2)
		})
	})
	t.Run("one key with two contents is a conflict", func(t *testing.T) {
		clause.Proves(t, "IDS-VIII.5")
		w := newWorld(t)
		ans, err := w.deliver(t, "a", envelopeOf("order", "import", "t", `,"actor_id":"a","idempotency_key":"k","args":{"n":1}`))
		w.want(t, ans, err, semel.Execute, 1)
		if _, err := w.deliver(t, "a", envelopeOf("order", "import", "t", `,"actor_id":"a","idempotency_key":"k","args":{"n":2}`)); !errors.Is(err, semel.ErrConflict) {
			t.Errorf("%v", err)
		}
	})
	t.Run("many deliveries at once run once", func(t *testing.T) {
		clause.Proves(t, "IDS-VIII.1", "IDS-XIII.2")
		w := newWorld(t)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := w.deliver(t, "a", envelopeOf("cart", "touch", "t", `,"actor_id":"a"`))
				if busy := (&semel.Error{Code: semel.CodeInFlight}); err != nil && !errors.Is(err, busy) && !errors.Is(err, &semel.Error{Code: semel.CodeThrottled}) {
					t.Error(err)
				}
			})
		}
		if wg.Wait(); w.ran.Load() != 1 {
			t.Errorf("it ran %d times", w.ran.Load())
		}
	})
}

func TestCommandsAreRemembered(t *testing.T) {
	w := newWorld(t)
	b := BindingsOf([]string{"run"})
	b.Authorize = func(context.Context, *Entry, semel.Call, semel.Record) error { return nil }
	b.remember = Duration(90 * 24 * time.Hour)
	ops, err := w.reg.Operations(b)
	if err != nil || len(ops) == 0 {
		t.Fatal(ops, err)
	}
	for _, op := range ops {
		if err := op.Validate(); op.Remember != 90*24*time.Hour || err != nil {
			t.Errorf("%s is remembered for %v, %v", op.Name, op.Remember, err)
		}
	}
	named := &semel.Record{
		State: semel.Completed, Disposition: semel.DispositionCompleted, Result: semel.Result{Tombstone: true},
		ExpiresAt: 2, NextAt: 2, Policy: store.Policy{Window: 1, Remember: 2},
	}
	var r Response
	if r.show(Caller{}, &w.reg.Commands[0], named); r.Reason != ReasonNotKept || r.OutcomeRef != "" {
		t.Errorf("after its window a command is answered with %+v", r)
	}
}
