package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// readStore counts what is read, as from another process: it has the four verbs only.
type readStore struct {
	semel.Store
	gets atomic.Int64
	fail atomic.Pointer[error]
	hang atomic.Bool
	// before and after are how long the next read takes, in nanoseconds, until it
	// reads and until it answers.
	before, after atomic.Int64
}

func (s *readStore) Extras() store.Extras { return store.Extras{} }

func (s *readStore) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	s.gets.Add(1)
	if s.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := s.fail.Load(); err != nil {
		return nil, *err
	}
	before, after := s.before.Swap(0), s.after.Swap(0)
	if before > 0 {
		<-time.After(time.Duration(before))
	}
	rec, err := s.Store.Get(ctx, id)
	if after > 0 {
		<-time.After(time.Duration(after))
	}
	return rec, err
}

// watchStore is a readStore that tells of changes too.
type watchStore struct {
	*readStore
	watches atomic.Int64
}

func (s *watchStore) Extras() store.Extras { return store.Extras{Watch: s} }

func (s *watchStore) Watch(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
	s.watches.Add(1)
	changed, stop := s.Store.Extras().Watch.Watch(ctx, id)
	return changed, func() { s.watches.Add(-1); stop() }
}

// waiting runs a test in virtual time on a store that counts what is read.
func waiting(t *testing.T, opts semel.Options, op semel.Operation, body func(t *testing.T, e *semel.Engine, st *readStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &readStore{Store: memstore.New()}
		op.Name, op.InFlight = "op", semel.WaitInFlight
		opts.Operations = []semel.Operation{op}
		e, err := semel.New(st, &opts)
		must(t, err)
		body(t, e, st)
		must(t, e.Close(context.Background()))
	})
}

// outcomes is what waiters have got.
type outcomes struct {
	mu      sync.Mutex
	answers []semel.Answer
	errs    []error
	after   []time.Duration
	wg      sync.WaitGroup
}

// wait lets a delivery wait in a goroutine of its own.
func (o *outcomes) wait(ctx context.Context, e *semel.Engine, c semel.Call) {
	start := time.Now()
	o.wg.Go(func() {
		ans, err := e.Begin(ctx, c)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.answers, o.errs, o.after = append(o.answers, ans), append(o.errs, err), append(o.after, time.Since(start))
	})
}

func TestThoseWhoWaitShareWhatIsRead(t *testing.T) {
	const many = 2000
	waiting(t, semel.Options{}, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *readStore) {
		a := begin(t, e, call("k"))
		var o outcomes
		for range many {
			o.wait(t.Context(), e, call("k"))
		}
		var awaited sync.WaitGroup
		for range many {
			awaited.Go(func() {
				if rec, err := e.Internal().Await(t.Context(), id("k"), time.Minute); err != nil || string(rec.Result.Data) != "done" {
					t.Errorf("%s, %v", rec.State, err)
				}
			})
		}
		pass(10 * time.Second)
		before := st.gets.Load() - many // Await looks once before it waits
		must(t, a.Complete(t.Context(), data("done")))
		o.wg.Wait()
		awaited.Wait()
		if n := st.gets.Load() - many - before; before > 50 || n > 2 {
			t.Errorf("%d waiters read the record %d times in ten seconds, and %d times when it changed", 2*many, before, n)
		}
		shared := &o.answers[0].Record.Result.Data[0]
		for i, ans := range o.answers {
			if o.errs[i] != nil || ans.Decision != semel.Replay || &ans.Record.Result.Data[0] != shared {
				t.Fatalf("%s, %v; the result is shared: %t", ans.Decision, o.errs[i], &ans.Record.Result.Data[0] == shared)
			}
		}
	})
}

func TestThoseWhoWaitShareANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New()
		st := &watchStore{readStore: &readStore{Store: inner}}
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op", InFlight: semel.WaitInFlight}}})
		must(t, err)
		other, err := semel.New(inner, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
		must(t, err)
		a := begin(t, other, call("k"))
		var o outcomes
		for range 100 {
			o.wait(t.Context(), e, call("k"))
		}
		pass(1234567 * time.Microsecond)
		if n := st.watches.Load(); n != 1 {
			t.Errorf("%d watches", n)
		}
		must(t, a.Complete(t.Context(), data("done")))
		o.wg.Wait()
		for i, after := range o.after {
			if o.answers[i].Decision != semel.Replay || after != 1234567*time.Microsecond {
				t.Fatalf("%s after %v", o.answers[i].Decision, after)
			}
		}
		synctest.Wait()
		if n := st.watches.Load(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		must(t, e.Close(t.Context()))
		must(t, other.Close(t.Context()))
	})
}

func TestNobodyLooksWhenNobodyWaits(t *testing.T) {
	waiting(t, semel.Options{}, semel.Operation{Lease: time.Hour}, func(t *testing.T, e *semel.Engine, st *readStore) {
		begin(t, e, call("k"))
		ctx, leave := context.WithCancel(t.Context())
		var o outcomes
		o.wait(ctx, e, call("k"))
		impatient := call("k")
		impatient.Wait = time.Second
		o.wait(t.Context(), e, impatient)
		pass(5 * time.Second)
		leave()
		o.wg.Wait()
		synctest.Wait()
		before := st.gets.Load()
		pass(time.Minute)
		if n := st.gets.Load() - before; n != 0 {
			t.Errorf("read %d times", n)
		}
		if o.answers[0].Decision != semel.InFlight || o.after[0] != time.Second || !errors.Is(o.errs[1], context.Canceled) {
			t.Errorf("got %v, %v after %v", o.answers, o.errs, o.after)
		}
	})
}

// Who comes when the first attempt has ended waits for the second, not for what those
// before have got.
func TestEachAttemptIsWaitedForAnew(t *testing.T) {
	waiting(t, semel.Options{}, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, e *semel.Engine, _ *readStore) {
		for n := 1; n <= 5; n++ {
			a := begin(t, e, call("k"))
			if a.Number() != n {
				t.Fatalf("attempt %d instead of %d", a.Number(), n)
			}
			got := make(chan semel.Record)
			for range 3 {
				go func() {
					rec, err := e.Internal().Await(t.Context(), id("k"), time.Minute)
					if err != nil {
						t.Error(err)
					}
					got <- rec
				}()
			}
			pass(100 * time.Millisecond)
			must(t, a.Fail(t.Context(), store.Failure{Message: fmt.Sprint(n)}, semel.Result{}))
			for range 3 {
				if rec := <-got; rec.Attempt != n || rec.Failure == nil || rec.Failure.Message != fmt.Sprint(n) {
					t.Errorf("attempt %d: got %+v", n, rec)
				}
			}
		}
	})
}

func TestWhoWaitsIsNotToldWhatWasReadBefore(t *testing.T) {
	waiting(t, semel.Options{}, semel.Operation{OnFailure: semel.RetryFailure}, func(t *testing.T, e *semel.Engine, st *readStore) {
		got := make(chan int, 2)
		await := func() {
			go func() {
				rec, err := e.Internal().Await(t.Context(), id("k"), time.Minute)
				if err != nil {
					t.Error(err)
				}
				got <- rec.Attempt
			}()
		}
		a := begin(t, e, call("k"))
		await()
		pass(time.Second)
		st.after.Store(int64(10 * time.Millisecond))
		must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
		pass(2 * time.Millisecond)
		b := begin(t, e, call("k")) // while the end of the first is on its way
		await()
		pass(time.Second)
		must(t, b.Fail(t.Context(), store.Failure{}, semel.Result{}))
		if first, second := <-got, <-got; first != 1 || second != 2 {
			t.Errorf("got the outcomes of attempts %d and %d", first, second)
		}
	})
}

// An attempt that follows another at once may keep those who wait for an outcome from
// seeing the end of the first.
func TestAnOutcomeAfterAMissedEndWakesAtOnce(t *testing.T) {
	waiting(t, semel.Options{}, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *readStore) {
		const odd = 3141592653 * time.Nanosecond
		start := time.Now()
		done := make(chan time.Duration)
		a := begin(t, e, call("k"))
		go func() {
			if rec, err := e.Internal().Await(t.Context(), id("k"), time.Minute); err != nil || rec.Attempt != 2 || rec.State != semel.Completed {
				t.Errorf("attempt %d is %s, %v", rec.Attempt, rec.State, err)
			}
			done <- time.Since(start)
		}()
		pass(time.Second)
		st.before.Store(int64(10 * time.Millisecond))
		must(t, a.Abort(t.Context(), store.Failure{}))
		b := begin(t, e, call("k"))
		pass(odd - time.Second)
		must(t, b.Complete(t.Context(), semel.Result{}))
		if after := <-done; after != odd {
			t.Errorf("told after %v", after)
		}
	})
}

func TestAFailedLookIsToldToAllWhoWait(t *testing.T) {
	var told atomic.Int64
	opts := semel.Options{Events: &semel.Events{StoreFailed: func(semel.StoreFailed) { told.Add(1) }}}
	waiting(t, opts, semel.Operation{}, func(t *testing.T, e *semel.Engine, st *readStore) {
		a := begin(t, e, call("k"))
		var o, later outcomes
		for range 10 {
			o.wait(t.Context(), e, call("k"))
		}
		pass(time.Second)
		down := errors.New("down")
		st.fail.Store(&down)
		o.wg.Wait()
		for _, err := range o.errs {
			if wantCode(t, err, semel.CodeStoreUnavailable); !errors.Is(err, down) {
				t.Errorf("got %v", err)
			}
		}
		if told.Load() != 1 {
			t.Errorf("told of %d failed reads", told.Load())
		}
		st.fail.Store(nil)
		later.wait(t.Context(), e, call("k"))
		pass(time.Second)
		must(t, a.Complete(t.Context(), data("done")))
		if later.wg.Wait(); later.errs[0] != nil || later.answers[0].Decision != semel.Replay {
			t.Errorf("got %s, %v", later.answers[0].Decision, later.errs[0])
		}
	})
}

func TestAStoreThatHangsDoesNotProlongTheWait(t *testing.T) {
	waiting(t, semel.Options{StoreTimeout: time.Minute}, semel.Operation{Lease: time.Hour}, func(t *testing.T, e *semel.Engine, st *readStore) {
		begin(t, e, call("k"))
		st.hang.Store(true)
		c := call("k")
		c.Wait = 3 * time.Second
		var o outcomes
		o.wait(t.Context(), e, c)
		if o.wg.Wait(); o.answers[0].Decision != semel.InFlight || o.after[0] != c.Wait {
			t.Errorf("%s, %v after %v", o.answers[0].Decision, o.errs[0], o.after[0])
		}
	})
}

func TestATenantCannotKeepOthersFromWaiting(t *testing.T) {
	waiting(t, semel.Options{MaxWaiters: 12}, semel.Operation{}, func(t *testing.T, e *semel.Engine, _ *readStore) {
		attempts := map[string]*semel.Attempt{}
		of := func(tenant string) semel.Call {
			c := call("k")
			c.Tenant = tenant
			return c
		}
		var o outcomes
		// tries says how many of so many deliveries wait; the others are answered.
		tries := func(tenant string, n int) int {
			t.Helper()
			if attempts[tenant] == nil {
				attempts[tenant] = begin(t, e, of(tenant))
			}
			o.mu.Lock()
			before := len(o.answers)
			o.mu.Unlock()
			for range n {
				o.wait(t.Context(), e, of(tenant))
			}
			synctest.Wait()
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, ans := range o.answers[before:] {
				if ans.Decision != semel.InFlight {
					t.Errorf("got %s", ans.Decision)
				}
			}
			return n - (len(o.answers) - before)
		}
		for _, step := range []struct {
			tenant    string
			tries, in int
		}{
			{"greedy", 100, 6}, // half of all
			{"other", 100, 3},  // half of what is left
			{"greedy", 1, 0},
			{"third", 1, 1},
		} {
			if n := tries(step.tenant, step.tries); n != step.in {
				t.Errorf("%d of %d deliveries of %s wait, not %d", n, step.tries, step.tenant, step.in)
			}
		}
		must(t, attempts["greedy"].Complete(t.Context(), data("done")))
		synctest.Wait()
		if n := tries("third", 100); n != 4 { // of nine places, one was its own
			t.Errorf("%d more deliveries wait when others have gone", n)
		}
		must(t, attempts["other"].Complete(t.Context(), data("done")))
		must(t, attempts["third"].Complete(t.Context(), data("done")))
		o.wg.Wait()
	})
}

// No wait may last until the next poll when the outcome is known in this process.
func TestOutcomesOfThisEngineWakeAtOnce(t *testing.T) {
	for _, local := range []bool{true, false} {
		for _, end := range []string{"completed", "held", "taken over"} {
			t.Run(fmt.Sprintf("%s, with a local store %t", end, local), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var st semel.Store = memstore.New()
					if !local {
						st = &readStore{Store: st}
					}
					e, err := semel.New(noWatch{st}, &semel.Options{Operations: []semel.Operation{{Name: "op", InFlight: semel.WaitInFlight}}})
					must(t, err)
					a := begin(t, e, call("k"))
					var o outcomes
					o.wait(t.Context(), e, call("k"))
					const odd = 3141592653 * time.Nanosecond // no poll happens then
					pass(odd)
					want := semel.Replay
					switch end {
					case "completed":
						must(t, a.Complete(t.Context(), data("done")))
					case "held":
						must(t, a.Hold(t.Context(), ""))
						want = semel.Held
					case "taken over":
						must(t, a.Abort(t.Context(), store.Failure{}))
						want = semel.Execute
					}
					if o.wg.Wait(); o.errs[0] != nil || o.answers[0].Decision != want || o.after[0] != odd {
						t.Errorf("%s, %v after %v", o.answers[0].Decision, o.errs[0], o.after[0])
					}
					must(t, e.Close(t.Context()))
				})
			})
		}
	}
}

// No poll happens when the lease ends: who waits knows when that is.
func TestWhoWaitsTakesOverWhenTheLeaseEnds(t *testing.T) {
	const odd = 3141592653 * time.Nanosecond
	waiting(t, semel.Options{}, semel.Operation{Lease: odd, OnAbandoned: semel.RetryAbandoned}, func(t *testing.T, e *semel.Engine, _ *readStore) {
		begin(t, e, call("k")).Detach() // its holder says no more
		var o outcomes
		for range 10 {
			o.wait(t.Context(), e, call("k"))
		}
		pass(odd)
		o.mu.Lock()
		answers, after := slices.Clone(o.answers), slices.Clone(o.after)
		o.mu.Unlock()
		if len(answers) == 1 && answers[0].Decision == semel.Execute && after[0] == odd {
			must(t, answers[0].Attempt.Complete(t.Context(), data("done")))
		} else {
			t.Errorf("got %v after %v", answers, after)
		}
		o.wg.Wait()
	})
}

// noWatch hides that a store tells of changes.
type noWatch struct{ semel.Store }

func (s noWatch) Extras() store.Extras {
	x := s.Store.Extras()
	x.Watch = nil
	return x
}
