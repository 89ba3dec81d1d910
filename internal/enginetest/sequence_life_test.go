package enginetest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// What happens to one number of a sequence never changes the outcome of another.

func TestANumberIsReplayedForItsOwnWindow(t *testing.T) {
	clause.Proves(t, "MAP-SESS.4")
	inBubble(t, semel.Operation{Sequenced: true, Window: 30 * 24 * time.Hour}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 5)
		short := numbered("k", 6)
		short.Window = time.Hour
		must(t, begin(t, r.Engine, short).Complete(t.Context(), data("6")))
		pass(2 * time.Hour)
		sweepTogether(t, r.Engine)
		decides(t, r.Engine, numbered("k", 5), semel.Replay)
		decides(t, r.Engine, numbered("k", 4), semel.Superseded) // 5 is known
	})
}

func TestAShorterWindowAfterAReload(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Window: 30 * 24 * time.Hour}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 5)
		must(t, r.Register(semel.Operation{Name: "op", Sequenced: true, Window: time.Hour}))
		runs(t, r.Engine, 6)
		pass(2 * time.Hour)
		sweepTogether(t, r.Engine)
		decides(t, r.Engine, numbered("k", 5), semel.Replay)
	})
}

func TestASequenceIsForgottenWithItsNumbers(t *testing.T) {
	for _, gapless := range []bool{false, true} {
		inBubble(t, semel.Operation{Sequenced: true, Gapless: gapless, Window: time.Hour}, func(t *testing.T, r *rig) {
			for n := range uint64(3) {
				runs(t, r.Engine, n+1)
			}
			pass(2 * time.Hour)
			if gapless { // also before a sweep
				if ans := decides(t, r.Engine, numbered("k", 4), semel.SequenceGap); ans.Record.Sequence != 1 {
					t.Errorf("told that %d comes next", ans.Record.Sequence)
				}
			}
			for range 3 {
				sweepTogether(t, r.Engine)
				pass(time.Hour)
			}
			if n := r.store.Len(); n != 0 {
				t.Errorf("%d records are left", n)
			}
			runs(t, r.Engine, 1)
		})
	}
}

func TestAMarkIsKeptAsLongAsItsNewestNumber(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Window: time.Hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, numbered("k", 7))
		for range 5 { // it runs for hours
			pass(time.Hour)
			sweepTogether(t, r.Engine)
		}
		must(t, a.Complete(t.Context(), data("7")))
		pass(30 * time.Minute)
		sweepTogether(t, r.Engine)
		decides(t, r.Engine, numbered("k", 6), semel.Superseded)
	})
}

func TestPurgingOneNumber(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		for n := range uint64(3) {
			runs(t, r.Engine, n+1)
		}
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k").Numbered(3), semel.Removal{Reason: "it was wrong"}))
		decides(t, r.Engine, numbered("k", 1), semel.Replay)
		decides(t, r.Engine, numbered("k", 2), semel.Replay)
		runs(t, r.Engine, 3)
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k").Numbered(2), semel.Removal{Reason: "it was wrong"}))
		decides(t, r.Engine, numbered("k", 2), semel.Superseded)
		runs(t, r.Engine, 7)
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k").Numbered(7), semel.Removal{Reason: "it was wrong"}))
		decides(t, r.Engine, numbered("k", 5), semel.Superseded) // 7 had an effect, although its record is gone
		runs(t, r.Engine, 7)
	})
}

func TestPurgingAWholeSequence(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		for n := range uint64(3) {
			runs(t, r.Engine, n+1)
		}
		running := begin(t, r.Engine, numbered("k", 4))
		pass(3 * time.Second)
		wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "forget me"}), semel.CodeIllegalTransition)
		must(t, running.Complete(t.Context(), semel.Result{}))
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "forget me"}))
		if n := r.store.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
		wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{}), semel.CodeNotFound)
	})
}

// A number that ended without an effect moves nothing, whoever sent it.
func TestANumberWithoutAnEffectMovesNothing(t *testing.T) {
	ends := map[string]func(ctx context.Context, a *semel.Attempt) error{
		"aborted": func(ctx context.Context, a *semel.Attempt) error { return a.Abort(ctx, store.Failure{Code: "401"}) },
		"rejected": func(ctx context.Context, a *semel.Attempt) error {
			return a.Reject(ctx, store.Failure{Code: "403"}, data("no"))
		},
	}
	by := func(caller string, n uint64) semel.Call {
		c := numbered("k", n)
		if c.BoundTo = caller; caller == "stranger" {
			c.Window = time.Hour
		}
		return c
	}
	for name, ending := range ends {
		for _, gapless := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " gapless ", gapless), func(t *testing.T) {
				inBubble(t, semel.Operation{Sequenced: true, Gapless: gapless}, func(t *testing.T, r *rig) {
					for n := range uint64(2) {
						high := 1<<64 - 1 - n
						if gapless {
							high = n + 1
						}
						must(t, ending(t.Context(), begin(t, r.Engine, by("stranger", high))))
						if n == 1 { // the stranger's records go, and take nothing with them
							pass(2 * time.Hour)
							sweepTogether(t, r.Engine)
						}
						must(t, begin(t, r.Engine, by("owner", n+1)).Complete(t.Context(), data("x")))
					}
				})
			})
		}
	}
}

// Each number has a caller of its own: not executing needs no proof of who asks, and a credential
// may be renewed between two numbers.
func TestASequenceGoesOnUnderARenewedCredential(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Gapless: true}, func(t *testing.T, r *rig) {
		for n := range uint64(3) {
			c := numbered("k", n+1)
			c.BoundTo = fmt.Sprint("token ", n)
			must(t, begin(t, r.Engine, c).Complete(t.Context(), data("x")))
		}
		again := numbered("k", 1)
		again.BoundTo = "token 2"
		decides(t, r.Engine, again, semel.OtherCaller)
	})
}

// An attempt may follow a failure until a later number has begun, and then its number has an
// outcome or none, but never two.
func TestAFailedNumberRunsAgainInItsPlace(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		other := r.second(t)
		must(t, begin(t, r.Engine, numbered("k", 1)).Fail(t.Context(), store.Failure{Code: "later"}, semel.Result{}))
		a := begin(t, other, numbered("k", 1))
		decides(t, r.Engine, numbered("k", 2), semel.InFlight)
		must(t, a.Complete(t.Context(), data("one")))
		runs(t, r.Engine, 2)
		decides(t, r.Engine, numbered("k", 1), semel.Replay)
		must(t, begin(t, r.Engine, numbered("k", 3)).Fail(t.Context(), store.Failure{Code: "later"}, semel.Result{}))
		runs(t, r.Engine, 4)
		decides(t, r.Engine, numbered("k", 3), semel.Superseded)
	})
}

func TestCompensatingANumber(t *testing.T) {
	undone := 0
	op := semel.Operation{Sequenced: true, Compensation: "undo", Compensate: func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		undone++
		return semel.Result{}, nil
	}}
	inBubbleWith(t, semel.Options{Operations: []semel.Operation{{Name: "undo"}}}, op, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 1)
		runs(t, r.Engine, 2)
		rec, err := r.Compensate(t.Context(), id("k").Numbered(1), "p", "wrong")
		must(t, err)
		if rec.Compensation.State != store.CompensationDone {
			t.Error(rec.Compensation)
		}
		runs(t, r.Engine, 3)
		decides(t, r.Engine, numbered("k", 1), semel.Replay)
		_, err = r.Compensate(t.Context(), id("k").Numbered(1), "p", "wrong")
		must(t, err)
		if undone != 1 {
			t.Errorf("number 1 was compensated %d times", undone)
		}
	})
}

func TestFindingTheNumbersOfASequence(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		for n := range uint64(3) {
			runs(t, r.Engine, n+1)
		}
		_, err := r.Lookup(t.Context(), id("k"))
		wantCode(t, err, semel.CodeNotFound)
		found := map[uint64]int{}
		for q := (store.Query{Key: "k", Limit: 2}); ; {
			page, err := r.Search(t.Context(), q)
			must(t, err)
			for i := range page.Records {
				found[page.Records[i].Sequence]++
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if fmt.Sprint(found) != "map[1:1 2:1 3:1]" {
			t.Errorf("found %v", found)
		}
		page, err := r.Search(t.Context(), store.Query{})
		must(t, err)
		if len(page.Records) != 3 {
			t.Errorf("%d records are listed", len(page.Records))
		}
		ans, err := r.Internal().Peek(t.Context(), numbered("k", 2))
		must(t, err)
		after, err := r.Internal().Peek(t.Context(), numbered("k", 4))
		must(t, err)
		gone, err := r.Internal().Peek(t.Context(), numbered("other", 1))
		must(t, err)
		if ans.Decision != semel.Replay || after.Decision != semel.Execute || gone.Decision != semel.Execute {
			t.Error(ans.Decision, after.Decision, gone.Decision)
		}
	})
}

// hooked calls functions once, before and after the write of a record with an identity.
type hooked struct {
	semel.Store
	id            semel.ID
	before, after func()
}

func (s *hooked) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if f := s.before; f != nil && w.Record.ID == s.id {
		s.before = nil
		f()
	}
	rec, applied, err := s.Store.Apply(ctx, w)
	if f := s.after; f != nil && w.Record.ID == s.id {
		s.after = nil
		f()
	}
	return rec, applied, err
}

// Of two numbers that begin at the same time one finds the mark moved, and gives its claim back.
func TestTwoNumbersBeginAtOnce(t *testing.T) {
	for _, first := range []uint64{2, 4} {
		synctest.Test(t, func(t *testing.T) {
			mem := memstore.New()
			st := &hooked{Store: mem, id: id("k")}
			opts := semel.Options{Operations: []semel.Operation{{Name: "op", Sequenced: true}}}
			e, err := semel.New(st, &opts)
			must(t, err)
			other, err := semel.New(mem, &opts)
			must(t, err)
			runs(t, e, 1)
			var rival *semel.Attempt
			st.before = func() { rival = begin(t, other, numbered("k", 3)) } // 2 or 4 is claimed, and the mark is at 1
			decides(t, e, numbered("k", first), semel.InFlight)
			must(t, rival.Complete(t.Context(), data("3")))
			if first == 2 {
				decides(t, e, numbered("k", 2), semel.Superseded)
			} else {
				runs(t, e, 4)
			}
		})
	}
}

// A sequence in the form of the version before: its newest number has the identity of the sequence.
func TestOlderSequencesGoOn(t *testing.T) {
	older := func(t *testing.T, r *rig, n uint64) { // makes it of number n
		t.Helper()
		for _, from := range []semel.ID{id("k").Numbered(n), id("k")} {
			rec, err := r.store.Get(t.Context(), from)
			must(t, err)
			if n, err := r.store.Extras().Purge.Purge(t.Context(), []store.Ref{{ID: from, Revision: rec.Revision}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if from == id("k") {
				return
			}
			moved := *rec
			moved.ID = id("k")
			defer func() {
				if _, ok, err := r.store.Apply(t.Context(), store.Write{Record: &moved}); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}()
		}
	}
	inBubble(t, semel.Operation{Sequenced: true, Gapless: true}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 1)
		runs(t, r.Engine, 2)
		older(t, r, 2)
		for n := range uint64(2) {
			decides(t, r.Engine, numbered("k", n+1), semel.Replay)
		}
		decides(t, r.Engine, numbered("k", 4), semel.SequenceGap)
		runs(t, r.Engine, 3)
		for n := range uint64(3) {
			ans := decides(t, r.Engine, numbered("k", n+1), semel.Replay)
			if string(ans.Record.Result.Data) != fmt.Sprint("result ", n+1) {
				t.Errorf("number %d gets %q", n+1, ans.Record.Result.Data)
			}
		}
	})
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) { // held and settled
		runs(t, r.Engine, 1)
		must(t, begin(t, r.Engine, numbered("k", 2)).Hold(t.Context(), "nobody knows"))
		older(t, r, 2)
		decides(t, r.Engine, numbered("k", 3), semel.Held)
		decides(t, r.Engine, numbered("k", 2), semel.Held)
		_, err := r.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionAborted}, "it never came")
		must(t, err)
		a := begin(t, r.Engine, numbered("k", 2))
		decides(t, r.Engine, numbered("k", 3), semel.InFlight)
		must(t, a.Complete(t.Context(), data("two")))
		runs(t, r.Engine, 3)
		if ans := decides(t, r.Engine, numbered("k", 2), semel.Replay); string(ans.Record.Result.Data) != "two" {
			t.Errorf("got %q", ans.Record.Result.Data)
		}
		decides(t, r.Engine, numbered("k", 1), semel.Replay)
	})
	for _, gapless := range []bool{false, true} { // what was kept of a number may be out of date
		inBubble(t, semel.Operation{Sequenced: true, Gapless: gapless, OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
			must(t, begin(t, r.Engine, numbered("k", 1)).Fail(t.Context(), store.Failure{Code: "later"}, semel.Result{}))
			must(t, begin(t, r.Engine, numbered("k", 2)).Abort(t.Context(), store.Failure{Code: "nothing"}))
			older(t, r, 2)
			decides(t, r.Engine, numbered("k", 1), semel.Superseded)
			if gapless {
				decides(t, r.Engine, numbered("k", 3), semel.SequenceGap)
			}
			runs(t, r.Engine, 2)
			must(t, begin(t, r.Engine, numbered("k", 3)).Abort(t.Context(), store.Failure{Code: "nothing"}))
			decides(t, r.Engine, numbered("k", 1), semel.Superseded)
			decides(t, r.Engine, numbered("k", 2), semel.Replay)
		})
	}
	inBubble(t, semel.Operation{Sequenced: true, Window: time.Hour}, func(t *testing.T, r *rig) { // forgotten
		runs(t, r.Engine, 2)
		older(t, r, 2)
		pass(2 * time.Hour)
		runs(t, r.Engine, 1)
	})
}

// A delivery waits for its number in the form of the version before, and meanwhile the next number
// takes that place, or the mark does. It gets what its own number has, also if the payloads are equal.
func TestADeliveryThatWaitsForAnOlderNumber(t *testing.T) {
	for _, marked := range []bool{false, true} {
		inBubble(t, semel.Operation{Sequenced: true, MaxWait: time.Minute}, func(t *testing.T, r *rig) {
			stored := func(key string, n uint64) store.Record {
				t.Helper()
				rec, err := r.store.Get(t.Context(), id(key).Numbered(n))
				must(t, err)
				return *rec
			}
			put := func(rec store.Record, as semel.ID, over store.Revision) {
				t.Helper()
				rec.ID, rec.Fingerprint = as, payload("x")
				if _, ok, err := r.store.Apply(t.Context(), store.Write{Record: &rec, Expect: over}); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			for n := range uint64(2) { // what the others will write
				c := numbered("other", n+1)
				must(t, begin(t, r.Engine, c).Complete(t.Context(), data(fmt.Sprint("result ", n+1))))
			}
			begin(t, r.Engine, numbered("running", 1)).Detach()
			running := stored("running", 1)
			put(running, id("k"), store.Revision{})

			got := make(chan semel.Answer, 1)
			go func() {
				c := numbered("k", 1)
				c.Fingerprint, c.Wait = payload("x"), 20*time.Second
				ans, err := r.second(t).Begin(t.Context(), c)
				if err != nil {
					t.Error(err)
				}
				got <- ans
			}()
			pass(time.Second)
			put(stored("other", 1), id("k").Numbered(1), store.Revision{})
			next := stored("other", 2)
			if marked {
				put(next, id("k").Numbered(2), store.Revision{})
				next = *store.NewMark(id("k"), store.Mark{Begun: 1, Newest: 2}, next.Fence, next.UpdatedAt)
				next.Revision, next.ExpiresAt = store.Revision{1}, stored("other", 2).ExpiresAt
			}
			put(next, id("k"), running.Revision)
			if ans := <-got; ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "result 1" {
				t.Errorf("marked %v: %s, %q", marked, ans.Decision, ans.Record.Result.Data)
			}
		})
	}
}

// A claim whose mark wasn't moved was given to nobody, so its holder doesn't get it back while
// another number runs, or after one has run.
func TestAClaimWithoutItsMarkIsNotGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		wrapped, faults := faultstore.New(mem, nil)
		opts := semel.Options{Operations: []semel.Operation{{Name: "op", Sequenced: true}}, StoreTimeout: time.Second}
		st := &hooked{Store: wrapped, id: id("k")}
		e, err := semel.New(st, &opts)
		must(t, err)
		other, err := semel.New(mem, &opts)
		must(t, err)
		first := numbered("k", 1)
		first.Holder = "worker"
		st.before = func() { faults.Cut(faultstore.NotApplied) } // when the mark is to be moved
		_, err = e.Begin(t.Context(), first)
		wantCode(t, err, semel.CodeStoreUnavailable)
		runs(t, other, 2)
		decides(t, other, first, semel.InFlight)
		if a, err := other.Internal().Reclaim(t.Context(), first); a != nil || err != nil {
			t.Errorf("given again after number 2: %v, %v", a, err)
		}
		faults.Heal()
		third := numbered("k", 3)
		third.Holder = "worker"
		a := begin(t, other, third)
		if again, err := other.Internal().Reclaim(t.Context(), third); again == nil || err != nil || again.Fence() != a.Fence() {
			t.Errorf("its holder doesn't get it again: %v, %v", again, err)
		}
		must(t, e.Close(t.Context()))
	})
}

// A number that runs while its duplicate is looked at isn't superseded by those after it.
func TestANumberThatRanMeanwhileIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New()
		st := &reading{Store: mem, id: id("k").Numbered(4)}
		opts := semel.Options{Operations: []semel.Operation{{Name: "op", Sequenced: true}}}
		e, err := semel.New(st, &opts)
		must(t, err)
		other, err := semel.New(mem, &opts)
		must(t, err)
		st.after = func() { // the duplicate has found nothing
			runs(t, other, 4)
			runs(t, other, 5)
		}
		decides(t, e, numbered("k", 4), semel.Replay)
	})
}

// reading calls a function once, after the read of a record with an identity.
type reading struct {
	semel.Store
	id    semel.ID
	after func()
}

func (s *reading) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if f := s.after; f != nil && id == s.id {
		s.after = nil
		f()
	}
	return rec, err
}

// A number that may run again does so until a later one has had an effect.
func TestANumberRunsAgainAfterLaterOnesWithoutAnEffect(t *testing.T) {
	for _, gapless := range []bool{false, true} {
		inBubble(t, semel.Operation{Sequenced: true, Gapless: gapless, OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
			must(t, begin(t, r.Engine, numbered("k", 1)).Fail(t.Context(), store.Failure{Code: "later"}, semel.Result{}))
			must(t, begin(t, r.Engine, numbered("k", 2)).Reject(t.Context(), store.Failure{Code: "422"}, data("no")))
			must(t, begin(t, r.Engine, numbered("k", 1)).Complete(t.Context(), data("1")))
			decides(t, r.Engine, numbered("k", 2), semel.Replay)
			runs(t, r.Engine, 3)
			decides(t, r.Engine, numbered("k", 1), semel.Replay)
		})
	}
}

// What comes next in a sequence without gaps is what the caller has no outcome of.
func TestTheNumberThatComesNext(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Gapless: true}, func(t *testing.T, r *rig) {
		by := func(caller string, n uint64) semel.Call {
			c := numbered("k", n)
			c.BoundTo = caller
			return c
		}
		must(t, begin(t, r.Engine, by("owner", 1)).Complete(t.Context(), data("1")))
		must(t, begin(t, r.Engine, by("owner", 2)).Reject(t.Context(), store.Failure{Code: "422"}, data("no")))
		must(t, begin(t, r.Engine, by("owner", 3)).Abort(t.Context(), store.Failure{Code: "429"}))
		next := func(caller string, n, want uint64) {
			t.Helper()
			if ans := decides(t, r.Engine, by(caller, n), semel.SequenceGap); ans.Record.Sequence != want {
				t.Errorf("%s is told that %d comes next, not %d", caller, ans.Record.Sequence, want)
			}
		}
		next("owner", 5, 3)
		next("stranger", 5, 2)
		must(t, begin(t, r.Engine, by("stranger", 2)).Abort(t.Context(), store.Failure{Code: "401"}))
		decides(t, r.Engine, by("owner", 2), semel.Replay)
		next("owner", 5, 3)
		must(t, begin(t, r.Engine, by("owner", 3)).Complete(t.Context(), data("3")))
	})
}

// A number that is purged may run again, and ends without an effect. What it did before stands: none
// below it may follow, whenever its next attempt or its process ends.
func TestANumberThatWasPurgedHasHappened(t *testing.T) {
	for _, crash := range []bool{false, true} {
		inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
			runs(t, r.Engine, 1)
			runs(t, r.Engine, 7)
			pass(3 * time.Second)
			must(t, r.Purge(t.Context(), id("k").Numbered(7), semel.Removal{Reason: "it was wrong"}))
			if crash { // between its claim and the mark
				wrapped, faults := faultstore.New(r.store, nil)
				opts := r.opts
				opts.StoreTimeout = time.Second
				e, err := semel.New(&hooked{Store: wrapped, id: id("k").Numbered(7), after: func() { faults.Cut(faultstore.NotApplied) }}, &opts)
				must(t, err)
				_, err = e.Begin(t.Context(), numbered("k", 7))
				wantCode(t, err, semel.CodeStoreUnavailable)
				must(t, e.Close(t.Context()))
				pass(time.Hour)
				decides(t, r.Engine, numbered("k", 7), semel.Held)
				_, err = r.Settle(t.Context(), id("k").Numbered(7), semel.Settlement{Outcome: semel.DispositionAborted}, "it never came")
				must(t, err)
			} else {
				must(t, begin(t, r.Engine, numbered("k", 7)).Abort(t.Context(), store.Failure{Code: "nothing"}))
			}
			decides(t, r.Engine, numbered("k", 6), semel.Superseded)
			runs(t, r.Engine, 7)
			decides(t, r.Engine, numbered("k", 1), semel.Replay)
		})
	}
}

// A number that ended without an effect moves nothing, also when an operator purges it.
func TestPurgingANumberWithoutAnEffect(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true, Gapless: true}, func(t *testing.T, r *rig) {
		for n := range uint64(2) {
			must(t, begin(t, r.Engine, numbered("k", n+1)).Abort(t.Context(), store.Failure{Code: "nothing"}))
			pass(3 * time.Second)
			must(t, r.Purge(t.Context(), id("k").Numbered(n+1), semel.Removal{Reason: "it is in the way"}))
			decides(t, r.Engine, numbered("k", n+2), semel.SequenceGap)
			runs(t, r.Engine, n+1)
		}
		must(t, begin(t, r.Engine, numbered("k", 3)).Abort(t.Context(), store.Failure{Code: "nothing"}))
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "forget me"}))
		if n := r.store.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// A crash leaves a claim without its mark. The sequence can be purged all the same.
func TestPurgingASequenceWithoutAMark(t *testing.T) {
	inBubble(t, semel.Operation{Sequenced: true}, func(t *testing.T, r *rig) {
		runs(t, r.Engine, 1)
		mark, err := r.store.Get(t.Context(), id("k"))
		must(t, err)
		if n, err := r.store.Extras().Purge.Purge(t.Context(), []store.Ref{{ID: mark.ID, Revision: mark.Revision}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		pass(3 * time.Second)
		must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "forget me"}))
		if n := r.store.Len(); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}
