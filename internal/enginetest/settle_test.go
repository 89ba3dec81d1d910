package enginetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// heldOnCharge leaves a record held with one open effect.
func heldOnCharge(t *testing.T, r *rig, key string) {
	t.Helper()
	_, err := r.Do(t.Context(), call(key), func(ctx context.Context, a semel.Execution) (semel.Result, error) {
		_, err := semel.Effect(ctx, a, "charge", func(context.Context, string) (int, error) { return 0, errors.New("timeout") })
		return semel.Result{}, err
	})
	wantCode(t, err, semel.CodeUnknown)
}

func TestReconcilerSettlesHeldRecords(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	finding := func(state store.EffectState, result string) semel.Settlement {
		return semel.Settlement{Effects: []store.EffectFinding{{Name: "charge", State: state, Result: semel.Result{Data: []byte(result)}}}}
	}
	for _, c := range []struct {
		name     string
		says     semel.Settlement
		err      error
		want     semel.Decision
		calls    int // of the provider by the next run
		result   string
		askAgain bool
	}{
		{name: "it happened: the next run replays its result", says: finding(store.EffectConfirmed, "7"), want: semel.Execute, calls: 0, result: "7"},
		{name: "it did not happen: the next run calls again", says: finding(store.EffectRefuted, ""), want: semel.Execute, calls: 1, result: "8"},
		{name: "the whole call is known to be done", says: semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("9")}, want: semel.Replay, result: "9"},
		{name: "nothing of the call happened", says: semel.Settlement{Outcome: semel.DispositionAborted}, want: semel.Execute, calls: 1, result: "8"},
		{name: "still unknown", want: semel.Held, askAgain: true},
		{name: "the question fails", err: errors.New("provider down"), want: semel.Held, askAgain: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int64
			op := semel.Operation{ReconcileEvery: time.Minute, Reconcile: func(_ context.Context, held semel.Record) (semel.Settlement, error) {
				asked.Add(1)
				if !held.Held || len(held.Effects) != 1 || held.Effects[0].Key == "" {
					t.Errorf("asked about %+v", held)
				}
				return c.says, c.err
			}}
			inBubble(t, op, func(t *testing.T, r *rig) {
				heldOnCharge(t, r, "k")
				ctx, stop := context.WithCancel(t.Context())
				ran := make(chan error)
				go func() { ran <- r.Run(ctx, time.Second) }()
				pass(30 * time.Second)
				if asked.Load() != 1 {
					t.Errorf("asked %d times in the first 30 s", asked.Load())
				}
				pass(time.Minute)
				if again := asked.Load() > 1; again != c.askAgain {
					t.Errorf("asked %d times", asked.Load())
				}
				stop()
				if err := <-ran; !errors.Is(err, context.Canceled) {
					t.Errorf("Run returned %v", err)
				}
				ans, err := r.Begin(t.Context(), call("k"))
				must(t, err)
				if ans.Decision != c.want {
					t.Fatalf("the next delivery got %s, want %s", ans.Decision, c.want)
				}
				if c.want == semel.Replay && string(ans.Record.Result.Data) != c.result {
					t.Errorf("got %q", ans.Record.Result.Data)
				}
				if c.want != semel.Execute {
					return
				}
				calls := 0
				v, err := semel.Effect(t.Context(), ans.Attempt, "charge", func(context.Context, string) (int, error) { calls++; return 8, nil })
				if err != nil || calls != c.calls || string(rune('0'+v)) != c.result {
					t.Errorf("%d calls, %d, %v", calls, v, err)
				}
			})
		})
	}
}

func TestOperatorSettles(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		heldOnCharge(t, r, "k")
		for name, s := range map[string]semel.Settlement{
			"an effect that is not there": {Effects: []store.EffectFinding{{Name: "mail", State: store.EffectConfirmed}}},
			"a finding without a verdict": {Effects: []store.EffectFinding{{Name: "charge", State: store.EffectStarted}}},
			"an outcome that is none":     {Outcome: semel.DispositionAbandoned},
		} {
			if _, err := r.Settle(t.Context(), id("k"), s, "test"); err == nil {
				t.Errorf("%s was accepted", name)
			}
		}
		rec, err := r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionFailed, Failure: &store.Failure{Code: "lost", Message: "gave up"}}, "ticket 7")
		must(t, err)
		if rec.State != semel.Failed || rec.Held || rec.ExpiresAt.IsZero() {
			t.Errorf("got %+v", rec)
		}
		_, err = r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionCompleted}, "twice")
		wantCode(t, err, semel.CodeIllegalTransition)
		_, err = r.Settle(t.Context(), id("none"), semel.Settlement{}, "")
		wantCode(t, err, semel.CodeNotFound)
		begin(t, r.Engine, call("running"))
		_, err = r.Settle(t.Context(), id("running"), semel.Settlement{Outcome: semel.DispositionAborted}, "")
		wantCode(t, err, semel.CodeIllegalTransition)
	})
}

func TestSweepAttendsToWhatIsDue(t *testing.T) {
	clause.Proves(t, "MAP-EXP.2")
	more := semel.Options{Operations: []semel.Operation{{Name: "again", OnAbandoned: semel.RetryAbandoned, Lease: 3 * time.Second}}}
	inBubbleWith(t, more, semel.Operation{Lease: 3 * time.Second, Window: time.Minute}, func(t *testing.T, r *rig) {
		again := call("k")
		again.Operation = "again"
		must(t, begin(t, r.Engine, call("done")).Complete(t.Context(), semel.Result{}))
		lost, lostToo, live := begin(t, r.Engine, call("lost")), begin(t, r.Engine, again), (*semel.Attempt)(nil)
		r.faults.Cut(faultstore.NotApplied)
		pass(4 * time.Second)
		second := r.second(t)
		live = begin(t, second, call("live"))
		n, err := second.Sweep(t.Context())
		if err != nil || n != (semel.Swept{Due: 2, Abandoned: 1, Held: 1}) {
			t.Errorf("first sweep: %+v, %v", n, err)
		}
		pass(time.Minute)
		if n, err = second.Sweep(t.Context()); err != nil || n.Purged != 1 || n.Held != 0 {
			t.Errorf("second sweep: %+v, %v", n, err)
		}
		r.faults.Heal()
		decides(t, second, call("lost"), semel.Held)
		decides(t, second, call("live"), semel.InFlight)
		begin(t, second, again)
		must(t, live.Complete(t.Context(), semel.Result{}))
		if _, err := r.Lookup(t.Context(), id("done")); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("a purged record: %v", err)
		}
		_, _ = lost, lostToo
	})
}

// TestTheLoopPurgesByItself: a program that calls Run and nothing else has neither records
// whose window is over, a day after it, nor calls that are processing after their lease, and
// hears when a sweep was and what it left.
func TestTheLoopPurgesByItself(t *testing.T) {
	clause.Proves(t, "MAP-EXP.2", "MAP-EXP.5")
	for _, interval := range []time.Duration{0, 10 * time.Minute} {
		var swept []semel.SweepEnded
		opts := semel.Options{
			Events: &semel.Events{Swept: func(ev semel.SweepEnded) { swept = append(swept, ev) }},
		}
		inBubbleWith(t, opts, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = r.Run(ctx, interval)
			}()
			must(t, begin(t, r.Engine, call("done")).Complete(t.Context(), data("x")))
			other, err := semel.New(r.store, &semel.Options{Operations: []semel.Operation{{Name: "of another program"}}})
			must(t, err)
			strange := call("strange")
			strange.Operation = "of another program"
			must(t, begin(t, other, strange).Complete(t.Context(), data("x")))
			lost := begin(t, r.Engine, call("lost"))
			r.faults.Cut(faultstore.NotApplied) // its holder doesn't get through any more
			pass(4 * time.Second)
			r.faults.Heal()
			pass(23 * time.Hour)
			if n := r.store.Len(); n != 3 {
				t.Errorf("%d records are left before the window is over", n)
			}
			decides(t, r.Engine, call("lost"), semel.Held)
			pass(2*time.Hour + interval)    // past 24 hours: no delivery, no operator, no call of Sweep
			if n := r.store.Len(); n != 2 { // the held one is somebody's to settle, the other one its program's to purge
				t.Errorf("%d records are left a day later", n)
			}
			purged, left := 0, 0
			for _, ev := range swept {
				purged, left = purged+ev.Swept.Purged, ev.Swept.Left
			}
			if purged != 1 || left != 1 || len(swept) < 100 {
				t.Errorf("%d sweeps told of %d purged and %d left", len(swept), purged, left)
			}
			stop()
			<-ended
			_ = lost
		})
		swept = nil
	}
}

// What the holder gave to Send was in its memory. Who settles the call says it again.
func TestACallThatIsSettledAsCompletedSendsItsMessages(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2", "IDS-XI.S4")
	says := semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("x"), Messages: []semel.Message{message("m"), message("n")}}
	settle := map[string]func(t *testing.T, r *rig) error{
		"by an operator": func(t *testing.T, r *rig) error {
			_, err := r.Settle(t.Context(), id("k"), says, "looked")
			return err
		},
		"by the reconciler": func(t *testing.T, r *rig) error {
			op, _ := r.Internal().Operation("op")
			op.Reconcile = func(context.Context, semel.Record) (semel.Settlement, error) { return says, nil }
			must(t, r.Register(op))
			pass(time.Minute)
			_, err := r.Sweep(t.Context())
			synctest.Wait()
			return err
		},
		"and its holder completes it first": func(t *testing.T, _ *rig) error { return nil },
	}
	ids := map[string]string{}
	for name, by := range settle {
		t.Run(name, func(t *testing.T) {
			never := func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }
			inBubble(t, semel.Operation{Reconcile: never, Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
				s := &sink{}
				r.Internal().SetDispatcher(s.Dispatch)
				a := begin(t, r.Engine, call("k"))
				must(t, a.Send(message("m")))
				a.Detach()
				pass(4 * time.Second)
				_, err := r.Sweep(t.Context())
				must(t, err)
				decides(t, r.Engine, call("k"), semel.Held)
				for _, bad := range []semel.Settlement{
					{Outcome: semel.DispositionAborted, Messages: says.Messages},
					{Messages: says.Messages},
					{Outcome: semel.DispositionCompleted, Messages: []semel.Message{message("m"), message("m")}},
					{Outcome: semel.DispositionCompleted, Messages: []semel.Message{{Name: "m"}}},
				} {
					_, err := r.Settle(t.Context(), id("k"), bad, "")
					wantCode(t, err, semel.CodeInvalidCall)
				}
				must(t, by(t, r))
				pass(time.Nanosecond)
				err = a.Complete(t.Context(), data("x"))
				if n := len(s.take()); n != 1 {
					t.Errorf("dispatched %d times", n)
				}
				rec, lerr := r.Lookup(t.Context(), id("k"))
				must(t, lerr)
				if name == "and its holder completes it first" {
					must(t, err)
				} else if wantCode(t, err, semel.CodeLeaseLost); len(rec.Outbox) != 2 {
					t.Fatalf("the outbox is %+v", rec.Outbox)
				}
				m := rec.Outbox[0]
				if m.Name != "m" || m.State != store.MessagePending || m.CreatedAt != rec.EndedAt || rec.NextAt != m.NextAt || string(m.Payload) != "paid" {
					t.Errorf("sent %+v", m)
				}
				ids[name] = m.ID
			})
		})
	}
	for name, id := range ids { // virtual time begins at the same moment, so these are the same call
		if len(ids) != 3 || id == "" || id != ids["by an operator"] {
			t.Errorf("%s the message has another id: %v", name, ids)
		}
	}
}
