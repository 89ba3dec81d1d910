package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// Three engines get each call at once, and a master is killed meanwhile. A call
// whose record was not replicated may be executed again, which is what the level
// says; no other call is, and every caller gets the answer of an execution.
func TestEnginesGoOnOverAFailover(t *testing.T) {
	t.Parallel()
	clause.Proves(t, "CORE-CONC.2")
	c := redistest.StartCluster(t, "always")
	var engines []*semel.Engine
	var owned func(semel.ID) bool
	for range 3 {
		s := mustOpen(t, c.URL(), &Options{Timeout: time.Second})
		owned = servedBy(t, s, c.Nodes[2])
		e, err := semel.New(s, &semel.Options{StoreTimeout: 10 * time.Second, Operations: []semel.Operation{
			{Name: "op", Lease: 3 * time.Second, MaxWait: 10 * time.Second, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close(context.Background()) })
		engines = append(engines, e)
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	runs := map[string]int{} // by key
	ids := map[string]semel.ID{}
	var answered, failed atomic.Int64
	deliver := func(e *semel.Engine, key string) {
		for wait := 5 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
			ans, err := e.Do(context.WithoutCancel(ctx), semel.Call{Tenant: "t", Operation: "op", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[key]++
				return semel.Result{Data: fmt.Appendf(nil, "%s/%d", key, runs[key])}, nil
			})
			if err != nil {
				failed.Add(1)
				<-time.After(wait)
				continue // delivered again
			}
			mu.Lock()
			ids[key] = ans.Record.ID
			var run int
			if n, err := fmt.Sscanf(string(ans.Record.Result.Data), key+"/%d", &run); n != 1 || err != nil || run < 1 || run > runs[key] {
				t.Errorf("%s was executed %d times and answered %q", key, runs[key], ans.Record.Result.Data)
			}
			mu.Unlock()
			answered.Add(1)
			return
		}
	}
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	for w := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				var one sync.WaitGroup
				for _, e := range engines {
					one.Go(func() { deliver(e, fmt.Sprint(w, "-", n)) })
				}
				one.Wait()
			}
		})
	}
	more := func(n int64) {
		t.Helper()
		until := answered.Load() + n
		servertest.Eventually(t, "deliveries are answered", func() error {
			if answered.Load() < until {
				return errNotYet
			}
			return nil
		})
	}
	more(1000)
	c.Nodes[2].Kill()
	servertest.Eventually(t, "the replica takes over", func() error {
		for i := range shardCount {
			if c.Nodes[5].Serves(slotOf(i)) {
				return nil
			}
		}
		return errNotYet
	})
	more(1000)
	stop()
	callers.Wait()
	twice := 0
	for key, n := range runs {
		if n == 1 {
			continue
		}
		twice++
		if !owned(ids[key]) {
			t.Errorf("%s was executed %d times and its master was not lost", key, n)
		}
	}
	t.Logf("%d calls, %d deliveries answered, %d delivered again after an error; %d calls executed again", len(runs), answered.Load(), failed.Load(), twice)
}
