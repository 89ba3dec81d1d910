package enginetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// base is a database with transactions over a store: rows of the application, and
// locks.
type base struct {
	store semel.Store

	mu     sync.Mutex
	locks  map[semel.ID]*baseTx
	bound  map[boundID]*baseTx
	rows   []string
	begun  int
	lost   error // what the next commit says after it has committed
	refuse int   // how many commits are rolled back because of others
	told   []semel.ID
}

func newBase(st semel.Store) *base {
	return &base{store: st, locks: map[semel.ID]*baseTx{}, bound: map[boundID]*baseTx{}}
}

// boundID is the lock of those whose calls are bound to the same.
type boundID struct {
	id semel.ID
	to string
}

func (b *base) begin(context.Context) (store.OwnTx, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	return &baseTx{base: b}, nil
}

var errMet = errors.New("rolled back because of others")

type baseTx struct {
	base   *base
	rows   []string
	writes []store.Write
	saved  int
	over   bool
}

func (x *baseTx) Lock(_ context.Context, id semel.ID, boundTo string) (store.TxLock, error) {
	x.base.mu.Lock()
	defer x.base.mu.Unlock()
	to := boundID{id, boundTo}
	if x.base.locks[id] == x {
		return store.TxBusy, &semel.Error{Code: semel.CodeInvalidCall}
	}
	if x.base.bound[to] != nil && x.base.bound[to] != x {
		return store.TxBusy, nil
	}
	x.base.bound[to] = x
	if x.base.locks[id] != nil {
		return store.TxOther, nil
	}
	x.base.locks[id] = x
	return store.TxLocked, nil
}

func (x *baseTx) Apply(ctx context.Context, w store.Write) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	x.writes = append(x.writes, w)
	return true, nil // the commit finds out
}

func (x *baseTx) Committed(id semel.ID) {
	x.base.mu.Lock()
	defer x.base.mu.Unlock()
	x.base.told = append(x.base.told, id)
}

func (x *baseTx) Save(context.Context) error { x.saved = len(x.rows); return nil }
func (x *baseTx) Undo(context.Context) error { x.rows = x.rows[:x.saved]; return nil }
func (x *baseTx) Again(err error) bool       { return errors.Is(err, errMet) }
func (x *baseTx) Rollback(context.Context)   { x.end() }

func (x *baseTx) end() {
	x.base.mu.Lock()
	defer x.base.mu.Unlock()
	x.over = true
	for id, holder := range x.base.locks {
		if holder == x {
			delete(x.base.locks, id)
		}
	}
	maps.DeleteFunc(x.base.bound, func(_ boundID, holder *baseTx) bool { return holder == x })
}

func (x *baseTx) Commit(ctx context.Context) error {
	if x.over || ctx.Err() != nil {
		return errors.New("it is over")
	}
	defer x.end()
	x.base.mu.Lock()
	defer x.base.mu.Unlock()
	if x.base.refuse > 0 {
		x.base.refuse--
		return errMet
	}
	for _, w := range x.writes {
		if _, applied, err := x.base.store.Apply(ctx, w); err != nil || !applied {
			return errors.Join(errMet, err)
		}
	}
	x.base.rows = append(x.base.rows, x.rows...)
	lost := x.base.lost
	x.base.lost = nil
	return lost
}

// row is a handler that writes one row and returns what it is told.
func row(name string, err error) func(context.Context, store.OwnTx) (semel.Result, error) {
	return func(_ context.Context, tx store.OwnTx) (semel.Result, error) {
		x := tx.(*baseTx)
		x.rows = append(x.rows, name)
		return data(name), err
	}
}

func (b *base) wantRows(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(b.rows, want) {
		t.Errorf("the rows are %v, not %v", b.rows, want)
	}
}

func TestDoTx(t *testing.T) {
	t.Run("a result and its rows are kept together and replayed", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			if err != nil || ans.Decision != semel.Execute || ans.Record.State != semel.Completed || ans.Record.LeaseUntil != 0 {
				t.Fatalf("%+v, %v", ans.Record, err)
			}
			ans, err = r.DoTx(t.Context(), call("k"), b.begin, row("again", nil))
			if err != nil || ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "k" {
				t.Fatalf("%+v, %v", ans, err)
			}
			b.wantRows(t, "k")
			if len(b.told) != 1 || len(b.locks) != 0 {
				t.Errorf("%d were told, and %d locks are left", len(b.told), len(b.locks))
			}
		})
	})
	for _, c := range []struct {
		name string
		err  error
		code semel.Code
		next semel.Decision
	}{
		{"a refusal is kept without its rows", semel.Rejected("no", errors.New("no")), semel.CodeRejected, semel.Replay},
		{"a failure is kept without its rows", semel.Failure(errors.New("no")), semel.CodeFailed, semel.Replay},
		{"a plain error leaves nothing", errors.New("no"), semel.CodeAborted, semel.Execute},
		{"an aborted attempt leaves nothing", semel.Aborted(errors.New("no")), semel.CodeAborted, semel.Execute},
		{"an unknown one leaves nothing", semel.Unknown(errors.New("no")), semel.CodeUnknown, semel.Execute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				b := newBase(r.store)
				_, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", c.err))
				if wantCode(t, err, c.code); !errors.Is(err, c.err) {
					t.Errorf("the cause is lost: %v", err)
				}
				b.wantRows(t)
				if ans, _ := r.DoTx(t.Context(), call("k"), b.begin, row("next", nil)); ans.Decision != c.next {
					t.Errorf("the next delivery gets %v", ans.Decision)
				}
			})
		})
	}
	t.Run("a duplicate is refused at once, and one that waits is woken by the end", func(t *testing.T) {
		inBubble(t, semel.Operation{MaxWait: time.Hour}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := r.DoTx(t.Context(), call("k"), b.begin, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
					pass(10 * time.Minute)
					return row("k", nil)(ctx, tx)
				})
				must(t, err)
			})
			pass(time.Second)
			start := time.Now()
			ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("again", nil))
			if wantCode(t, err, semel.CodeInFlight); time.Since(start) > 0 || ans.RetryAfter <= 0 || ans.Record.ID != id("k") {
				t.Errorf("%+v after %v", ans, time.Since(start))
			}
			short := call("k")
			short.Wait = 3 * time.Second
			_, err = r.DoTx(t.Context(), short, b.begin, row("again", nil))
			if wantCode(t, err, semel.CodeInFlight); time.Since(start) != short.Wait {
				t.Errorf("who waits for 3 seconds was answered after %v", time.Since(start))
			}
			long := call("k")
			long.Wait = time.Hour
			ans, err = r.DoTx(t.Context(), long, b.begin, row("again", nil))
			if err != nil || ans.Decision != semel.Replay || time.Since(start) > 10*time.Minute {
				t.Errorf("who waits gets %+v, %v after %v", ans, err, time.Since(start))
			}
			wg.Wait()
			b.wantRows(t, "k")
		})
	})
	t.Run("a transaction that is rolled back because of others runs again, up to a limit", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			b.refuse = 3
			if ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil)); err != nil || ans.Record.Attempt != 1 || b.begun != 4 {
				t.Errorf("%+v, %v after %d transactions", ans.Record, err, b.begun)
			}
			b.refuse = 1000
			_, err := r.DoTx(t.Context(), call("never"), b.begin, row("never", nil))
			if wantCode(t, err, semel.CodeStoreUnavailable); !errors.Is(err, errMet) || b.begun > 50 {
				t.Errorf("%v after %d transactions", err, b.begun)
			}
			b.wantRows(t, "k")
		})
	})
	t.Run("a commit of unknown fate is told as such and found by the next delivery", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			b.lost = &semel.Error{Code: semel.CodeUnknown}
			ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			if wantCode(t, err, semel.CodeUnknown); ans.Record.State.Terminal() {
				t.Errorf("its answer has an outcome, which may not be there: %+v", ans.Record)
			}
			if ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("again", nil)); err != nil || ans.Decision != semel.Replay {
				t.Errorf("%+v, %v", ans, err)
			}
		})
	})
	t.Run("a caller that hangs up before the outcome is written has everything rolled back", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			ctx, cancel := context.WithCancel(t.Context())
			_, err := r.DoTx(ctx, call("k"), b.begin, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
				cancel()
				return row("k", nil)(ctx, tx)
			})
			wantCode(t, err, semel.CodeStoreUnavailable)
			b.wantRows(t)
			_, err = r.Lookup(t.Context(), id("k"))
			wantCode(t, err, semel.CodeNotFound)
		})
	})
	t.Run("a store that can't say whose a call is gives no answer", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), boundCall("first", "x"), b.begin, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
				r.faults.Next(faultstore.Get, faultstore.NotApplied, 1)
				ans, err := r.DoTx(t.Context(), boundCall("second", "x"), b.begin, row("second", nil))
				if wantCode(t, err, semel.CodeStoreUnavailable); ans.Decision != "" {
					t.Errorf("it is told %s", ans.Decision)
				}
				return row("k", nil)(ctx, tx)
			})
			must(t, err)
			b.wantRows(t, "k")
		})
	})
	t.Run("a store without a clock leaves nothing unknown", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), call("k"), b.begin, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
				r.faults.Next(faultstore.Now, faultstore.NotApplied, 1)
				return row("k", nil)(ctx, tx)
			})
			if wantCode(t, err, semel.CodeStoreUnavailable); errors.Is(err, semel.ErrUnknown) {
				t.Error(err)
			}
			b.wantRows(t)
		})
	})
	t.Run("a plain error of a financial operation is kept without its rows", func(t *testing.T) {
		inBubble(t, semel.Operation{Financial: true}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", errors.New("no")))
			wantCode(t, err, semel.CodeFailed)
			b.wantRows(t)
			decides(t, r.Engine, call("k"), semel.Replay)
		})
	})
	t.Run("a panic leaves nothing and goes on", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			func() {
				defer func() {
					if got := recover(); got != "boom" {
						t.Errorf("recovered %v", got)
					}
				}()
				_, _ = r.DoTx(t.Context(), call("k"), b.begin, func(context.Context, store.OwnTx) (semel.Result, error) { panic("boom") })
			}()
			if rec, err := r.Lookup(t.Context(), id("k")); !errors.Is(err, semel.ErrNotFound) || len(b.locks) != 0 {
				t.Errorf("%+v, %v, %d locks", rec, err, len(b.locks))
			}
		})
	})
	t.Run("an abandoned lease is declared held, whatever becomes of the transaction", func(t *testing.T) {
		inBubble(t, semel.Operation{Lease: time.Second}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			begin(t, r.Engine, call("k")).Detach()
			pass(2 * time.Second)
			ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			wantCode(t, err, semel.CodeHeld)
			if rec, err := r.Lookup(t.Context(), id("k")); err != nil || !rec.Held || ans.Record.Revision != rec.Revision {
				t.Errorf("%+v, %v", rec, err)
			}
			b.wantRows(t)
		})
	})
	t.Run("an abandoned lease that may run again is followed by a second attempt", func(t *testing.T) {
		inBubble(t, semel.Operation{Lease: time.Second, OnAbandoned: semel.RetryAbandoned}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			first := begin(t, r.Engine, call("k"))
			first.Detach()
			pass(2 * time.Second)
			ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			if err != nil || ans.Record.Attempt != 2 || ans.Record.Fence <= first.Fence() {
				t.Fatalf("%+v, %v", ans.Record, err)
			}
			wantCode(t, first.Complete(t.Context(), data("late")), semel.CodeLeaseLost)
			b.wantRows(t, "k")
		})
	})
	t.Run("a result too large to keep goes to the one who ran", func(t *testing.T) {
		inBubble(t, semel.Operation{MaxResult: 2}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			if ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("large", nil)); err != nil || string(ans.Record.Result.Data) != "large" {
				t.Errorf("%+v, %v", ans.Record, err)
			}
			_, err := r.DoTx(t.Context(), call("k"), b.begin, row("large", nil))
			wantCode(t, err, semel.CodeResultNotKept)
		})
	})
	t.Run("a read-only call is run every time and not recorded", func(t *testing.T) {
		inBubble(t, semel.Operation{Class: semel.ReadOnly}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			for range 2 {
				if ans, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil)); err != nil || ans.Decision != semel.Execute {
					t.Errorf("%+v, %v", ans, err)
				}
			}
			b.wantRows(t, "k", "k")
			_, err := r.Lookup(t.Context(), id("k"))
			wantCode(t, err, semel.CodeNotFound)
		})
	})
	t.Run("an invalid call begins nothing", func(t *testing.T) {
		inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			_, err := r.DoTx(t.Context(), semel.Call{Operation: "other", Key: "k"}, b.begin, row("k", nil))
			if wantCode(t, err, semel.CodeUnknownOperation); b.begun != 0 {
				t.Error("a transaction was begun")
			}
		})
	})
}

func TestDoTxEvents(t *testing.T) {
	t.Run("each delivery is told of once, and what was rolled back has no end", func(t *testing.T) {
		var decided []semel.Decision
		var ended []store.Disposition
		opts := semel.Options{Events: &semel.Events{
			Decided: func(ev semel.Decided) { decided = append(decided, ev.Decision) },
			Ended:   func(ev semel.Ended) { ended = append(ended, ev.Disposition) },
		}}
		inBubbleWith(t, opts, semel.Operation{}, func(t *testing.T, r *rig) {
			b := newBase(r.store)
			b.refuse = 2
			_, err := r.DoTx(t.Context(), call("k"), b.begin, row("k", nil))
			must(t, err)
			_, err = r.DoTx(t.Context(), call("k"), b.begin, nil)
			must(t, err)
			_, err = r.DoTx(t.Context(), call("other"), b.begin, row("other", semel.Aborted(errors.New("no"))))
			wantCode(t, err, semel.CodeAborted)
		})
		if !slices.Equal(decided, []semel.Decision{semel.Execute, semel.Replay, semel.Execute}) || !slices.Equal(ended, []store.Disposition{semel.DispositionCompleted}) {
			t.Errorf("decided %v, ended %v", decided, ended)
		}
	})
}

// A handler whose error says that its transaction was rolled back because of others runs
// again, in another one.
func TestAHandlerThatWasRolledBackRunsAgain(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		b := newBase(r.store)
		first := true
		_, err := r.DoTx(t.Context(), call("k"), b.begin, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
			if first {
				first = false
				return semel.Result{}, errMet
			}
			return row("k", nil)(ctx, tx)
		})
		must(t, err)
		b.wantRows(t, "k")
		if b.begun != 2 {
			t.Errorf("%d transactions were begun", b.begun)
		}
	})
}
