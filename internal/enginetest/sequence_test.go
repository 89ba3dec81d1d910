package enginetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func numbered(key string, n uint64) semel.Call {
	c := call(key)
	c.Sequence = n
	c.Fingerprint = payload(fmt.Sprint(n))
	return c
}

// done runs a number to its end.
func runs(t *testing.T, e *semel.Engine, n uint64) {
	t.Helper()
	must(t, begin(t, e, numbered("k", n)).Complete(t.Context(), data(fmt.Sprint("result ", n))))
}

func TestOlderNumbersAreSuperseded(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2", "MAP-SESS.4")
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 1)
		runs(t, r.Engine, 3)
		runs(t, r.Engine, 7)
		for n, want := range map[uint64]semel.Decision{1: semel.Replay, 2: semel.Superseded, 3: semel.Replay, 6: semel.Superseded, 7: semel.Replay} {
			ans := decides(t, r.Engine, numbered("k", n), want)
			if want == semel.Replay && string(ans.Record.Result.Data) != fmt.Sprint("result ", n) {
				t.Errorf("number %d gets %q", n, ans.Record.Result.Data)
			}
			if want == semel.Superseded && (ans.Record.Sequence != 7 || ans.Record.Fence != 0) {
				t.Errorf("number %d is told %+v", n, ans.Record)
			}
		}
		ans := decides(t, r.Engine, numbered("k", 2), semel.Superseded)
		wantCode(t, ans.Err(), semel.CodeSuperseded)

		other := numbered("k", 3)
		other.Fingerprint = payload("other")
		decides(t, r.Engine, other, semel.Conflict)
		must(t, begin(t, r.Engine, numbered("another key", 1)).Complete(t.Context(), semel.Result{}))
	})
}

func TestOneNumberAtATime(t *testing.T) {
	clause.Proves(t, "MAP-SESS.2")
	inBubble(t, semel.Operation{Sequenced: true, MaxWait: time.Minute}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, numbered("k", 4))
		decides(t, r.Engine, numbered("k", 5), semel.InFlight)
		decides(t, r.Engine, numbered("k", 3), semel.InFlight) // 4 may end without an effect
		time.AfterFunc(10*time.Second, func() { _ = a.Complete(context.Background(), data("4")) })
		waits := numbered("k", 5)
		waits.Wait = time.Minute
		b := begin(t, r.second(t), waits)
		if b.Record().Sequence != 5 || b.Number() != 1 || b.Record().Fence <= a.Record().Fence {
			t.Errorf("got %+v", b.Record())
		}
		must(t, b.Abort(t.Context(), store.Failure{Message: "nothing happened"}))
		runs(t, r.Engine, 5) // once more
		decides(t, r.Engine, numbered("k", 4), semel.Replay)
	})
}

func TestAHeldNumberStopsItsSequence(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		begin(t, r.Engine, numbered("k", 1)).Detach()
		next := r.second(t)
		pass(time.Minute)
		decides(t, next, numbered("k", 2), semel.Held)
		decides(t, next, numbered("k", 1), semel.Held)
		_, err := next.Settle(t.Context(), id("k").Numbered(1), semel.Settlement{Outcome: semel.DispositionCompleted, Result: data("found")}, "seen")
		must(t, err)
		runs(t, next, 2)
		decides(t, next, numbered("k", 1), semel.Replay)
	})
}

func TestSequencesWithoutGaps(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Gapless: true, MaxWait: time.Minute}, func(t *testing.T, r *rig) {
		ans := decides(t, r.Engine, numbered("k", 2), semel.SequenceGap)
		if ans.RetryAfter <= 0 || ans.Record.Sequence != 1 {
			t.Errorf("told to come back after %v, and that %d comes next", ans.RetryAfter, ans.Record.Sequence)
		}
		wantCode(t, ans.Err(), semel.CodeSequenceGap)
		order := make(chan uint64, 3)
		var wg sync.WaitGroup
		for _, n := range []uint64{3, 2, 1} {
			c := numbered("k", n)
			c.Wait = time.Minute
			wg.Go(func() {
				_, err := r.Do(context.Background(), c, func(context.Context, semel.Execution) (semel.Result, error) {
					order <- n
					<-time.After(time.Second)
					return semel.Result{}, nil
				})
				if err != nil {
					t.Error(n, err)
				}
			})
			pass(time.Second)
		}
		for want := range uint64(3) {
			if n := <-order; n != want+1 {
				t.Errorf("number %d ran at place %d", n, want+1)
			}
		}
		wg.Wait()
		a := begin(t, r.Engine, numbered("k", 4))
		must(t, a.Abort(t.Context(), store.Failure{Message: "nothing happened"}))
		decides(t, r.Engine, numbered("k", 5), semel.SequenceGap) // 4 has no outcome
		runs(t, r.Engine, 4)
		runs(t, r.Engine, 5)
	})
}

func TestANumberWaitsForTheMessagesBeforeIt(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, numbered("k", 1))
		must(t, a.Send(semel.Message{Name: "m", Destination: "d"}))
		must(t, a.Complete(t.Context(), semel.Result{}))
		decides(t, r.Engine, numbered("k", 2), semel.InFlight)
	})
}

func TestSequenceAndCallGoTogether(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		for _, c := range []semel.Call{call("k"), numbered("k"+store.ScopeMark+"1", 1), numbered(string(make([]byte, store.MaxKeyLen)), 1)} {
			_, err := r.Begin(t.Context(), c)
			wantCode(t, err, semel.CodeInvalidCall)
		}
	})
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		_, err := r.Begin(t.Context(), numbered("k", 1))
		wantCode(t, err, semel.CodeInvalidCall)
	})
	for _, op := range []semel.Operation{
		{Name: "op", Gapless: true},
		{Name: "op", Sequenced: true, Class: semel.ReadOnly},
		{Name: "op", Sequenced: true, Confirmation: &semel.ConfirmationPolicy{}},
	} {
		wantCode(t, op.Validate(), semel.CodeInvalidOperation)
	}
}

// beforeMark calls a function before the mark of a sequence is first written.
type beforeMark struct {
	semel.Store
	once sync.Once
	do   func()
}

func (s *beforeMark) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if w.Record.Mark != nil {
		s.once.Do(s.do)
	}
	return s.Store.Apply(ctx, w)
}

// A claim that the mark doesn't name has not begun, so its payload is held against nobody.
func TestAClaimBeforeItsMarkIsNoConflict(t *testing.T) {
	st := memstore.New()
	ops := &semel.Options{Operations: []semel.Operation{{Name: "op", Sequenced: true}}}
	other, err := semel.New(st, ops)
	must(t, err)
	another := numbered("k", 1)
	another.Fingerprint = payload("another")
	decided := func() semel.Decision {
		ans, err := other.Begin(t.Context(), another)
		must(t, err)
		return ans.Decision
	}
	e, err := semel.New(&beforeMark{Store: st, do: func() {
		if got := decided(); got != semel.InFlight {
			t.Errorf("while the claim may be given back, another payload gets %s", got)
		}
	}}, ops)
	must(t, err)
	ans, err := e.Begin(t.Context(), numbered("k", 1))
	must(t, err)
	if got := decided(); ans.Decision != semel.Execute || got != semel.Conflict {
		t.Errorf("%s, and then another payload gets %s", ans.Decision, got)
	}
}
