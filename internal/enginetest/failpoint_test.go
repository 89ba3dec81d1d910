package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// world is what is outside: a provider and a receiver, which count what they get.
type world struct {
	mu        sync.Mutex
	charged   map[string]int
	delivered map[string]int
}

// workers run the same call on one disk. A worker is a process.
type worker struct {
	*semel.Engine
	process *process
	world   *world
	queue   chan semel.Record
}

func newWorker(t *testing.T, disk *history, w *world, p *process) *worker {
	p.t, p.disk = t, disk
	e, err := semel.New(p, &semel.Options{
		Witness: &scribe{},
		Operations: []semel.Operation{
			{Name: "pay", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldLedger}, Lease: 3 * time.Second, Effects: []string{"charge", "mail"}, OnFailure: semel.RetryFailure, Evidence: semel.EvidenceChanges},
		},
	})
	must(t, err)
	wk := &worker{Engine: e, process: p, world: w, queue: make(chan semel.Record, 100)}
	e.Internal().SetDispatcher(wk.Dispatch)
	return wk
}

func (wk *worker) Dispatch(rec *semel.Record) {
	select {
	case wk.queue <- *rec:
	default:
	}
}

// deliver sends what is queued, and says so.
func (wk *worker) deliver(ctx context.Context) {
	for {
		select {
		case rec := <-wk.queue:
			for _, m := range rec.Outbox {
				if m.State != store.MessagePending {
					continue
				}
				if wk.process.hit(ctx, "receiver", func() {
					wk.world.mu.Lock()
					defer wk.world.mu.Unlock()
					wk.world.delivered[m.ID]++
				}) == nil {
					_, _ = wk.Internal().SettleMessage(ctx, rec.ID, m.ID, store.MessageFinding{State: store.MessageDelivered})
				}
			}
		default:
			return
		}
	}
}

func payCall() semel.Call {
	return semel.Call{Tenant: "t", Principal: "p", Operation: "pay", Key: "k", Fingerprint: payload("x")}
}

// pay is the call: two effects and a message. fail makes it end in a refusal.
func (wk *worker) pay(ctx context.Context, fail bool) error {
	_, err := wk.Do(ctx, payCall(), func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		if err := semel.Send(x, semel.Message{Name: "paid", Destination: "shop"}); err != nil {
			return semel.Result{}, err
		}
		for _, name := range []string{"charge", "mail"} {
			if _, err := semel.Effect(ctx, x, name, func(ctx context.Context, key string) (string, error) {
				called := false
				err := wk.process.hit(ctx, "provider: "+name, func() {
					called = true
					wk.world.mu.Lock()
					defer wk.world.mu.Unlock()
					wk.world.charged[name]++
				})
				if err != nil && !called && !errors.Is(err, context.Canceled) && wk.process.mode == errorBefore {
					err = semel.Aborted(err) // nothing was sent
				}
				return "receipt", err
			}); err != nil {
				return semel.Result{}, err
			}
		}
		if fail {
			return semel.Result{}, semel.Rejected("no", errors.New("no"))
		}
		return data("done"), nil
	})
	wk.deliver(ctx)
	return err
}

// attend is what a process does all the time.
func (wk *worker) attend(ctx context.Context) {
	_, _ = wk.Sweep(ctx)
	wk.deliver(ctx)
}

// settle is the operator: what is held is settled by what the provider says.
func (wk *worker) settle(t *testing.T) (held bool) {
	t.Helper()
	rec, err := wk.Lookup(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: "pay", Key: "k"})
	if errors.Is(err, semel.ErrNotFound) || !rec.Held {
		return false
	}
	must(t, err)
	s := semel.Settlement{}
	for _, ef := range rec.Effects {
		if ef.State != store.EffectStarted {
			continue
		}
		f := store.EffectFinding{Name: ef.Name, State: store.EffectRefuted}
		if wk.world.charged[ef.Name] > 0 {
			f.State, f.Result = store.EffectConfirmed, data(`"receipt"`)
		}
		s.Effects = append(s.Effects, f)
	}
	if len(s.Effects) == 0 {
		s.Outcome = semel.DispositionAbandoned
	}
	_, err = wk.Settle(t.Context(), rec.ID, s, "asked the provider")
	must(t, err)
	return true
}

// live runs the call in one process in which something happens, beside another one
// that is sound and delivers the same call, to the end. At last the power
// fails, and what is left is compared with what the processes were told.
func live(t *testing.T, open func(t *testing.T) disk, at int, m mode, seed uint64, fail bool) (names []string, fired, held bool) {
	synctest.Test(t, func(t *testing.T) {
		disk, out := newHistory(t, open), &world{charged: map[string]int{}, delivered: map[string]int{}}
		first := newWorker(t, disk, out, &process{at: at, mode: m, rng: rand.New(rand.NewPCG(seed, uint64(at)))})
		second := newWorker(t, disk, out, &process{})
		ended := make(chan struct{})
		go func() { // Goexit is how a process ends
			defer close(ended)
			_ = first.pay(t.Context(), fail)
			first.attend(t.Context())
		}()
		if at == 0 {
			<-ended
		}
		start := time.Duration(rand.New(rand.NewPCG(seed, 1)).Int64N(int64(time.Second)))
		<-time.After(start)
		for range 20 {
			_ = second.pay(t.Context(), fail)
			second.attend(t.Context())
			<-time.After(time.Second)
		}
		<-ended
		pass(10 * time.Second)
		for name, n := range out.charged {
			if n > 1 {
				t.Errorf("%s was called %d times", name, n)
			}
		}
		for range 3 { // each effect, and the end, may have become unknown
			held = second.settle(t) || held
			_ = second.pay(t.Context(), fail)
			second.attend(t.Context())
			pass(5 * time.Second)
			second.attend(t.Context())
		}
		rec, err := second.Lookup(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: "pay", Key: "k"})
		must(t, err)
		switch {
		case fail && (rec.Disposition != semel.DispositionRejected || len(out.delivered) != 0):
			t.Errorf("%s; delivered %v of a call that did not complete", stage(&rec), out.delivered)
		case !fail && (rec.State != semel.Completed || len(rec.Outbox) != 1 || out.delivered[rec.Outbox[0].ID] == 0 || len(out.delivered) != 1 || rec.Outbox[0].State != store.MessageDelivered):
			t.Errorf("%s %+v; delivered %v", stage(&rec), rec.Failure, out.delivered)
		}
		if out.charged["charge"] != 1 || out.charged["mail"] != 1 {
			t.Errorf("called %v; want each once", out.charged)
		}
		must(t, first.Close(context.Background()))
		must(t, second.Close(context.Background()))
		disk.fail(t)
		disk.check(t)
		must(t, disk.Close())
		names, fired = first.process.seen()
		if t.Failed() {
			t.Logf("point %d, %s, seed %d, fired %t; the first process's calls: %q", at, m, seed, fired, names)
			for _, v := range disk.versions {
				t.Logf("%s: fence %d, attempt %d, lease until %s: %s", v.next.UpdatedAt, v.next.Fence, v.next.Attempt, v.next.LeaseUntil, stage(&v.next))
			}
		}
	})
	return names, fired, held
}

// F31: whatever happens at whatever point of the ledger's path, no effect is called
// twice, no message of a completed call is lost, none of another is delivered, and
// the evidence is that of the record.
func TestLedgerAtEveryPoint(t *testing.T) {
	clause.Proves(t, "IDS-XI.S3", "IDS-XIII.1")
	for name, rounds := range map[string]int{"memstore": 20, "pebblestore": 4} {
		if testing.Short() {
			rounds = 2
		}
		t.Run(name, func(t *testing.T) { atEveryPoint(t, disks[name], rounds) })
	}
}

func atEveryPoint(t *testing.T, disk func() func(t *testing.T) disk, rounds int) {
	names, _, _ := live(t, disk(), 0, "", 0, false)
	if len(names) < 12 {
		t.Fatalf("only %d points: %v", len(names), names)
	}
	var table strings.Builder
	for i, name := range names {
		fmt.Fprintf(&table, "%2d %-60s", i+1, name)
		for _, m := range modes {
			unknown := 0
			for seed := range rounds {
				_, fired, held := live(t, disk(), i+1, m, uint64(seed), false)
				if !fired {
					t.Errorf("point %d (%s): %s did not fire", i+1, name, m)
				}
				if held {
					unknown++
				}
			}
			if t.Failed() {
				t.Fatalf("point %d (%s), %s", i+1, name, m)
			}
			fmt.Fprintf(&table, " %8d", unknown)
		}
		table.WriteString("\n")
	}
	t.Logf("%d points, %d runs of each; held until settled:\n%s\n%s", len(names), rounds, strings.Join([]string{"crash before", "crash after", "error", "error after", "delay"}, ", "), table.String())
}

func TestRefusedCallSendsNothingAtAnyPoint(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	disk := disks["memstore"]
	names, _, _ := live(t, disk(), 0, "", 0, true)
	for i, name := range names {
		for _, m := range modes {
			for seed := range 2 {
				if _, fired, _ := live(t, disk(), i+1, m, uint64(seed), true); !fired || t.Failed() {
					t.Fatalf("point %d (%s), %s: fired %t", i+1, name, m, fired)
				}
			}
		}
	}
}

// A clock that can't be read for a moment changes nothing about the end of an attempt
// or an effect.
func TestAClockThatFailsOnceLosesNoOutcome(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (int, error) {
			r.faults.Next(faultstore.Now, faultstore.NotApplied, 3)
			return 1, nil
		})
		must(t, err)
		r.faults.Next(faultstore.Now, faultstore.NotApplied, 3)
		must(t, a.Complete(t.Context(), data("x")))
		if n := r.faults.Total(); n != 6 {
			t.Errorf("%d faults", n)
		}
	})
}

// A handler that is done and could not say so must not keep the call for ever: its
// lease ends, unless it is told again before.
func TestAnEndThatCouldNotBeSentLetsTheLeaseEnd(t *testing.T) {
	inBubble(t, semel.Operation{Lease: time.Minute}, func(t *testing.T, r *rig) {
		cut := func() {
			r.faults.Next(faultstore.Now, faultstore.NotApplied, 1000)
		}
		a, b := begin(t, r.Engine, call("a")), begin(t, r.Engine, call("b"))
		for _, x := range []*semel.Attempt{a, b} {
			cut()
			wantCode(t, x.Complete(t.Context(), data("x")), semel.CodeUnknown)
			r.faults.Heal()
		}
		must(t, b.Complete(t.Context(), data("x")))
		pass(10 * time.Minute)
		decides(t, r.Engine, call("a"), semel.Held)
		decides(t, r.Engine, call("b"), semel.Replay)
		must(t, a.Complete(t.Context(), data("x"))) // late is better than never
		decides(t, r.Engine, call("a"), semel.Replay)
	})
}
