package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// remembering is an operation with a window of an hour that remembers calls for a day.
func remembering() semel.Operation {
	return semel.Operation{Window: time.Hour, Remember: 24 * time.Hour}
}

// forgotten expects that the call ran and its answer is gone, and returns the record that says so.
func forgotten(t *testing.T, e *semel.Engine, c semel.Call) *semel.Record {
	t.Helper()
	ans := decides(t, e, c, semel.Replay)
	wantCode(t, ans.Err(), semel.CodeResultNotKept)
	if rec := ans.Record; !rec.OnlyNamed() || rec.Result.Data != nil || rec.Payload != nil {
		t.Fatalf("a delivery after the window got %+v", rec)
	}
	return ans.Record
}

// stored is the record as it lies in the store.
func (r *rig) stored(t *testing.T, c semel.Call) *semel.Record {
	t.Helper()
	rec, err := r.store.Get(t.Context(), c.ID(""))
	must(t, err)
	return rec
}

func TestARememberedCallLosesItsAnswerAndKeepsItsName(t *testing.T) {
	clause.Proves(t, "IDS-VIII.4")
	op := remembering()
	op.KeepPayload, op.Effects = true, []string{"charge"}
	inBubble(t, op, func(t *testing.T, r *rig) {
		c := call("k")
		c.Payload, c.Attributes = []byte("card 4242"), store.Attributes{"order": "o-1"}
		runs := 0
		do := func() (semel.Answer, error) {
			return r.Do(t.Context(), c, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
				runs++
				_, err := semel.Effect(ctx, x, "charge", func(context.Context, string) (string, error) { return "ch_4242", nil })
				return data("paid 4242"), err
			})
		}
		first, err := do()
		must(t, err)
		pass(time.Hour - time.Second)
		decides(t, r.Engine, c, semel.Replay)
		pass(time.Second)
		unswept := forgotten(t, r.Engine, c) // by the clock, though nothing was written
		if seen, err := r.Lookup(t.Context(), c.ID("")); err != nil || !seen.OnlyNamed() {
			t.Errorf("before the sweep, people see %+v, %v", seen, err)
		}
		sweep(t, r, semel.Swept{Due: 1, Forgotten: 1})
		rec := forgotten(t, r.Engine, c)
		if rec.Revision == unswept.Revision || rec.UpdatedAt < unswept.UpdatedAt {
			t.Errorf("the sweep wrote %+v in place of %+v", rec, unswept)
		}
		if text := fmt.Sprintf("%s %+v", rec.Result.Data, *r.stored(t, c)); strings.Contains(text, "4242") {
			t.Errorf("after the window the store has %s", text)
		}
		was := first.Record
		if rec.State != semel.Completed || rec.Disposition != semel.DispositionCompleted || rec.Fingerprint != was.Fingerprint || rec.Fence != was.Fence ||
			rec.EndedAt != was.EndedAt || rec.ExpiresAt != was.EndedAt.Add(24*time.Hour) || rec.AnswerUntil() != was.EndedAt.Add(time.Hour) || rec.Attributes["order"] != "o-1" ||
			len(rec.Effects) != 1 || rec.Effects[0].Key != was.Effects[0].Key || rec.Effects[0].State != store.EffectConfirmed {
			t.Errorf("what stays is %+v, of %+v", rec, was)
		}
		page, err := r.Search(t.Context(), store.Query{Attributes: store.Attributes{"order": "o-1"}, State: semel.Completed})
		if err != nil || len(page.Records) != 1 {
			t.Errorf("a search by its attribute finds %+v, %v", page, err)
		}
		other := c
		other.Fingerprint = payload("another card")
		decides(t, r.Engine, other, semel.Conflict)
		_, err = do()
		e := wantCode(t, err, semel.CodeResultNotKept)
		if want := "ended (completed) at " + was.EndedAt.String() + ", and its answer was kept until " + rec.AnswerUntil().String(); !strings.Contains(e.Message, want) {
			t.Errorf("the refusal says %q, not %q", e.Message, want)
		}
		pass(23*time.Hour - time.Second)
		sweep(t, r, semel.Swept{})
		forgotten(t, r.Engine, c)
		pass(2 * time.Second)
		if _, err := do(); err != nil || runs != 2 {
			t.Errorf("after it is forgotten the call ran %d times, %v", runs, err)
		}
		pass(48 * time.Hour)
		sweep(t, r, semel.Swept{Due: 1, Purged: 1}) // the window and all, at once
	})
}

func TestWhatARememberedCallGetsByHowItEnded(t *testing.T) {
	failure := store.Failure{Code: "declined", Message: "card 4242"}
	for name, c := range map[string]struct {
		rule semel.AfterFailure
		end  func(ctx context.Context, a *semel.Attempt) error
		runs int // the number of the attempt that runs after the window; zero: it is refused
	}{
		"rejected":                      {"", func(ctx context.Context, a *semel.Attempt) error { return a.Reject(ctx, failure, data("no")) }, 0},
		"failed, replayed":              {"", func(ctx context.Context, a *semel.Attempt) error { return a.Fail(ctx, failure, data("no")) }, 0},
		"failed, followed by a retry":   {semel.RetryFailure, func(ctx context.Context, a *semel.Attempt) error { return a.Fail(ctx, failure, data("no")) }, 2},
		"abandoned":                     {"", func(ctx context.Context, a *semel.Attempt) error { return a.Abandon(ctx, "gone") }, 2},
		"aborted after an effect":       {"", func(ctx context.Context, a *semel.Attempt) error { return a.Abort(ctx, failure) }, 2},
		"aborted, and nothing was done": {"", func(ctx context.Context, a *semel.Attempt) error { return a.Abort(ctx, failure) }, 1},
	} {
		for _, swept := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", swept ", swept), func(t *testing.T) {
				op := remembering()
				op.Effects, op.OnFailure = []string{"charge"}, c.rule
				inBubble(t, op, func(t *testing.T, r *rig) {
					a := begin(t, r.Engine, call("k"))
					if c.runs != 1 {
						_, err := semel.Effect(t.Context(), a, "charge", func(context.Context, string) (string, error) { return "ch_1", nil })
						must(t, err)
					}
					must(t, c.end(t.Context(), a))
					pass(time.Hour + time.Minute)
					if swept {
						_, err := r.Sweep(t.Context())
						must(t, err)
					}
					if c.runs == 0 {
						if rec := forgotten(t, r.Engine, call("k")); rec.Failure == nil || rec.Failure.Code != "declined" || rec.Failure.Message != "" {
							t.Errorf("after the window it failed because of %+v", rec.Failure)
						}
						return
					}
					b := begin(t, r.Engine, call("k"))
					if b.Number() != c.runs {
						t.Errorf("attempt %d runs after the window, not %d", b.Number(), c.runs)
					}
					if c.runs == 1 {
						return
					}
					id, err := semel.Effect(t.Context(), b, "charge", func(context.Context, string) (string, error) { return "", errors.New("charged again") })
					if err != nil || id != "ch_1" {
						t.Errorf("the next attempt's effect got %q, %v", id, err)
					}
				})
			})
		}
	}
}

// Strangers keep the store's room no longer than before where nothing happened, and their held calls
// for as long as others are remembered.
func TestWhatIsRememberedOfUnverifiedCallers(t *testing.T) {
	inBubble(t, remembering(), func(t *testing.T, r *rig) {
		refused, paid, lost := boundCall("a", "x"), boundCall("a", "x"), boundCall("a", "x")
		refused.Key, paid.Key, lost.Key = refused.Key+"1", paid.Key+"2", lost.Key+"3"
		must(t, begin(t, r.Engine, refused).Reject(t.Context(), store.Failure{Code: "403"}, data("no")))
		must(t, begin(t, r.Engine, paid).Complete(t.Context(), data("paid")))
		must(t, begin(t, r.Engine, lost).Hold(t.Context(), "who knows"))
		pass(time.Hour + time.Minute)
		_, err := r.Sweep(t.Context())
		must(t, err)
		if _, err := r.store.Get(t.Context(), refused.ID("")); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("a refusal outlives its window: %v", err)
		}
		forgotten(t, r.Engine, paid)
		other := paid
		other.BoundTo = "another credential"
		decides(t, r.Engine, other, semel.OtherCaller)
		decides(t, r.Engine, lost, semel.Held)
		pass(23 * time.Hour)
		_, err = r.Sweep(t.Context())
		must(t, err)
		begin(t, r.Engine, paid)
		begin(t, r.Engine, lost)
	})
}

// A remembered call is archived once, whole.
func TestTheArchiveGetsARecordBeforeItLosesItsAnswer(t *testing.T) {
	s := &shelf{fails: errors.New("disk full")}
	op := remembering()
	op.OnExpiry = semel.ArchiveExpired
	inBubbleWith(t, semel.Options{Archive: s.write}, op, func(t *testing.T, r *rig) {
		was := done(t, r, call("k"))
		pass(time.Hour + time.Minute)
		if n, err := r.Sweep(t.Context()); err == nil || n.Forgotten != 0 || n.Unarchived != 1 || r.stored(t, call("k")).Result.Data == nil {
			t.Errorf("without the archive, the sweep did %+v, %v", n, err)
		}
		forgotten(t, r.Engine, call("k"))
		s.fails = nil
		sweep(t, r, semel.Swept{Due: 1, Forgotten: 1})
		pass(24 * time.Hour)
		sweep(t, r, semel.Swept{Due: 1, Purged: 1})
		if len(s.batches) != 1 || len(s.batches[0]) != 1 {
			t.Fatalf("the archive has %+v", s.batches)
		}
		same(t, s.batches[0][0], was)
	})
}

// Whatever becomes of the write at the end of the window, no delivery runs.
func TestACrashAtTheEndOfTheWindow(t *testing.T) {
	for _, form := range []faultstore.Form{faultstore.NotApplied, faultstore.Applied} {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, remembering(), func(t *testing.T, r *rig) {
				done(t, r, call("k"))
				pass(time.Hour + time.Minute)
				r.faults.Next(faultstore.Apply, form, 1000)
				n, err := r.Sweep(t.Context())
				if err == nil || n.Forgotten != 0 {
					t.Errorf("the sweep did %+v, %v", n, err)
				}
				r.faults.Heal()
				e := r.second(t) // the process is gone
				forgotten(t, e, call("k"))
				_, err = e.Sweep(t.Context())
				must(t, err)
				if rec := r.stored(t, call("k")); !rec.OnlyNamed() || rec.Result.Data != nil {
					t.Errorf("after the next sweep the store has %+v", rec)
				}
				forgotten(t, e, call("k"))
			})
		})
	}
}

// slow is a store whose writes take a while, and that notes how many were made, and at most at once.
type slow struct {
	semel.Store
	mu                sync.Mutex
	writes, now, most int
}

func (s *slow) count(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += more
	s.most, s.writes = max(s.most, s.now), s.writes+max(0, more)
}

func (s *slow) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.count(1)
	<-time.After(time.Millisecond)
	s.count(-1)
	return s.Store.Apply(ctx, w)
}

// A store that writes in batches (group commit) gets the writes of a page of due records together.
func TestASweepForgetsCallsTogether(t *testing.T) {
	inBubble(t, remembering(), func(t *testing.T, r *rig) {
		const calls = 300
		for i := range calls {
			done(t, r, call(fmt.Sprint("k", i)))
		}
		pass(time.Hour)
		s := &slow{Store: r.store}
		e, err := semel.New(s, &r.opts)
		must(t, err)
		began := time.Now()
		n, err := e.Sweep(t.Context())
		if err != nil || n.Forgotten != calls || s.writes != calls || s.most != 256 || time.Since(began) > 10*time.Millisecond {
			t.Errorf("the sweep did %+v by %d writes, %d at once, in %v: %v", n, s.writes, s.most, time.Since(began), err)
		}
		must(t, e.Close(context.Background()))
	})
}

func TestASweepForgetsManyCallsByOneWriteEach(t *testing.T) {
	inBubbleWith(t, semel.Options{PurgeRate: 100}, remembering(), func(t *testing.T, r *rig) {
		const calls = 600
		revisions := map[string]store.Revision{}
		for i := range calls {
			c := call(fmt.Sprint("k", i))
			revisions[c.Key] = done(t, r, c).Revision
		}
		pass(time.Hour + time.Minute)
		n, err := r.Sweep(t.Context())
		if err != nil || n.Forgotten != 256 {
			t.Errorf("a sweep at 100 a second did %+v, %v", n, err)
		}
		n, err = r.Sweep(t.Context())
		if err != nil || n.Forgotten != 0 {
			t.Errorf("a sweep at once after it did %+v, %v", n, err)
		}
		for range 4 {
			pass(3 * time.Second)
			_, err = r.Sweep(t.Context())
			must(t, err)
		}
		for key, was := range revisions {
			if rec := r.stored(t, call(key)); !rec.OnlyNamed() || rec.Revision == was {
				t.Fatalf("the record of %s is %+v", key, rec)
			}
		}
	})
}

func TestARememberedCallIsPurgedAndErased(t *testing.T) {
	inBubble(t, remembering(), func(t *testing.T, r *rig) {
		done(t, r, call("k"))
		pass(2 * time.Hour)
		sweep(t, r, semel.Swept{Due: 1, Forgotten: 1})
		must(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: "to be forgotten", EraseEvidence: true}))
		begin(t, r.Engine, call("k"))
	})
}

// After a restore, calls are refused for as long as they would have been remembered.
func TestARestoredStoreIsTooLateForRememberedCalls(t *testing.T) {
	op := remembering()
	op.RefuseLate = true
	inBubble(t, op, func(t *testing.T, r *rig) {
		sent := time.Now()
		pass(time.Minute)
		_, err := r.Internal().NewEpoch(t.Context())
		must(t, err)
		lost := call("lost")
		lost.FirstSent = sent
		for _, d := range []time.Duration{0, 2 * time.Hour, 20 * time.Hour} {
			pass(d)
			decides(t, r.Engine, lost, semel.TooLate)
		}
		young := call("young")
		young.FirstSent = time.Now().Add(-2 * time.Hour)
		begin(t, r.Engine, young) // after its window, but it would be remembered
	})
}

// What a backup says of a call may be out of date for as long as the call is remembered.
func TestARememberedCallFromABackupDoesNotRun(t *testing.T) {
	op := remembering()
	op.OnFailure = semel.RetryFailure
	inBubble(t, op, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Fail(t.Context(), store.Failure{Code: "no"}, semel.Result{}))
		pass(time.Second)
		_, err := r.Internal().NewEpoch(t.Context())
		must(t, err)
		pass(2 * time.Hour)
		sweep(t, r, semel.Swept{Due: 1})
		decides(t, r.Engine, call("k"), semel.Held)
	})
}

func TestWhatARememberedCallDidIsNotUndone(t *testing.T) {
	refunds := 0
	op := remembering()
	op.Compensation, op.Compensate = "refund", func(context.Context, semel.Execution, semel.Record) (semel.Result, error) {
		refunds++
		return semel.Result{}, nil
	}
	inBubbleWith(t, semel.Options{Operations: []semel.Operation{{Name: "refund"}}}, op, func(t *testing.T, r *rig) {
		done(t, r, call("k"))
		done(t, r, call("undone"))
		_, err := r.Compensate(t.Context(), id("undone"), "p", "early")
		must(t, err)
		pass(time.Hour)
		_, err = r.Compensate(t.Context(), id("k"), "p", "late")
		wantCode(t, err, semel.CodeResultNotKept)
		sweepAlone(t, r.Engine)
		rec, err := r.Compensate(t.Context(), id("undone"), "p", "again")
		if err != nil || rec.Compensation.State != store.CompensationDone || !rec.OnlyNamed() || refunds != 1 {
			t.Errorf("compensated %d times: %+v, %v", refunds, rec.Compensation, err)
		}
	})
}

// A call with work left keeps its answer until that is done, as it did without remember.
func TestUnfinishedCallsKeepTheirAnswer(t *testing.T) {
	inBubble(t, remembering(), func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		must(t, a.Send(semel.Message{Name: "mail", Destination: "d", Payload: []byte("body")}))
		must(t, a.Complete(t.Context(), data("x")))
		pass(2 * time.Hour)
		_, err := r.Sweep(t.Context())
		must(t, err)
		if ans := decides(t, r.Engine, call("k"), semel.Replay); !bytes.Equal(ans.Record.Result.Data, []byte("x")) {
			t.Errorf("with a message to deliver it has %+v", ans.Record)
		}
		_, err = r.Internal().SettleMessage(t.Context(), id("k"), a.Record().Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered})
		must(t, err)
		forgotten(t, r.Engine, call("k"))
		_, err = r.Sweep(t.Context())
		must(t, err)
		if m := r.stored(t, call("k")).Outbox; len(m) != 1 || m[0].Payload != nil || m[0].State != store.MessageDelivered {
			t.Errorf("of its message it has %+v", m)
		}
	})
}

func TestHowLongCallsAreRemembered(t *testing.T) {
	for text, op := range map[string]semel.Operation{
		"Remember 1m0s is shorter than Window 24h0m0s":  {Name: "op", Remember: time.Minute},
		"Remember -1s is shorter than Window 1h0m0s":    {Name: "op", Window: time.Hour, Remember: -time.Second},
		"Remember 87601h0m0s is longer than 87600h0m0s": {Name: "op", Remember: 87601 * time.Hour},
		"": {Name: "op", Window: time.Hour, Remember: time.Hour},
	} {
		if err := op.Validate(); text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	inBubble(t, semel.Operation{Window: time.Hour, Remember: time.Hour}, func(t *testing.T, r *rig) {
		done(t, r, call("k"))
		pass(time.Hour)
		begin(t, r.Engine, call("k")) // as without it
	})
	inBubble(t, semel.Operation{Window: time.Hour, Remember: 3 * time.Hour}, func(t *testing.T, r *rig) {
		long := call("long")
		long.Window = 5 * time.Hour // a call's own window may be longer
		done(t, r, long)
		pass(4 * time.Hour)
		if ans := decides(t, r.Engine, long, semel.Replay); ans.Err() != nil {
			t.Errorf("within its own window: %v", ans.Err())
		}
		pass(time.Hour)
		begin(t, r.Engine, long)
	})
}
