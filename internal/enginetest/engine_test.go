package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

func TestFirstDeliveryExecutesAndDuplicatesGetItsResult(t *testing.T) {
	clause.Proves(t, "IDS-V.1", "IDS-IX.1", "IDS-IX.4", "MAP-FLOW.1", "MAP-FLOW.2")
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		runs := 0
		for range 5 {
			ans, err := r.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
				runs++
				return data(fmt.Sprint("run ", runs)), nil
			})
			must(t, err)
			if string(ans.Record.Result.Data) != "run 1" {
				t.Fatalf("got %q", ans.Record.Result.Data)
			}
		}
		if runs != 1 {
			t.Fatalf("ran %d times", runs)
		}
	})
}

func TestConcurrentDuplicatesRunOnce(t *testing.T) {
	clause.Proves(t, "CORE-CONC.2", "CORE-INV.1", "IDS-VIII.1", "IDS-IX.3")
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a local store %v", local), func(t *testing.T) {
			inBubble(t, semel.Operation{InFlight: semel.WaitInFlight}, func(t *testing.T, r *rig) {
				e := r.Engine
				if local {
					e = r.second(t)
				}
				var runs atomic.Int64
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						ans, err := e.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
							runs.Add(1)
							pass(time.Second)
							return data("done"), nil
						})
						switch {
						case err != nil:
							t.Errorf("got %v", err)
						case !bytes.Equal(ans.Record.Result.Data, []byte("done")):
							t.Errorf("got %s %q", ans.Decision, ans.Record.Result.Data)
						}
					})
				}
				wg.Wait()
				if runs.Load() != 1 {
					t.Fatalf("ran %d times", runs.Load())
				}
			})
		})
	}
}

func TestIdentity(t *testing.T) {
	clause.Proves(t, "CORE-ID.1", "IDS-XV.1")
	inBubbleWith(t, semel.Options{Operations: []semel.Operation{{Name: "op2"}}}, semel.Operation{}, func(t *testing.T, r *rig) {
		calls := []semel.Call{
			{Tenant: "a", Principal: "b", Operation: "op", Key: "c"},
			{Tenant: "b", Principal: "b", Operation: "op", Key: "c"},
			{Tenant: "a", Principal: "a", Operation: "op", Key: "c"},
			{Tenant: "a", Principal: "b", Operation: "op2", Key: "c"},
			{Tenant: "a", Principal: "b", Operation: "op", Key: "C"},
			{Tenant: "ab", Principal: "", Operation: "op", Key: "c"},
			{Tenant: "", Principal: "ab", Operation: "op", Key: "c"},
		}
		seen := map[[32]byte]bool{}
		for _, c := range calls {
			a := begin(t, r.Engine, c)
			must(t, a.Complete(t.Context(), semel.Result{}))
			seen[a.ID().Digest()] = true
		}
		if len(seen) != len(calls) {
			t.Errorf("%d digests for %d identities", len(seen), len(calls))
		}
		for _, c := range calls {
			decides(t, r.Engine, c, semel.Replay)
		}
	})
}

func TestAnotherPayloadConflicts(t *testing.T) {
	clause.Proves(t, "CORE-ID.2", "IDS-VIII.5")
	inBubble(t, semel.Operation{InFlight: semel.WaitInFlight}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		other := call("k")
		other.Fingerprint = payload("y")
		ans := decides(t, r.Engine, other, semel.Conflict) // at once, without waiting
		wantCode(t, ans.Err(), semel.CodeConflict)
		must(t, a.Complete(t.Context(), data("x")))
		decides(t, r.Engine, other, semel.Conflict)
		none := call("k")
		none.Fingerprint = semel.Fingerprint{}
		decides(t, r.Engine, none, semel.Conflict)
		if ans := decides(t, r.Engine, call("k"), semel.Replay); string(ans.Record.Result.Data) != "x" {
			t.Errorf("the conflict changed the record: %+v", ans.Record)
		}
	})
}

func TestInFlightTellsWhenToComeBack(t *testing.T) {
	clause.Proves(t, "IDS-IX.2", "MAP-FLOW.3")
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		first := begin(t, r.Engine, call("first"))
		pass(4 * time.Second)
		must(t, first.Complete(t.Context(), semel.Result{}))

		begin(t, r.Engine, call("k"))
		pass(time.Second)
		ans := decides(t, r.Engine, call("k"), semel.InFlight)
		if ans.RetryAfter != 3*time.Second {
			t.Errorf("an execution usually takes 4 s and has run for 1 s: told to come back after %v", ans.RetryAfter)
		}
		if e := wantCode(t, ans.Err(), semel.CodeInFlight); e.RetryAfter != ans.RetryAfter {
			t.Errorf("the error says %v", e.RetryAfter)
		}
	})
}

func TestWaitingForTheOutcome(t *testing.T) {
	inBubble(t, semel.Operation{MaxWait: 10 * time.Second}, func(t *testing.T, r *rig) {
		second := r.second(t)
		a := begin(t, r.Engine, call("k"))
		type got struct {
			who   string
			ans   semel.Answer
			err   error
			after time.Duration
		}
		results := make(chan got, 3)
		start := time.Now()
		wait := func(who string, e *semel.Engine, d time.Duration) {
			go func() {
				c := call("k")
				c.Wait = d
				ans, err := e.Begin(t.Context(), c)
				results <- got{who, ans, err, time.Since(start)}
			}()
		}
		wait("same engine", r.Engine, time.Minute) // bounded by MaxWait
		wait("other engine", second, 5*time.Second)
		wait("impatient", r.Engine, time.Second)
		pass(2 * time.Second)
		must(t, a.Complete(t.Context(), data("done")))
		synctest.Wait()
		for range 3 {
			g := <-results
			switch {
			case g.err != nil:
				t.Errorf("%s: %v", g.who, g.err)
			case g.who == "impatient":
				if g.ans.Decision != semel.InFlight || g.after != time.Second {
					t.Errorf("%s: %s after %v", g.who, g.ans.Decision, g.after)
				}
			case g.ans.Decision != semel.Replay || string(g.ans.Record.Result.Data) != "done" || g.after != 2*time.Second:
				t.Errorf("%s: %s %q after %v, want the outcome at the instant it was there", g.who, g.ans.Decision, g.ans.Record.Result.Data, g.after)
			}
		}
	})
}

func TestWaitersAreCapped(t *testing.T) {
	inBubbleWith(t, semel.Options{MaxWaiters: 4}, semel.Operation{InFlight: semel.WaitInFlight}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { decides(t, r.Engine, call("k"), semel.Replay) })
		}
		synctest.Wait()
		decides(t, r.Engine, call("k"), semel.InFlight)
		must(t, a.Complete(t.Context(), semel.Result{}))
		wg.Wait()
	})
}

func TestAWaiterTakesOverWhenTheAttemptIsAborted(t *testing.T) {
	inBubble(t, semel.Operation{InFlight: semel.WaitInFlight}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		done := make(chan *semel.Attempt)
		go func() { done <- begin(t, r.Engine, call("k")) }()
		synctest.Wait()
		must(t, a.Abort(t.Context(), store.Failure{Message: "never connected"}))
		b := <-done
		if b.Number() != 2 || b.Fence() <= a.Fence() {
			t.Errorf("attempt %d with fence %d after %d", b.Number(), b.Fence(), a.Fence())
		}
		must(t, b.Complete(t.Context(), semel.Result{}))
	})
}

func TestWindow(t *testing.T) {
	clause.Proves(t, "IDS-VIII.4", "MAP-EXP.1")
	inBubble(t, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		pass(10 * time.Second) // the window counts from the end, not from the claim
		must(t, a.Complete(t.Context(), data("one")))
		pass(time.Hour - 1)
		decides(t, r.Engine, call("k"), semel.Replay)
		pass(1)
		b := begin(t, r.Engine, call("k"))
		if b.Number() != 1 || b.Fence() <= a.Fence() {
			t.Errorf("a new call after the window: attempt %d, fence %d after %d", b.Number(), b.Fence(), a.Fence())
		}
		must(t, b.Complete(t.Context(), data("two")))
	})
	financial := semel.Operation{Name: "pay", Financial: true}
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{financial, {Name: "other"}}})
	must(t, err)
	for name, want := range map[string]time.Duration{"pay": 7 * 24 * time.Hour, "other": 24 * time.Hour} {
		if op, _ := e.Internal().Operation(name); op.Window != want {
			t.Errorf("%s: window %v, want %v", name, op.Window, want)
		}
	}
}

func TestWindowOfOneCall(t *testing.T) {
	inBubble(t, semel.Operation{Window: time.Hour}, func(t *testing.T, r *rig) {
		for _, window := range []time.Duration{time.Minute, 48 * time.Hour} {
			c := call(window.String())
			c.Window = window
			must(t, begin(t, r.Engine, c).Complete(t.Context(), data("one")))
			pass(window - 1)
			c.Window = time.Second // that of a duplicate means nothing
			decides(t, r.Engine, c, semel.Replay)
			pass(1)
			must(t, begin(t, r.Engine, c).Complete(t.Context(), data("two")))
		}
	})
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "pay", Financial: true}}})
	must(t, err)
	for _, window := range []time.Duration{-1, time.Millisecond, time.Hour, 20 * 365 * 24 * time.Hour} {
		if _, err := e.Begin(t.Context(), semel.Call{Operation: "pay", Key: "k", Window: window}); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("a window of %v: %v", window, err)
		}
	}
}

func TestFencesRiseAcrossPurge(t *testing.T) {
	inBubble(t, semel.Operation{Window: time.Second, OnFailure: semel.RetryFailure}, func(t *testing.T, r *rig) {
		var last int64
		for round := range 20 {
			for range 5 { // attempts faster than the clock
				a := begin(t, r.Engine, call("k"))
				if a.Fence() <= last {
					t.Fatalf("round %d: fence %d after %d", round, a.Fence(), last)
				}
				last = a.Fence()
				must(t, a.Fail(t.Context(), store.Failure{}, semel.Result{}))
			}
			pass(2 * time.Second)
			if n, err := r.Sweep(t.Context()); err != nil || n.Purged != 1 || r.store.Len() != 0 {
				t.Fatalf("swept %+v, %v; %d records left", n, err, r.store.Len())
			}
		}
	})
}

func TestLateRetryIsRefused(t *testing.T) {
	op := semel.Operation{Window: time.Hour, RefuseLate: true}
	inBubble(t, op, func(t *testing.T, r *rig) {
		sent := time.Now()
		c := call("k")
		c.FirstSent = sent
		must(t, begin(t, r.Engine, c).Complete(t.Context(), data("x")))
		pass(59*time.Minute + 30*time.Second)
		decides(t, r.Engine, c, semel.Replay) // old, but remembered
		pass(time.Hour)
		ans := decides(t, r.Engine, c, semel.TooLate)
		wantCode(t, ans.Err(), semel.CodeTooLate)
		// A clock that is ahead by less than the stated skew does not help.
		c.FirstSent = time.Now().Add(-59*time.Minute - time.Second)
		decides(t, r.Engine, c, semel.TooLate)
		c.FirstSent = time.Now().Add(-58 * time.Minute)
		begin(t, r.Engine, c)
		// A UUIDv7 says when it was made.
		uuid := call("00000000-0000-7000-8000-000000000001") // 1970
		decides(t, r.Engine, uuid, semel.TooLate)
		uuid.Key = "00000000-0000-4000-8000-000000000001" // says nothing
		begin(t, r.Engine, uuid)
		uuid.Key = fmt.Sprintf("%08x-%04x-7000-8000-000000000001", time.Now().UnixMilli()>>16, time.Now().UnixMilli()&0xffff)
		begin(t, r.Engine, uuid)
	})
}

func TestTenantSharingIsReauthorised(t *testing.T) {
	clause.Proves(t, "IDS-XV.4")
	denied := errors.New("not yours")
	op := semel.Operation{Share: semel.ShareTenant, Authorize: func(_ context.Context, c semel.Call, rec semel.Record) error {
		if c.Principal != rec.Principal && c.Principal != "auditor" {
			return denied
		}
		return nil
	}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		must(t, begin(t, r.Engine, call("k")).Complete(t.Context(), data("secret")))
		decides(t, r.Engine, call("k"), semel.Replay)
		c := call("k")
		c.Principal = "auditor"
		decides(t, r.Engine, c, semel.Replay)
		c.Principal = "stranger"
		ans, err := r.Begin(t.Context(), c)
		wantCode(t, err, semel.CodeForbidden)
		if !errors.Is(err, denied) || ans.Record != nil || ans.Attempt != nil {
			t.Errorf("a refused caller got %+v, %v", ans, err)
		}
	})
}

func TestDuplicatesAreThrottled(t *testing.T) {
	clause.Proves(t, "IDS-XV.3")
	op := semel.Operation{PerRecord: semel.Rate{PerSecond: 1, Burst: 3}, PerPrincipal: semel.Rate{PerSecond: 10, Burst: 5}}
	inBubble(t, op, func(t *testing.T, r *rig) {
		for i := range 3 {
			must(t, begin(t, r.Engine, call(fmt.Sprint(i))).Complete(t.Context(), semel.Result{}))
		}
		for range 3 {
			decides(t, r.Engine, call("0"), semel.Replay)
		}
		ans := decides(t, r.Engine, call("0"), semel.Throttled)
		if e := wantCode(t, ans.Err(), semel.CodeThrottled); ans.RetryAfter != time.Second || e.RetryAfter != time.Second {
			t.Errorf("told to come back after %v", ans.RetryAfter)
		}
		// The fourth took a token of the principal; two replays of another
		// record leave none.
		decides(t, r.Engine, call("1"), semel.Replay)
		if ans := decides(t, r.Engine, call("1"), semel.Throttled); ans.RetryAfter != 100*time.Millisecond {
			t.Errorf("told to come back after %v", ans.RetryAfter)
		}
		begin(t, r.Engine, call("new")) // first deliveries are not duplicates
		c := call("1")
		c.Principal = "other"
		begin(t, r.Engine, c)
		pass(time.Second)
		decides(t, r.Engine, call("0"), semel.Replay)
		decides(t, r.Engine, call("0"), semel.Throttled)
	})
}

func TestLargeResultsLeaveATombstone(t *testing.T) {
	inBubble(t, semel.Operation{MaxResult: 10}, func(t *testing.T, r *rig) {
		run := func() (semel.Answer, error) {
			return r.Do(t.Context(), call("k"), func(context.Context, semel.Execution) (semel.Result, error) {
				return data("much too long"), nil
			})
		}
		ans, err := run()
		if must(t, err); string(ans.Record.Result.Data) != "much too long" {
			t.Fatalf("the first caller got %q", ans.Record.Result.Data)
		}
		ans, err = run()
		wantCode(t, err, semel.CodeResultNotKept)
		if ans.Decision != semel.Replay || !ans.Record.Result.Tombstone {
			t.Errorf("the second caller got %s, %+v", ans.Decision, ans.Record)
		}
	})
}

func TestTheLargestResultsAreKept(t *testing.T) {
	inBubble(t, semel.Operation{MaxResult: 10}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		confirm(t, a, "fits", 10)
		confirm(t, a, "too large", 11)
		wantLedger(t, a.Effects(), 10, -1)
		must(t, a.Complete(t.Context(), data("0123456789")))
		if ans := decides(t, r.Engine, call("k"), semel.Replay); string(ans.Record.Result.Data) != "0123456789" {
			t.Errorf("kept %+v", ans.Record.Result)
		}
	})
}

func TestReadOnlyCallsLeaveNoRecord(t *testing.T) {
	clause.Proves(t, "IDS-VI.3")
	decided := 0
	opts := semel.Options{Events: &semel.Events{Decided: func(semel.Decided) { decided++ }}}
	inBubbleWith(t, opts, semel.Operation{Class: semel.ReadOnly}, func(t *testing.T, r *rig) {
		for range 3 {
			_, ans, err := semel.Do(t.Context(), r.Engine, call("k"), func(context.Context, semel.Execution) (int, error) { return 1, nil })
			if err != nil || ans.Decision != semel.Execute {
				t.Fatalf("%s, %v", ans.Decision, err)
			}
		}
		if decided != 3 || r.store.Len() != 0 {
			t.Errorf("%d decisions told, %d records", decided, r.store.Len())
		}
	})
}

func TestInvalidCallsAreRefused(t *testing.T) {
	long := string(bytes.Repeat([]byte("k"), semel.MaxKeyLen+1))
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		for name, c := range map[string]semel.Call{
			"no key":                 {Operation: "op"},
			"a key that is too long": {Operation: "op", Key: long},
			"a key with a NUL byte":  {Operation: "op", Key: "a\x00b"},
			"a key that is no text":  {Operation: "op", Key: "\xff"},
			"a tenant too long":      {Operation: "op", Key: "k", Tenant: long},
			"a principal with NUL":   {Operation: "op", Key: "k", Principal: "\x00"},
		} {
			_, err := r.Begin(t.Context(), c)
			if wantCode(t, err, semel.CodeInvalidCall); r.store.Len() != 0 {
				t.Errorf("%s: left a record", name)
			}
		}
		_, err := r.Begin(t.Context(), semel.Call{Operation: "nope", Key: "k"})
		wantCode(t, err, semel.CodeUnknownOperation)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Begin(gone, call("k")); !errors.Is(err, context.Canceled) || r.store.Len() != 0 {
			t.Errorf("a caller that has gone: %v, %d records", err, r.store.Len())
		}
	})
}

func TestClosedEngineRefusesNothingHalfDone(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		a := begin(t, r.Engine, call("k"))
		must(t, r.Close(t.Context()))
		must(t, a.Complete(t.Context(), data("x"))) // what runs may end
		_, err := r.Begin(t.Context(), call("k"))
		wantCode(t, err, semel.CodeClosed)
	})
}
