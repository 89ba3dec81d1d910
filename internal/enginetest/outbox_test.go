package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func message(name string) semel.Message {
	return semel.Message{Name: name, Destination: "shop", Payload: []byte("paid")}
}

// sink takes what it is told of, as long as it has room.
type sink struct {
	mu   sync.Mutex
	full bool
	recs []semel.Record
}

func (s *sink) Dispatch(rec *semel.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.full {
		s.recs = append(s.recs, *rec)
	}
}

func (s *sink) take() []semel.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	recs := s.recs
	s.recs = nil
	return recs
}

func TestMessagesExistIfAndOnlyIfTheCallCompleted(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	ends := map[string]func(ctx context.Context, a *semel.Attempt) error{
		"completed": func(ctx context.Context, a *semel.Attempt) error { return a.Complete(ctx, data("x")) },
		"rejected": func(ctx context.Context, a *semel.Attempt) error {
			return a.Reject(ctx, store.Failure{}, semel.Result{})
		},
		"failed":    func(ctx context.Context, a *semel.Attempt) error { return a.Fail(ctx, store.Failure{}, semel.Result{}) },
		"aborted":   func(ctx context.Context, a *semel.Attempt) error { return a.Abort(ctx, store.Failure{}) },
		"held":      func(ctx context.Context, a *semel.Attempt) error { return a.Hold(ctx, "") },
		"abandoned": func(ctx context.Context, a *semel.Attempt) error { return a.Abandon(ctx, "") },
		"held, and completed by its holder later": func(ctx context.Context, a *semel.Attempt) error {
			a.Detach()
			pass(time.Minute)
			return a.Complete(ctx, data("x"))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inBubble(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
				s := &sink{}
				r.Internal().SetDispatcher(s.Dispatch)
				a := begin(t, r.Engine, call("k"))
				must(t, a.Send(message("m")))
				rec, err := r.Lookup(t.Context(), id("k"))
				if must(t, err); len(rec.Outbox) != 0 {
					t.Error("the message is there before the call completed")
				}
				go func() {
					<-time.After(30 * time.Second)
					_, _ = r.second(t).Sweep(t.Context())
				}()
				must(t, end(t.Context(), a))
				rec, err = r.Lookup(t.Context(), id("k"))
				must(t, err)
				if completed := strings.Contains(name, "completed"); (len(rec.Outbox) == 1) != completed || (len(s.take()) == 1) != completed {
					t.Errorf("a call that is %s has the outbox %+v", name, rec.Outbox)
				}
				pass(time.Minute)
			})
		})
	}
}

func TestMessagesInATransaction(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	inBubble(t, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		s := &sink{}
		r.Internal().SetDispatcher(s.Dispatch)
		for _, kept := range []bool{false, true} {
			b := newBase(r.store)
			tx, err := b.begin(t.Context())
			must(t, err)
			ans, a, err := r.BeginTx(t.Context(), tx, call("k"))
			if must(t, err); ans.Decision != semel.Execute {
				t.Fatal(ans.Decision)
			}
			must(t, semel.Send(txExecution{a}, message("m")))
			must(t, a.Complete(t.Context(), data("x")))
			wantCode(t, a.Send(message("late")), semel.CodeAlreadyEnded)
			if !kept {
				tx.Rollback(t.Context())
				if _, err := r.Lookup(t.Context(), id("k")); !errors.Is(err, semel.ErrNotFound) || len(s.take()) != 0 {
					t.Errorf("something is left: %v", err)
				}
				continue
			}
			must(t, tx.Commit(t.Context()))
			a.Committed()
			if recs := s.take(); len(recs) != 1 || len(recs[0].Outbox) != 1 || recs[0].Outbox[0].State != store.MessagePending {
				t.Errorf("dispatched %+v", recs)
			}
		}
	})
}

// txExecution makes an execution of an attempt in a transaction, for what it can do.
type txExecution struct{ semel.TxAttempt }

func (txExecution) Renew(context.Context) error { return nil }
func (txExecution) StartEffect(context.Context, string) (store.EffectRecord, error) {
	return store.EffectRecord{}, nil
}
func (txExecution) SettleEffect(context.Context, store.EffectFinding) error { return nil }

func TestMessagesAreBounded(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		for want, m := range map[string]semel.Message{
			"Name must have":        {Destination: "d"},
			"Destination must":      {Name: "m"},
			"ContentType is longer": {Name: "m", Destination: "d", ContentType: strings.Repeat("x", 257)},
			"Order is longer":       {Name: "m", Destination: "d", Order: "\xff"},
			"bytes together":        {Name: "m", Destination: "d", Payload: make([]byte, semel.MaxOutbox+1)},
		} {
			err := a.Send(m)
			if wantCode(t, err, semel.CodeInvalidCall); !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		m := message("m")
		must(t, a.Send(m))
		m.Payload[0] = 'X' // the caller's memory is his own
		wantCode(t, a.Send(message("m")), semel.CodeInvalidCall)
		for i := 1; i < semel.MaxMessages; i++ {
			must(t, a.Send(message(fmt.Sprint(i))))
		}
		wantCode(t, a.Send(message("one more")), semel.CodeInvalidCall)
		must(t, a.Complete(t.Context(), data("x")))
		box := a.Record().Outbox
		ids := map[string]bool{}
		for _, m := range box {
			ids[m.ID] = true
		}
		if len(box) != semel.MaxMessages || len(ids) != len(box) || string(box[0].Payload) != "paid" || box[0].State != store.MessagePending {
			t.Errorf("%d messages with %d ids, the first %+v", len(box), len(ids), box[0])
		}
	})
}

func TestAMessageSettles(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	inBubble(t, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		must(t, a.Send(message("m")))
		must(t, a.Complete(t.Context(), data("x")))
		m := a.Record().Outbox[0]
		settle := func(f store.MessageFinding) (semel.Message, error) {
			rec, err := r.Internal().SettleMessage(t.Context(), id("k"), m.ID, f)
			if err != nil {
				return semel.Message{}, err
			}
			return rec.Outbox[0], nil
		}
		steps := []struct {
			name string
			f    store.MessageFinding
			code semel.Code
			want store.MessageState
			n    int
		}{
			{"it is tried again", store.MessageFinding{State: store.MessagePending, RetryAfter: time.Minute, Failure: &store.Failure{Code: "503"}}, "", store.MessagePending, 1},
			{"a pending one is not discarded", store.MessageFinding{State: store.MessageDiscarded}, semel.CodeIllegalTransition, "", 0},
			{"nor made something that is none", store.MessageFinding{State: "lost"}, semel.CodeIllegalTransition, "", 0},
			{"it is given up", store.MessageFinding{State: store.MessageParked, Failure: &store.Failure{Code: "400"}}, "", store.MessageParked, 2},
			{"a dispatcher that is late does not bring it back", store.MessageFinding{State: store.MessagePending}, semel.CodeIllegalTransition, "", 0},
			{"an operator does", store.MessageFinding{State: store.MessagePending, Replay: true}, "", store.MessagePending, 0},
			{"it is delivered", store.MessageFinding{State: store.MessageDelivered}, "", store.MessageDelivered, 0},
			{"which may be said twice", store.MessageFinding{State: store.MessageDelivered}, "", store.MessageDelivered, 0},
			{"and is the end", store.MessageFinding{State: store.MessagePending, Replay: true}, semel.CodeIllegalTransition, "", 0},
			{"for parking too", store.MessageFinding{State: store.MessageParked}, semel.CodeIllegalTransition, "", 0},
		}
		for _, s := range steps {
			got, err := settle(s.f)
			if s.code != "" {
				if !errors.Is(err, &semel.Error{Code: s.code}) {
					t.Errorf("%s: got %v, %v", s.name, got.State, err)
				}
				continue
			}
			if err != nil || got.State != s.want || got.Tries != s.n || got.ID != m.ID || string(got.Payload) != "paid" || (got.NextAt != 0) != (s.want == store.MessagePending) {
				t.Errorf("%s: got %+v, %v", s.name, got, err)
			}
		}
		_, err := r.Internal().SettleMessage(t.Context(), id("k"), "msg_x", store.MessageFinding{State: store.MessageDelivered})
		wantCode(t, err, semel.CodeNotFound)
		_, err = r.Internal().SettleMessage(t.Context(), id("none"), m.ID, store.MessageFinding{State: store.MessageDelivered})
		wantCode(t, err, semel.CodeNotFound)
		rec, err := r.Lookup(t.Context(), id("k"))
		if must(t, err); rec.State != semel.Completed || string(rec.Result.Data) != "x" || rec.NextAt != rec.ExpiresAt {
			t.Errorf("left %+v", rec)
		}
	})
}

// A dispatcher that was told nothing else goes on: the message would be delivered again.
func TestAMessageIsSettledWhenTheStoreSaysSo(t *testing.T) {
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
				a := begin(t, r.Engine, call("k"))
				must(t, a.Send(message("m")))
				must(t, a.Complete(t.Context(), data("x")))
				delivered := store.MessageFinding{State: store.MessageDelivered}
				msg := a.Record().Outbox[0].ID
				r.faults.Next(faultstore.Apply, form, 1000)
				_, err := r.Internal().SettleMessage(t.Context(), id("k"), msg, delivered)
				wantCode(t, err, semel.CodeStoreUnavailable)
				r.faults.Heal()
				rec, err := r.Internal().SettleMessage(t.Context(), id("k"), msg, delivered)
				if must(t, err); rec.Outbox[0].State != store.MessageDelivered {
					t.Errorf("the message is %s", rec.Outbox[0].State)
				}
			})
		})
	}
}

func TestTwoWhoSettleMessagesOfOneRecord(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		for i := range 12 {
			must(t, a.Send(message(fmt.Sprint(i))))
		}
		must(t, a.Complete(t.Context(), data("x")))
		var wg sync.WaitGroup
		for _, m := range a.Record().Outbox {
			wg.Go(func() {
				r.faults.Next(faultstore.Apply, faultstore.Applied, 1)
				if _, err := r.Internal().SettleMessage(t.Context(), id("k"), m.ID, store.MessageFinding{State: store.MessageDelivered}); err != nil {
					t.Errorf("message %s: %v", m.Name, err)
				}
			})
		}
		wg.Wait()
		rec, err := r.Lookup(t.Context(), id("k"))
		must(t, err)
		if slices.ContainsFunc(rec.Outbox, func(m semel.Message) bool { return m.State != store.MessageDelivered }) {
			t.Errorf("a word was lost: %+v", rec.Outbox)
		}
	})
}

func TestARecordWithMessagesIsFoundAndKept(t *testing.T) {
	clause.Proves(t, "IDS-XI.S2")
	inBubble(t, semel.Operation{Window: time.Minute}, func(t *testing.T, r *rig) {
		s := &sink{}
		a := begin(t, r.Engine, call("k"))
		must(t, a.Send(message("m")))
		must(t, a.Complete(t.Context(), data("x"))) // nobody dispatches here
		second := r.second(t)
		second.Internal().SetDispatcher(s.Dispatch)
		_, err := second.Sweep(t.Context())
		if must(t, err); len(s.take()) != 1 {
			t.Error("the message is not found")
		}
		pass(2 * time.Minute) // the window is over
		_, err = r.Sweep(t.Context())
		must(t, err)
		decides(t, r.Engine, call("k"), semel.Replay)
		wantCode(t, r.Purge(t.Context(), id("k"), semel.Removal{Reason: ""}), semel.CodeIllegalTransition)
		m := a.Record().Outbox[0]
		_, err = r.Internal().SettleMessage(t.Context(), id("k"), m.ID, store.MessageFinding{State: store.MessageParked})
		must(t, err)
		pass(time.Hour)
		_, err = second.Sweep(t.Context())
		if must(t, err); len(s.take()) != 0 {
			t.Error("a parked message is dispatched")
		}
		decides(t, r.Engine, call("k"), semel.Replay)
		_, err = r.Internal().SettleMessage(t.Context(), id("k"), m.ID, store.MessageFinding{State: store.MessageDiscarded})
		must(t, err)
		n, err := second.Sweep(t.Context())
		if must(t, err); n.Purged != 1 {
			t.Errorf("swept %+v", n)
		}
	})
}

// More due messages than one sweep looks at, and a dispatcher that has no room, must
// not keep the reaper from an attempt whose lease has ended.
func TestMessagesDoNotHideAbandonedAttempts(t *testing.T) {
	inBubble(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
		for i := range 600 {
			a := begin(t, r.Engine, call(fmt.Sprint("m", i)))
			must(t, a.Send(message("m")))
			must(t, a.Complete(t.Context(), data("x")))
		}
		begin(t, r.Engine, call("gone")).Detach()
		s := &sink{full: true}
		r.Internal().SetDispatcher(s.Dispatch)
		pass(4 * time.Second)
		held := 0
		for range 4 {
			n, err := r.Sweep(t.Context())
			must(t, err)
			held += n.Held
		}
		if held != 1 {
			t.Errorf("%d attempts were found", held)
		}
		s.full = false
		pass(time.Minute)
		var found atomic.Int32
		for range 3 {
			_, err := r.Sweep(t.Context())
			must(t, err)
			for _, rec := range s.take() {
				found.Add(1)
				_, err := r.Internal().SettleMessage(t.Context(), rec.ID, rec.Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered})
				must(t, err)
			}
		}
		if found.Load() != 600 {
			t.Errorf("%d messages were found again", found.Load())
		}
	})
}

func TestSendAfterTheEndWasSent(t *testing.T) {
	inBubble(t, semel.Operation{Lease: time.Hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		must(t, a.Send(message("m")))
		r.faults.Next(faultstore.Apply, faultstore.Applied, 1000)
		wantCode(t, a.Complete(t.Context(), data("x")), semel.CodeUnknown)
		wantCode(t, a.Send(message("late")), semel.CodeAlreadyEnded) // it would be lost
		r.faults.Heal()
		must(t, a.Complete(t.Context(), data("x")))
		if n := len(a.Record().Outbox); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A dispatcher that is slow has taken more messages than a sweep looks at. Behind
// them is an attempt whose lease has ended.
func TestMessagesUnderWayDoNotHideAbandonedAttempts(t *testing.T) {
	for _, n := range []int{1000, 3000} { // within the reach of a sweep, and beyond
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
				for i := range n {
					a := begin(t, r.Engine, call(fmt.Sprint("m", i)))
					must(t, a.Send(message("m")))
					must(t, a.Complete(t.Context(), data("x")))
				}
				begin(t, r.Engine, call("gone")).Detach()
				s := &sink{}
				r.Internal().SetDispatcher(s.Dispatch)
				pass(4 * time.Second)
				sweeps, held := 0, 0
				for ; held == 0 && sweeps < 4; sweeps++ {
					n, err := r.Sweep(t.Context())
					must(t, err)
					held += n.Held
				}
				if held != 1 || n == 1000 && sweeps > 1 {
					t.Errorf("%d attempts were found in %d sweeps", held, sweeps)
				}
				// And none of the messages is forgotten if the dispatcher is.
				found := map[string]bool{}
				s.take()
				for range 4 {
					pass(time.Minute)
					_, err := r.Sweep(t.Context())
					must(t, err)
					for _, rec := range s.take() {
						if !found[rec.ID.Key] {
							found[rec.ID.Key] = true
							_, err := r.Internal().SettleMessage(t.Context(), rec.ID, rec.Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered})
							must(t, err)
						}
					}
				}
				if len(found) != n {
					t.Errorf("%d of %d messages were found again", len(found), n)
				}
			})
		})
	}
}

// So it is with records that wait for an archive which is down.
func TestAnArchiveThatIsDownDoesNotHideAbandonedAttempts(t *testing.T) {
	down := errors.New("down")
	opts := semel.Options{Archive: func(context.Context, []semel.Record) error { return down }, Operations: []semel.Operation{{Name: "old", OnExpiry: semel.ArchiveExpired, Window: time.Second}}}
	inBubbleWith(t, opts, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, r *rig) {
		for i := range 1000 {
			c := call(fmt.Sprint("k", i))
			c.Operation = "old"
			must(t, begin(t, r.Engine, c).Complete(t.Context(), data("x")))
		}
		begin(t, r.Engine, call("gone")).Detach()
		pass(4 * time.Second)
		n, err := r.Sweep(t.Context())
		if !errors.Is(err, down) || n.Held != 1 || n.Due != 1001 {
			t.Errorf("swept %+v, %v", n, err)
		}
	})
}
