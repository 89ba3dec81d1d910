package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// Who was told that nothing was executed finds nothing held, although another engine's
// sweep has seen the claim before its own engine could take it back.
func TestAnUnusedClaimThatAnotherDeclaredHeldIsReleased(t *testing.T) {
	op := semel.Operation{Lease: 3 * time.Second}
	for name, c := range map[string]semel.Call{"of an engine": call("k"), "of a named holder": heldBy("h", "k")} {
		t.Run(name, func(t *testing.T) {
			clause.Proves(t, "CORE-CONC.2")
			stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
				other := engineOn(t, st.mem, op)
				swept := make(chan struct{})
				st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
					if _, _, err := st.mem.Apply(context.Background(), w); err != nil {
						return nil, false, err
					}
					<-ctx.Done()
					st.reading.Store(new(func() { <-swept })) // the release reads, and goes on later
					return nil, false, ctx.Err()
				})
				_, err := e.Begin(t.Context(), c)
				wantCode(t, err, semel.CodeStoreUnavailable)
				st.writeBy(nil)
				pass(4 * time.Second)
				_, err = other.Sweep(t.Context())
				must(t, err)
				decides(t, other, call("k"), semel.Held)
				close(swept)
				pass(time.Second)
				if a := begin(t, other, call("k")); a.Number() != 2 {
					t.Errorf("attempt %d", a.Number())
				}
			})
		})
	}
}

// A claim that is stored when its caller has been refused belongs to the holder who has
// asked for it again, whether the release comes while they work or when they are gone.
func TestAReclaimedRightIsNeverReleased(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	op := semel.Operation{Lease: 8 * time.Second}
	// reclaimed has a claim arrive when its caller has been refused, and given to its
	// holder before the release can see it.
	reclaimed := func(t *testing.T, e *semel.Engine, st *stalling, then func()) *semel.Attempt {
		t.Helper()
		given := make(chan *semel.Attempt, 1)
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			st.writeBy(nil)
			time.AfterFunc(7*time.Second, func() {
				_, _, _ = st.mem.Apply(context.Background(), w)
				a, err := e.Internal().Reclaim(context.Background(), heldBy("h", "k"))
				if err != nil {
					t.Error(err)
				}
				then()
				given <- a
			})
			<-ctx.Done()
			return nil, false, ctx.Err()
		})
		_, err := e.Begin(t.Context(), heldBy("h", "k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		a := <-given
		if a == nil {
			t.Fatal("the holder is not given its claim again")
		}
		return a
	}
	t.Run("while its holder works", func(t *testing.T) {
		stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
			a := reclaimed(t, e, st, func() {})
			pass(5 * time.Second)
			must(t, a.Complete(t.Context(), data("done")))
			decides(t, e, call("k"), semel.Replay)
		})
	})
	t.Run("when its holder is gone", func(t *testing.T) {
		stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
			other := engineOn(t, st.mem, op)
			reclaimed(t, e, st, func() { st.reading.Store(new(func() { <-time.After(10 * time.Second) })) })
			pass(9 * time.Second)
			_, err := other.Sweep(t.Context())
			must(t, err)
			for range 10 {
				decides(t, other, call("k"), semel.Held)
				pass(time.Second)
			}
		})
	})
}

// The claimer of a claim that becomes durable after its own lease has executed nothing. If
// others see it first and declare it held, the claimer takes it back and claims anew.
func TestAClaimThatIsStoredAfterItsLeaseIsTakenBack(t *testing.T) {
	op := semel.Operation{Lease: 3 * time.Second}
	for name, answer := range map[string]error{"and is answered": nil, "and whose answer is lost": errors.New("the connection broke")} {
		t.Run(name, func(t *testing.T) {
			stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
				other := engineOn(t, st.mem, op)
				st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
					st.writeBy(nil) // the claim only
					cur, applied, err := st.mem.Apply(ctx, w)
					<-time.After(3100 * time.Millisecond)
					decides(t, other, call("k"), semel.Held)
					return cur, applied, errors.Join(err, answer)
				})
				a := begin(t, e, call("k"))
				if a.Number() != 2 {
					t.Errorf("attempt %d", a.Number())
				}
				must(t, a.Complete(t.Context(), data("done")))
				decides(t, other, call("k"), semel.Replay)
			})
		})
	}
	t.Run("but not while the store can't say so", func(t *testing.T) {
		stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
			other := engineOn(t, st.mem, op)
			st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := st.mem.Apply(ctx, w)
				<-time.After(3100 * time.Millisecond)
				decides(t, other, call("k"), semel.Held)
				st.writeBy(func(ctx context.Context, _ store.Write) (*semel.Record, bool, error) {
					<-ctx.Done()
					return nil, false, ctx.Err()
				})
				return cur, applied, err
			})
			_, err := e.Begin(t.Context(), call("k"))
			wantCode(t, err, semel.CodeStoreUnavailable)
			st.writeBy(nil)
			pass(10 * time.Second)     // the first try of the release may have begun before
			begin(t, other, call("k")) // the release did it
		})
	})
}

// A claim that a door could not give to anybody is released later, if the store fails now.
func TestAReleaseThatFailsIsTriedAgain(t *testing.T) {
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
		a := begin(t, e, heldBy("h", "k"))
		a.Detach()
		st.writeBy(func(context.Context, store.Write) (*semel.Record, bool, error) {
			return nil, false, errors.New("the connection broke")
		})
		if released, err := a.Release(t.Context()); released || err == nil {
			t.Fatalf("released %v, %v", released, err)
		}
		st.writeBy(nil)
		pass(time.Second)
		if next := begin(t, e, call("k")); next.Number() != 2 {
			t.Errorf("attempt %d", next.Number())
		}
	})
}

// A caller who hangs up while the store reads is no failure of the store.
func TestACallerWhoHangsUpIsNoFailureOfTheStore(t *testing.T) {
	failures := 0
	events := &semel.Events{StoreFailed: func(semel.StoreFailed) { failures++ }}
	e := program(t, newStalling(), semel.Options{Events: events}, semel.Operation{Name: "op"})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if _, err := e.Lookup(ctx, id("k")); !errors.Is(err, context.Canceled) || failures != 0 {
		t.Errorf("got %v, and %d failures were told of", err, failures)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := e.Lookup(late, id("k")); err == nil || failures != 1 {
		t.Errorf("past its deadline: %v, and %d failures were told of", err, failures)
	}
}
