package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// Times of the tests that cut the network: a delivery must be able to act on a call
// within its lease and some slack from when it could first reach the store.
const (
	linkKeys    = 16
	linkLease   = 3 * time.Second
	linkSlack   = 30 * time.Second // for a busy machine
	linkTimeout = time.Second      // of the engine, for one answer
)

// linked is an engine whose store is behind a network.
type linked struct {
	*network
	engine   *semel.Engine
	executed [linkKeys]atomic.Int64
	warm     atomic.Uint64
}

func newLinked(t *testing.T, database string) *linked {
	t.Helper()
	l := &linked{network: newNetwork(t, pgtest.Shared(t))}
	s := mustOpen(t, l.url(database), &Options{answer: 3 * linkTimeout, connect: 2 * linkTimeout})
	t.Cleanup(func() { mustClose(t, s) })
	l.engine = newLinkEngine(t, s)
	t.Cleanup(func() { l.Set(faultnet.Reset) }) // nothing hangs when they are closed
	// Its connections have prepared their statements, so what is lost is a write.
	for range 10 {
		each(func(key int) {
			for range 2 {
				err := cycle(t.Context(), s, l.warm.Add(1))
				for n := 0; err != nil && n < 10; n++ { // where the machine is slower than those limits
					err = cycle(t.Context(), s, l.warm.Add(1))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	return l
}

func newLinkEngine(t *testing.T, s *Store) *semel.Engine {
	t.Helper()
	e, err := semel.New(s, &semel.Options{
		StoreTimeout: linkTimeout,
		Operations:   []semel.Operation{{Name: "charge", Lease: linkLease, OnAbandoned: semel.RetryAbandoned}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = e.Close(ctx) // what it could not resolve is settled by whoever comes next
	})
	return e
}

func linkCall(key int) semel.Call {
	k := fmt.Sprint("k", key)
	return semel.Call{Tenant: "t", Principal: "p", Operation: "charge", Key: k, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(k))}
}

// each runs f for every key at the same time.
func each(f func(key int)) {
	var wg sync.WaitGroup
	for key := range linkKeys {
		wg.Go(func() { f(key) })
	}
	wg.Wait()
}

// actionable delivers a call until it may be executed or has its outcome, and says
// how long that took.
func actionable(t *testing.T, e *semel.Engine, key int) (semel.Answer, time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), linkLease+linkSlack)
	defer cancel()
	call := linkCall(key)
	call.Wait = 50 * time.Millisecond
	for {
		ans, err := e.Begin(ctx, call)
		if err == nil && (ans.Decision == semel.Execute || ans.Decision == semel.Replay) {
			return ans, time.Since(start)
		}
		if ctx.Err() != nil {
			t.Errorf("key %d: %v after the fault: %s, %v", key, time.Since(start), ans.Decision, err)
			return semel.Answer{}, 0
		}
	}
}

var netFaults = []faultnet.Fault{faultnet.Reset, faultnet.Blackhole, faultnet.Deaf, faultnet.HalfOpen}

func TestFaultsOfTheNetwork(t *testing.T) {
	for _, fault := range netFaults {
		t.Run(fmt.Sprintf("%s at the claim: nothing is executed until it is healed, then once", fault), func(t *testing.T) {
			t.Parallel()
			linkAtClaim(t, newLinked(t, freshDatabase(t)), fault)
		})
		t.Run(fmt.Sprintf("%s at the completion: unknown, and resolved once it is healed", fault), func(t *testing.T) {
			t.Parallel()
			linkAtCompletion(t, newLinked(t, freshDatabase(t)), fault)
		})
		t.Run(fmt.Sprintf("%s for good: another node may act once the lease is over", fault), func(t *testing.T) {
			t.Parallel()
			linkForGood(t, freshDatabase(t), fault)
		})
	}
}

// freshDatabase is a migrated database of the shared server.
func freshDatabase(t *testing.T) string {
	t.Helper()
	_, database := open(t, Options{})
	return database
}

func linkAtClaim(t *testing.T, l *linked, fault faultnet.Fault) {
	l.Set(fault)
	var refused atomic.Int64
	each(func(key int) {
		ans, err := l.engine.Begin(t.Context(), linkCall(key))
		if e, ok := errors.AsType[*semel.Error](err); !ok || e.Code != semel.CodeStoreUnavailable || ans.Attempt != nil {
			t.Errorf("key %d: a claim that nobody knows of gives %s, %v", key, ans.Decision, err)
			return
		}
		refused.Add(1)
	})
	l.Set(faultnet.Healthy)
	var longest atomic.Int64
	each(func(key int) {
		ans, took := actionable(t, l.engine, key)
		l.finish(t, ans, key)
		raise(&longest, took)
	})
	l.check(t, "claim", fault, refused.Load(), &longest)
}

func linkAtCompletion(t *testing.T, l *linked, fault faultnet.Fault) {
	var attempts [linkKeys]*semel.Attempt
	each(func(key int) { attempts[key] = l.claim(t, key) })
	l.Set(fault)
	var unknown atomic.Int64
	each(func(key int) {
		l.executed[key].Add(1)
		err := attempts[key].Complete(t.Context(), linkResult(key))
		if !errors.Is(err, semel.ErrUnknown) {
			t.Errorf("key %d: a completion that nobody knows of gives %v", key, err)
			return
		}
		unknown.Add(1)
	})
	l.Set(faultnet.Healthy)
	var longest atomic.Int64
	each(func(key int) {
		start := time.Now()
		err := attempts[key].Complete(t.Context(), linkResult(key))
		for errors.Is(err, semel.ErrUnknown) && time.Since(start) < linkLease+linkSlack {
			err = attempts[key].Complete(t.Context(), linkResult(key))
		}
		if err != nil {
			t.Errorf("key %d: the completion is not resolved: %v", key, err)
		}
		raise(&longest, time.Since(start))
	})
	l.check(t, "completion", fault, unknown.Load(), &longest)
}

// linkForGood has a node begin calls, lose its network at the completion, and never
// come back.
func linkForGood(t *testing.T, database string, fault faultnet.Fault) {
	lost := newLinked(t, database)
	direct := mustOpen(t, pgtest.Shared(t).URL(database), nil)
	t.Cleanup(func() { mustClose(t, direct) })
	alive := newLinkEngine(t, direct)
	var attempts [linkKeys]*semel.Attempt
	each(func(key int) { attempts[key] = lost.claim(t, key) })
	lost.Set(fault)
	var unknown, replayed, again, longest atomic.Int64
	each(func(key int) {
		if err := attempts[key].Complete(t.Context(), linkResult(key)); !errors.Is(err, semel.ErrUnknown) {
			t.Errorf("key %d: a completion that nobody knows of gives %v", key, err)
			return
		}
		unknown.Add(1)
	})
	each(func(key int) {
		ans, took := actionable(t, alive, key)
		raise(&longest, took)
		switch ans.Decision {
		case semel.Replay:
			replayed.Add(1)
			if string(ans.Record.Result.Data) != string(linkResult(key).Data) {
				t.Errorf("key %d: a duplicate got %q", key, ans.Record.Result.Data)
			}
		case semel.Execute:
			again.Add(1)
			if ans.Record.Fence <= attempts[key].Fence() {
				t.Errorf("key %d: the fence %d follows %d", key, ans.Record.Fence, attempts[key].Fence())
			}
			complete(t, ans.Attempt, key)
		}
	})
	// Where answers are lost completions may arrive, unless the server is too busy to make them in
	// time; elsewhere none can.
	if replayed.Load() > 0 && fault != faultnet.Deaf {
		t.Errorf("%d were replayed and %d ran again", replayed.Load(), again.Load())
	}
	t.Logf("fired: %s for good: %d completions unknown, %d portions held or connections reset; then %d replayed, %d run again, within %v",
		fault, unknown.Load(), lost.Fired(), replayed.Load(), again.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
	if unknown.Load() == 0 || lost.Fired() == 0 {
		t.Error("no fault fired, so nothing is proved")
	}
}

func linkResult(key int) semel.Result { return semel.Result{Data: fmt.Appendf(nil, "result %d", key)} }

// claim begins a call that nobody has begun before.
func (l *linked) claim(t *testing.T, key int) *semel.Attempt {
	ans, err := l.engine.Begin(t.Context(), linkCall(key))
	if err != nil || ans.Decision != semel.Execute {
		t.Errorf("key %d: %s, %v", key, ans.Decision, err)
	}
	return ans.Attempt
}

// finish executes a call that is to be executed.
func (l *linked) finish(t *testing.T, ans semel.Answer, key int) {
	if ans.Decision != semel.Execute {
		return
	}
	l.executed[key].Add(1)
	complete(t, ans.Attempt, key)
}

// complete ends an attempt, and again while a busy server is too late to say whether it did.
func complete(t *testing.T, a *semel.Attempt, key int) {
	err := a.Complete(t.Context(), linkResult(key))
	for n := 0; errors.Is(err, semel.ErrUnknown) && n < 10; n++ {
		err = a.Complete(t.Context(), linkResult(key))
	}
	if err != nil {
		t.Errorf("key %d: %v", key, err)
	}
}

// check holds what is stored against what was executed.
func (l *linked) check(t *testing.T, at string, fault faultnet.Fault, hit int64, longest *atomic.Int64) {
	each(func(key int) {
		ans, err := l.engine.Begin(t.Context(), linkCall(key))
		for n := 0; err != nil && n < 10; n++ { // a busy server is late
			ans, err = l.engine.Begin(t.Context(), linkCall(key))
		}
		if n := l.executed[key].Load(); err != nil || ans.Decision != semel.Replay || n != 1 {
			t.Errorf("key %d, executed %d times: a duplicate gets %s, %v", key, n, ans.Decision, err)
		} else if got := string(ans.Record.Result.Data); got != string(linkResult(key).Data) {
			t.Errorf("key %d: a duplicate gets %q", key, got)
		}
	})
	t.Logf("fired: %s at the %s: %d calls hit, %d portions held or connections reset; actionable within %v",
		fault, at, hit, l.Fired(), time.Duration(longest.Load()).Round(time.Millisecond))
	if hit == 0 || l.Fired() == 0 {
		t.Error("no fault fired, so nothing is proved")
	}
}

func raise(longest *atomic.Int64, d time.Duration) {
	for {
		was := longest.Load()
		if int64(d) <= was || longest.CompareAndSwap(was, int64(d)) {
			return
		}
	}
}
