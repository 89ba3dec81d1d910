package enginetest

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// stalling is a store whose writes take as long, and end, as a test says. Like every
// store it goes on when the caller has given up.
type stalling struct {
	semel.Store
	store.DueIndex
	store.Purger
	mem *memstore.Store
	// apply makes a write; nil: at once.
	apply atomic.Pointer[applyFunc]
	// reading is called after each read; nil: nothing.
	reading       atomic.Pointer[func()]
	writes, reads atomic.Int64
}

func (s *stalling) Extras() store.Extras { return store.Extras{Due: s, Purge: s} }

type applyFunc func(ctx context.Context, w store.Write) (*semel.Record, bool, error)

func newStalling() *stalling {
	m := memstore.New()
	return &stalling{Store: m, DueIndex: m, Purger: m, mem: m}
}

func (s *stalling) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	s.writes.Add(1)
	if err := over(ctx); err != nil {
		return nil, false, err
	}
	if f := s.apply.Load(); f != nil {
		return (*f)(ctx, w)
	}
	return s.Store.Apply(ctx, w)
}

func (s *stalling) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	s.reads.Add(1)
	if err := over(ctx); err != nil {
		return nil, err
	}
	rec, err := s.Store.Get(ctx, id)
	if f := s.reading.Load(); f != nil {
		(*f)()
	}
	return rec, err
}

// over is for stores that look at the limit of a call, which counts from then on.
func over(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	default:
		return nil
	}
}

// writeBy has writes made by f; nil: at once.
func (s *stalling) writeBy(f applyFunc) {
	if f == nil {
		s.apply.Store(nil)
		return
	}
	s.apply.Store(&f)
}

// mute makes writes that arrive, and are never answered.
func (s *stalling) mute() {
	s.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
		if _, _, err := s.mem.Apply(context.Background(), w); err != nil {
			return nil, false, err
		}
		<-ctx.Done()
		return nil, false, ctx.Err()
	})
}

// arriveAfter makes each write arrive after so long, whoever still waits for it, and
// answers at the same moment.
func (s *stalling) arriveAfter(d time.Duration) {
	s.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
		type answer struct {
			cur     *semel.Record
			applied bool
			err     error
		}
		done := make(chan answer, 1)
		time.AfterFunc(d, func() {
			cur, applied, err := s.mem.Apply(context.Background(), w)
			done <- answer{cur, applied, err}
		})
		select {
		case a := <-done:
			return a.cur, a.applied, a.err
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	})
}

// stalls runs a test in virtual time on a store that stalls.
func stalls(t *testing.T, op semel.Operation, body func(t *testing.T, e *semel.Engine, st *stalling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := newStalling()
		e := engineOn(t, st, op)
		body(t, e, st)
		st.writeBy(nil)
		pass(10 * time.Second) // for renewals that wait
		must(t, e.Close(context.Background()))
	})
}

// engineOn is an engine that knows op under the name "op".
func engineOn(t *testing.T, st semel.Store, op semel.Operation) *semel.Engine {
	t.Helper()
	op.Name = "op"
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{op}})
	must(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}

func heldBy(holder, key string) semel.Call {
	c := call(key)
	c.Holder = holder
	return c
}

// A claim that was not answered in time is released. Its holder is told to ask again,
// and is given the claim: then nobody may end the attempt but the holder, also if the
// release has read the record before.
func TestARightThatIsGivenAgainIsNotReleased(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
		first := make(chan struct{})
		var reads atomic.Int64
		// Before the claim, for the release may read before Begin has returned.
		st.reading.Store(new(func() {
			if reads.Add(1) == 1 {
				<-first
			}
		}))
		st.mute()
		_, err := e.Begin(t.Context(), heldBy("h", "k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		st.writeBy(nil)
		synctest.Wait()
		if reads.Load() != 1 {
			t.Fatalf("the release has read %d times", reads.Load())
		}
		a, err := e.Internal().Reclaim(t.Context(), heldBy("h", "k"))
		if must(t, err); a == nil {
			t.Fatal("the holder is not given its claim again")
		}
		close(first) // and the release goes on with what it has read
		for range 20 {
			pass(time.Second)
			must(t, a.Renew(t.Context()))
		}
		must(t, a.Complete(t.Context(), data("done")))
		if ans := decides(t, e, call("k"), semel.Replay); string(ans.Record.Result.Data) != "done" {
			t.Errorf("duplicates get %q", ans.Record.Result.Data)
		}
	})
}

// Where the release is faster the holder is told so, and begins anew.
func TestAReleasedClaimIsNotGivenAgain(t *testing.T) {
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
		st.mute()
		_, err := e.Begin(t.Context(), heldBy("h", "k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		st.writeBy(nil)
		pass(time.Second)
		if a, err := e.Internal().Reclaim(t.Context(), heldBy("h", "k")); a != nil || err != nil {
			t.Fatalf("got %v, %v", a, err)
		}
		if a := begin(t, e, heldBy("h", "k")); a.Number() != 2 {
			t.Errorf("attempt %d", a.Number())
		}
	})
}

func TestOnlyTheHolderIsGivenItsClaimAgain(t *testing.T) {
	stalls(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, e *semel.Engine, st *stalling) {
		a := begin(t, e, heldBy("h", "k"))
		a.Detach()
		for name, c := range map[string]semel.Call{
			"another holder":    heldBy("other", "k"),
			"a nameless one":    call("k"),
			"another principal": {Tenant: "t", Principal: "q", Operation: "op", Key: "k", Fingerprint: payload("x"), Holder: "h"},
			"another payload":   {Tenant: "t", Principal: "p", Operation: "op", Key: "k", Fingerprint: payload("y"), Holder: "h"},
			"another call":      heldBy("h", "l"),
		} {
			if got, err := e.Internal().Reclaim(t.Context(), c); got != nil || err != nil {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		}
		before := *a.Record()
		again, err := e.Internal().Reclaim(t.Context(), heldBy("h", "k"))
		must(t, err)
		if rec := again.Record(); again.Fence() != a.Fence() || rec.Revision == before.Revision {
			t.Errorf("fence %d, want %d; the record was changed: %v", again.Fence(), a.Fence(), rec.Revision != before.Revision)
		}
		// Nobody was told of the first, as far as its door knows.
		if released, err := a.Release(t.Context()); released || err != nil {
			t.Errorf("released %v, %v", released, err)
		}
		must(t, again.Complete(t.Context(), data("done")))

		late := begin(t, e, heldBy("h", "late"))
		late.Detach()
		pass(4 * time.Second)
		if got, err := e.Internal().Reclaim(t.Context(), heldBy("h", "late")); got != nil || err != nil {
			t.Errorf("after its lease: got %v, %v", got, err)
		}
	})
}

// A holder that asks again is given its claim with most of the lease before it, or not.
func TestARightIsGivenAgainWithTimeLeft(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	op := semel.Operation{Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	for name, c := range map[string]struct {
		took  time.Duration
		slow  int // how many writes take so long
		given bool
	}{
		"one write takes half of the lease":   {1500 * time.Millisecond, 1, true},
		"all take half of the lease":          {1500 * time.Millisecond, 1 << 20, false},
		"one takes longer than the lease has": {4 * time.Second, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
				begin(t, e, heldBy("h", "k")).Detach()
				st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
					cur, applied, err := st.mem.Apply(ctx, w)
					if c.slow--; c.slow >= 0 {
						<-time.After(c.took)
					}
					return cur, applied, err
				})
				a, err := e.Internal().Reclaim(t.Context(), heldBy("h", "k"))
				must(t, err)
				if (a != nil) != c.given {
					t.Fatalf("given: %v", a != nil)
				}
				if a == nil {
					return
				}
				now, err := st.Now(t.Context())
				must(t, err)
				if left := a.Record().LeaseUntil.Sub(now); left < 2*time.Second {
					t.Errorf("%v of its lease are left", left)
				}
			})
		})
	}
}

func TestAClaimThatNobodyWasToldOfIsReleased(t *testing.T) {
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, _ *stalling) {
		a := begin(t, e, call("k"))
		if released, err := a.Release(t.Context()); !released || err != nil {
			t.Fatalf("released %v, %v", released, err)
		}
		if next := begin(t, e, call("k")); next.Number() != 2 {
			t.Errorf("attempt %d", next.Number())
		}
	})
}

// A claim that arrives when its caller has long been refused has no holder.
func TestALateClaimIsRefusedByTheStore(t *testing.T) {
	stalls(t, semel.Operation{Lease: 3 * time.Second}, func(t *testing.T, e *semel.Engine, st *stalling) {
		st.arriveAfter(90 * time.Second)
		_, err := e.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		st.writeBy(nil)
		pass(2 * time.Minute)
		if n := st.mem.Len(); n != 0 {
			t.Fatalf("%d records are stored", n)
		}
		begin(t, e, call("k"))
	})
}

// No handler starts under a lease that is over, or nearly so.
func TestAClaimThatTookLongIsRenewedBeforeItIsGiven(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2")
	op := semel.Operation{Lease: 3 * time.Second, OnAbandoned: semel.RetryAbandoned}
	for _, took := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 2900 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
				st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
					st.writeBy(nil) // the claim only
					cur, applied, err := st.mem.Apply(ctx, w)
					<-time.After(took)
					return cur, applied, err
				})
				a := begin(t, e, call("k"))
				now, err := st.Now(t.Context())
				must(t, err)
				if left := a.Record().LeaseUntil.Sub(now); left < 2*time.Second {
					t.Errorf("%v of the lease are left", left)
				}
				must(t, a.Complete(t.Context(), data("done")))
			})
		})
	}
	t.Run("one that another has taken over by then is not given", func(t *testing.T) {
		stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
			other := engineOn(t, st.mem, op)
			st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				st.writeBy(nil)
				cur, applied, err := st.mem.Apply(ctx, w)
				<-time.After(3100 * time.Millisecond)
				begin(t, other, call("k"))
				<-time.After(400 * time.Millisecond)
				return cur, applied, err
			})
			decides(t, e, call("k"), semel.InFlight)
		})
	})
	t.Run("where the store always takes that long nothing is executed", func(t *testing.T) {
		stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
			st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := st.mem.Apply(ctx, w)
				<-time.After(1500 * time.Millisecond)
				return cur, applied, err
			})
			_, err := e.Begin(t.Context(), call("k"))
			wantCode(t, err, semel.CodeStoreUnavailable)
			st.writeBy(nil)
			pass(time.Second)
			rec, err := e.Lookup(t.Context(), id("k"))
			if must(t, err); rec.Disposition != semel.DispositionAborted {
				t.Errorf("what nobody runs is %s %s", rec.State, rec.Disposition)
			}
		})
	})
}

// An effect is not started under a lease that is over, whoever was to tell its holder.
func TestAnEffectHasAWholeLeaseBeforeIt(t *testing.T) {
	op := semel.Operation{Lease: 3 * time.Second, Effects: []string{"charge"}}
	stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
		a := begin(t, e, call("k"))
		a.Detach()
		pass(2900 * time.Millisecond)
		_, err := a.StartEffect(t.Context(), "charge")
		must(t, err)
		now, err := st.Now(t.Context())
		must(t, err)
		if left := a.Record().LeaseUntil.Sub(now); left != 3*time.Second {
			t.Errorf("%v of the lease are left", left)
		}
	})
	stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
		a := begin(t, e, call("k"))
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			st.writeBy(nil)
			cur, applied, err := st.mem.Apply(ctx, w)
			<-time.After(2800 * time.Millisecond)
			return cur, applied, err
		})
		_, err := a.StartEffect(t.Context(), "charge")
		wantCode(t, err, semel.CodeLeaseLost)
		rec, err := e.Lookup(t.Context(), id("k"))
		if must(t, err); rec.Effects[0].State != store.EffectRefuted {
			t.Errorf("the effect, which was not called, is %s", rec.Effects[0].State)
		}
	})
}

// What is left of refused claims is small, and a store that comes back meets no crowd.
func TestRefusedClaimsAreBounded(t *testing.T) {
	const callers, most = 6000, 4096
	var dropped atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		st := newStalling()
		e := program(t, st, semel.Options{Events: &semel.Events{ReleaseDropped: func(semel.ReleaseDropped) { dropped.Add(1) }}}, semel.Operation{Name: "op"})
		before := runtime.NumGoroutine()
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			<-ctx.Done()
			return nil, false, ctx.Err()
		})
		refused := make(chan error)
		for i := range callers {
			go func() {
				_, err := e.Begin(t.Context(), call("k"+strconv.Itoa(i)))
				refused <- err
			}()
		}
		for range callers {
			wantCode(t, <-refused, semel.CodeStoreUnavailable)
		}
		synctest.Wait()
		if n := dropped.Load(); n != callers-most {
			t.Errorf("told of %d claims that are not released, want %d", n, callers-most)
		}
		if n := runtime.NumGoroutine() - before; n > callers/100 { // some are just about to end
			t.Errorf("%d goroutines are left of %d refused callers", n, callers)
		}
		st.writeBy(nil)
		writes := st.writes.Load()
		pass(time.Minute)
		if n := st.writes.Load() - writes; n != 0 {
			t.Errorf("the store was sent %d writes of callers who have gone", n)
		}
		reads := st.reads.Load()
		pass(time.Minute)
		if n := st.reads.Load() - reads; n != 0 {
			t.Errorf("claims that can't arrive any more are looked for: %d reads", n)
		}
		must(t, e.Close(context.Background()))
	})
}

// A definite refusal leaves nothing to release.
func TestARefusalLeavesNothingToRelease(t *testing.T) {
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
		st.writeBy(func(context.Context, store.Write) (*semel.Record, bool, error) {
			return nil, false, errors.Join(errors.New("READONLY"), store.ErrNotApplied)
		})
		_, err := e.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		pass(time.Minute)
		if n := st.writes.Load(); n != 1 || st.reads.Load() != 0 {
			t.Errorf("%d writes and %d reads", n, st.reads.Load())
		}
	})
}

// A refusal of a later try says nothing about the first, which may have arrived.
func TestARefusalOfALaterTryIsNotDefinite(t *testing.T) {
	stalls(t, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *stalling) {
		tries := 0
		st.writeBy(func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
			if tries++; tries > 1 {
				return nil, false, store.ErrNotApplied
			}
			time.AfterFunc(7*time.Second, func() { _, _, _ = st.mem.Apply(context.Background(), w) })
			return nil, false, errors.New("the connection was lost")
		})
		_, err := e.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeStoreUnavailable)
		if errors.Is(err, store.ErrNotApplied) {
			t.Error("the claim is said not to have been applied")
		}
		st.writeBy(nil)
		pass(20 * time.Second)
		if a := begin(t, e, call("k")); a.Number() != 2 {
			t.Errorf("the claim that arrived was not released: attempt %d", a.Number())
		}
	})
}

// A delivery that has waited for another has the whole time for its own claim.
func TestADeliveryThatWaitedClaimsWithAWholeLimit(t *testing.T) {
	op := semel.Operation{Confirmation: &semel.ConfirmationPolicy{}, MaxWait: time.Minute}
	stalls(t, op, func(t *testing.T, e *semel.Engine, st *stalling) {
		ans, err := e.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeConfirmationRequired)
		confirmed := call("k")
		confirmed.Confirm = ans.Challenge.Token
		first := begin(t, e, confirmed)
		time.AfterFunc(6*time.Second, func() { must(t, first.Abort(context.Background(), store.Failure{})) })
		again := call("k")
		again.Wait = 30 * time.Second
		if a := begin(t, e, again); a.Number() < 2 {
			t.Errorf("attempt %d", a.Number())
		}
	})
}
