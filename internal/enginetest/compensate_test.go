package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
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

// undoing are an operation and the one that undoes it.
func undoing(refund semel.Compensator, by semel.Operation) []semel.Operation {
	by.Name = "refund"
	return []semel.Operation{{Name: "op", Compensation: "refund", Compensate: refund, Evidence: by.Evidence, Window: by.Window}, by}
}

func undo(t *testing.T, by semel.Operation, refund semel.Compensator, body func(t *testing.T, e *semel.Engine, st *memstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		e, err := semel.New(st, &semel.Options{Operations: undoing(refund, by), Witness: &scribe{}})
		must(t, err)
		body(t, e, st)
		must(t, e.Close(context.Background()))
	})
}

// paid runs the call that is to be undone.
func paid(t *testing.T, e *semel.Engine) {
	t.Helper()
	c := call("k")
	c.Attributes = store.Attributes{semel.AttributeCommandID: "c1"}
	must(t, begin(t, e, c).Complete(t.Context(), data("paid")))
}

func TestACompensationIsLinkedBothWays(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	runs := 0
	refund := func(_ context.Context, x semel.Execution, original semel.Record) (semel.Result, error) {
		runs++
		return semel.Result{Data: append([]byte("un"), original.Result.Data...)}, nil
	}
	undo(t, semel.Operation{Evidence: semel.EvidenceChanges}, refund, func(t *testing.T, e *semel.Engine, st *memstore.Store) {
		paid(t, e)
		for range 2 {
			rec, err := e.Compensate(t.Context(), id("k"), "operator", "by mistake")
			if must(t, err); rec.Compensation == nil || rec.Compensation.State != store.CompensationDone || rec.State != semel.Completed || string(rec.Result.Data) != "paid" {
				t.Fatalf("got %+v", rec)
			}
			by, err := e.Lookup(t.Context(), rec.Compensation.ID("t"))
			if must(t, err); string(by.Result.Data) != "unpaid" || by.Principal != "operator" ||
				by.Attributes[semel.AttributeCompensates] != rec.ID.Encode() || by.Attributes["compensates_command_id"] != "c1" {
				t.Errorf("the compensating record: %+v", by)
			}
		}
		if runs != 1 {
			t.Errorf("it was undone %d times", runs)
		}
		decides(t, e, call("k"), semel.Replay) // what happened stays what happened
		if got := strings.Join(told(t, st, "k"), "; "); got != "claimed processing; ended completed completed; compensation completed completed; compensation completed completed" {
			t.Errorf("the log says %s", got)
		}
	})
}

// The links hold for the longest names too, and where the compensating operation
// shares its keys within the tenant.
func TestLinksOfACompensation(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	long := strings.Repeat("n", 256)
	refund := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return data("unpaid"), nil }
	authorized := func(_ context.Context, c semel.Call, _ semel.Record) error {
		if c.Principal != "operator" {
			return errors.New("a stranger")
		}
		return nil
	}
	for _, share := range []semel.Share{semel.SharePrincipal, semel.ShareTenant} {
		t.Run(string(share), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{
					{Name: long, Compensation: "refund", Compensate: refund}, {Name: "refund", Share: share, Authorize: authorized},
				}})
				must(t, err)
				c := semel.Call{Tenant: long, Principal: long, Operation: long, Key: strings.Repeat("k", semel.MaxKeyLen)}
				a := begin(t, e, c)
				must(t, a.Complete(t.Context(), data("paid")))
				rec, err := e.Compensate(t.Context(), a.ID(), "operator", "by mistake")
				must(t, err)
				by, err := e.Lookup(t.Context(), rec.Compensation.ID(long))
				if must(t, err); string(by.Result.Data) != "unpaid" || by.Principal != "operator" || by.ID != rec.Compensation.ID(long) || (by.ID.Principal == "") != (share == semel.ShareTenant) {
					t.Errorf("the compensating record: %+v", by)
				}
				back, err := store.DecodeID(by.Attributes[semel.AttributeCompensates])
				if must(t, err); back != a.ID() {
					t.Errorf("it leads back to %+v", back)
				}
				must(t, e.Close(context.Background()))
			})
		})
	}
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		for name, n := range map[string]int{semel.AttributeCompensates: 2404, "other": 1024} {
			for over, want := range map[int]semel.Code{0: "", 1: semel.CodeInvalidCall} {
				c := call(name + fmt.Sprint(over))
				c.Attributes = store.Attributes{name: strings.Repeat("x", n+over)}
				if _, err := r.Begin(t.Context(), c); want != "" {
					wantCode(t, err, want)
				} else {
					must(t, err)
				}
			}
		}
	})
}

func TestWhatCannotBeCompensated(t *testing.T) {
	refund := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return data("x"), nil }
	undo(t, semel.Operation{}, refund, func(t *testing.T, e *semel.Engine, _ *memstore.Store) {
		_, err := e.Compensate(t.Context(), id("k"), "", "")
		wantCode(t, err, semel.CodeNotFound)
		a := begin(t, e, call("k"))
		_, err = e.Compensate(t.Context(), id("k"), "", "")
		wantCode(t, err, semel.CodeIllegalTransition)
		must(t, a.Reject(t.Context(), store.Failure{}, semel.Result{}))
		_, err = e.Compensate(t.Context(), id("k"), "", "")
		wantCode(t, err, semel.CodeIllegalTransition)
		_, err = e.Compensate(t.Context(), semel.ID{Operation: "refund", Key: "k"}, "", "")
		wantCode(t, err, semel.CodeUnsupported)

		other := call("k2")
		must(t, begin(t, e, other).Complete(t.Context(), data("x")))
		for _, by := range []semel.Operation{
			{Name: "refund", Class: semel.ReadOnly},
			{Name: "refund", Confirmation: &semel.ConfirmationPolicy{}},
		} {
			must(t, e.Register(by))
			_, err = e.Compensate(t.Context(), id("k2"), "", "")
			wantCode(t, err, semel.CodeInvalidOperation)
		}
		must(t, e.Register(semel.Operation{Name: "op", Compensation: "nowhere", Compensate: refund}))
		_, err = e.Compensate(t.Context(), id("k2"), "", "")
		wantCode(t, err, semel.CodeUnknownOperation)
		rec, err := e.Lookup(t.Context(), id("k2"))
		if must(t, err); rec.Compensation != nil {
			t.Errorf("something was started: %+v", rec.Compensation)
		}
	})
	for _, op := range []semel.Operation{{Name: "op", Compensation: "op", Compensate: refund}, {Name: "op", Compensation: "x"}, {Name: "op", Compensate: refund}} {
		wantCode(t, op.Validate(), semel.CodeInvalidOperation)
	}
}

func TestTwoWhoCompensateAtOnce(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	var runs atomic.Int32
	refund := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		runs.Add(1)
		<-time.After(time.Second)
		return data("x"), nil
	}
	undo(t, semel.Operation{}, refund, func(t *testing.T, e *semel.Engine, _ *memstore.Store) {
		paid(t, e)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_, err := e.Compensate(t.Context(), id("k"), fmt.Sprint("operator", i), "")
				if err != nil && !errors.Is(err, semel.ErrInFlight) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		rec, err := e.Compensate(t.Context(), id("k"), "late", "")
		if must(t, err); runs.Load() != 1 || rec.Compensation.State != store.CompensationDone {
			t.Errorf("undone %d times: %+v", runs.Load(), rec.Compensation)
		}
	})
}

func TestACompensationThatFailed(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	for _, c := range []struct {
		name   string
		by     semel.Operation
		effect bool
		code   semel.Code // of the second time
	}{
		{"is another call where nothing happened", semel.Operation{}, false, ""},
		{"is not repeated where something happened", semel.Operation{}, true, semel.CodeIllegalTransition},
		{"goes on where failures are retried", semel.Operation{OnFailure: semel.RetryFailure}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			effects, fail := 0, true
			refund := func(ctx context.Context, x semel.Execution, _ semel.Record) (semel.Result, error) {
				if c.effect {
					if _, err := semel.Effect(ctx, x, "pay back", func(context.Context, string) (int, error) { effects++; return 1, nil }); err != nil {
						return semel.Result{}, err
					}
				}
				if fail {
					return semel.Result{}, errors.New("no")
				}
				return data("x"), nil
			}
			undo(t, c.by, refund, func(t *testing.T, e *semel.Engine, _ *memstore.Store) {
				paid(t, e)
				rec, err := e.Compensate(t.Context(), id("k"), "one", "")
				if wantCode(t, err, semel.CodeFailed); rec.Compensation.State != store.CompensationFailed || rec.Compensation.Failure == nil {
					t.Fatalf("got %+v", rec.Compensation)
				}
				fail = false
				pass(time.Minute)
				_, err = e.Sweep(t.Context())
				must(t, err)
				rec, err = e.Compensate(t.Context(), id("k"), "two", "")
				if c.code != "" {
					wantCode(t, err, c.code)
				} else if must(t, err); rec.Compensation.State != store.CompensationDone || rec.Compensation.Failure != nil {
					t.Errorf("got %+v", rec.Compensation)
				}
				if effects > 1 {
					t.Errorf("it was paid back %d times", effects)
				}
			})
		})
	}
}

// A compensation that was held for long, and is then settled, doesn't run again, although its
// operation's window is shorter than the pause until the original looks at it, or than an outage.
func TestAShortWindowOfACompensation(t *testing.T) {
	runs := 0
	refund := func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		runs++
		return semel.Result{}, semel.Unknown(errors.New("no answer"))
	}
	undo(t, semel.Operation{Window: 10 * time.Minute}, refund, func(t *testing.T, e *semel.Engine, _ *memstore.Store) {
		paid(t, e)
		_, err := e.Compensate(t.Context(), id("k"), "operator", "by mistake")
		wantCode(t, err, semel.CodeUnknown)
		for range 5 * 60 {
			pass(time.Minute)
			_, err := e.Sweep(t.Context())
			must(t, err)
		}
		rec, err := e.Lookup(t.Context(), id("k"))
		must(t, err)
		_, err = e.Settle(t.Context(), rec.Compensation.ID("t"), semel.Settlement{Outcome: semel.DispositionCompleted}, "the bank says so")
		must(t, err)
		pass(3 * 24 * time.Hour) // nothing runs over the weekend
		for range 2 {            // the first finds what is due, and it may purge
			_, err = e.Sweep(t.Context())
			must(t, err)
			synctest.Wait()
		}
		if rec, err = e.Lookup(t.Context(), id("k")); err == nil && rec.Compensation.State != store.CompensationDone || runs != 1 {
			t.Errorf("it ran %d times: %+v, %v", runs, rec.Compensation, err)
		}
	})
}

// A crash at every call to the store leaves a compensation that another process
// brings to its end, once.
func TestCompensationAtEveryPoint(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	live := func(t *testing.T, at int, m mode, seed uint64) (n int, fired bool) {
		synctest.Test(t, func(t *testing.T) {
			disk := newHistory(t, disks["memstore"]())
			var refunds atomic.Int32
			refund := func(ctx context.Context, x semel.Execution, _ semel.Record) (semel.Result, error) {
				_, err := semel.Effect(ctx, x, "pay back", func(context.Context, string) (int, error) { refunds.Add(1); return 1, nil })
				if errors.Is(err, errInjected) {
					err = semel.Unknown(err)
				}
				return data("x"), err
			}
			asked := semel.Operation{
				Evidence: semel.EvidenceChanges, Effects: []string{"pay back"}, Lease: 3 * time.Second, OnFailure: semel.RetryFailure, Window: time.Hour,
				Reconcile: func(_ context.Context, held semel.Record) (semel.Settlement, error) {
					f := store.EffectFinding{Name: "pay back", State: store.EffectRefuted}
					if refunds.Load() > 0 {
						f.State, f.Result = store.EffectConfirmed, data("1")
					}
					if len(held.Effects) == 0 || held.Effects[0].State != store.EffectStarted {
						return semel.Settlement{Outcome: semel.DispositionAbandoned}, nil
					}
					return semel.Settlement{Effects: []store.EffectFinding{f}}, nil
				},
			}
			newEngine := func(p *process) *semel.Engine {
				p.t, p.disk = t, disk
				e, err := semel.New(p, &semel.Options{Operations: undoing(refund, asked), Witness: &scribe{}})
				must(t, err)
				return e
			}
			sound := newEngine(&process{})
			paid(t, sound)
			p := &process{at: at, mode: m, rng: rand.New(rand.NewPCG(seed, uint64(at)))}
			first := newEngine(p)
			go func() {
				if _, err := first.Compensate(t.Context(), id("k"), "operator", ""); err != nil && at == 0 {
					t.Error(err)
				}
				runtime.Goexit()
			}()
			pass(100 * time.Millisecond)
			names, done := p.seen()
			n, fired = len(names), done
			for range 150 {
				_, err := sound.Sweep(t.Context())
				must(t, err)
				pass(time.Second)
			}
			rec, err := sound.Lookup(t.Context(), id("k"))
			if must(t, err); rec.Compensation != nil && rec.Compensation.State != store.CompensationDone {
				t.Errorf("point %d (%s), %s: what was started was not brought to its end: %+v", at, names[len(names)-1], m, rec.Compensation)
			}
			// What was never linked was never started; whoever asked asks again.
			rec, err = sound.Compensate(t.Context(), id("k"), "operator", "")
			if err != nil || rec.Compensation.State != store.CompensationDone {
				t.Errorf("point %d (%s), %s: %+v, %v", at, names[len(names)-1], m, rec.Compensation, err)
			}
			if refunds.Load() != 1 {
				t.Errorf("point %d, %s: paid back %d times; %q", at, m, refunds.Load(), names)
			}
			disk.check(t)
			must(t, first.Close(context.Background()))
			must(t, sound.Close(context.Background()))
		})
		return n, fired
	}
	n, _ := live(t, 0, "", 0)
	if n < 10 {
		t.Fatalf("only %d points", n)
	}
	for at := 1; at <= n; at++ {
		for _, m := range modes {
			for seed := range uint64(3) {
				if _, fired := live(t, at, m, seed); !fired {
					t.Errorf("point %d, %s did not fire", at, m)
				}
			}
		}
	}
	t.Logf("%d points, %d ways, 3 times each", n, len(modes))
}
