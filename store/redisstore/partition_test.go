package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// A master that is cut off from its peers goes on for a while, and clients reach it
// all the same. What it acknowledges meanwhile is lost when its replica has taken
// over: those calls run again, all of them, and no others do. That is what the level
// cache-grade says, and why the strict profile refuses a Cluster.
func TestAnIsolatedMasterLosesWhatTheLevelSays(t *testing.T) {
	clause.Proves(t, "ON-REDIS-REPLICAS")
	t.Parallel()
	// On a busy machine, calls take their time until it notices that it is cut off.
	c := redistest.StartPartitionedCluster(t, "always", "cluster-node-timeout", "5000")
	master, replica := c.Nodes[0], c.Nodes[3]
	near := mustOpen(t, c.URL(), &Options{Timeout: time.Second})
	d := durability(t, near)
	if d.Level != store.LevelCache || len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], "cluster_enabled is 1: ") {
		t.Fatalf("the level is %s; the strict profile refuses %q", d.Level, d.Unsafe)
	}
	owned := servedBy(t, near, master)

	var mu sync.Mutex
	runs := map[string]int{} // by key
	deliver := func(e *semel.Engine, key string) (semel.Answer, error) {
		return e.Do(context.WithoutCancel(t.Context()), call(key), func(context.Context, semel.Execution) (semel.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[key]++
			return semel.Result{Data: []byte(key)}, nil
		})
	}
	// until sends new calls to the shards of the master until it is over, or so many are sent.
	until := func(e *semel.Engine, name string, enough int, over func() bool) (answered []string) {
		var callers sync.WaitGroup
		for w := range 3 {
			callers.Go(func() {
				for n := range enough {
					key := fmt.Sprint(name, w, "-", n)
					if !owned(semel.ID{Tenant: "t", Operation: "op", Key: key}) {
						continue
					}
					_, err := deliver(e, key)
					if over() {
						return
					}
					if err != nil {
						<-time.After(20 * time.Millisecond)
						continue
					}
					mu.Lock()
					answered = append(answered, key)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		return answered
	}

	before := until(engineOn(t, near, patient), "replicated-", 300, func() bool { return false })
	awaitReplica(t, master, replica)
	heal := c.Isolate(master)
	cut := time.Now()
	// What was answered before a replica took over, the isolated master has answered.
	lost := until(engineOn(t, near, time.Second), "isolated-", 1<<30, func() bool { return replica.Serves(slotOf(0)) })
	acknowledged := time.Since(cut)
	if len(lost) == 0 || len(before) == 0 {
		t.Fatalf("%d calls were answered before and %d after the master was isolated, so nothing is proved", len(before), len(lost))
	}
	servertest.Eventually(t, "the replica takes over", func() error {
		if !replica.Serves(slotOf(0)) {
			return errNotYet
		}
		for _, n := range c.Nodes[1:] {
			if !strings.Contains(n.Do("CLUSTER", "INFO"), "cluster_state:ok") {
				return errNotYet
			}
		}
		return nil
	})

	// Whoever comes next asks those who are the majority.
	far := engineOn(t, mustOpen(t, c.URLOf(c.Nodes[1:]...), nil), patient)
	again := func(keys []string, executions int) {
		t.Helper()
		for _, key := range keys {
			ans, err := deliver(far, key)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			if string(ans.Record.Result.Data) != key || runs[key] != executions {
				t.Errorf("%s was executed %d times, want %d", key, runs[key], executions)
			}
		}
	}
	again(before, 1)
	again(lost, 2)
	t.Logf("%d calls were replicated, none was executed again; the isolated master answered %d calls within %v, and all were executed again",
		len(before), len(lost), acknowledged.Round(time.Millisecond))

	heal()
	c.AwaitHealthy()
	if role := master.Do("INFO", "replication"); !strings.Contains(role, "role:slave") {
		t.Error("the master that was isolated still thinks it is one")
	}
	again(before, 1)
	again(lost, 2)
}

// awaitReplica waits until a replica has everything that its master has written by now. WAIT
// wouldn't do: it waits for what was written on its own connection.
func awaitReplica(t *testing.T, master, replica *redistest.Server) {
	t.Helper()
	offset := func(n *redistest.Server, field string) int {
		at, err := strconv.Atoi(infoFields(n.Do("INFO", "replication"))[field])
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	written := offset(master, "master_repl_offset")
	servertest.Eventually(t, "the replica has everything", func() error {
		if offset(replica, "slave_repl_offset") < written {
			return errNotYet
		}
		return nil
	})
}

func call(key string) semel.Call { return semel.Call{Tenant: "t", Operation: "op", Key: key} }

// patient is a timeout for what must not fail where the machine has much to do.
const patient = 20 * time.Second

func engineOn(t *testing.T, s *Store, timeout time.Duration) *semel.Engine {
	t.Helper()
	e, err := semel.New(s, &semel.Options{StoreTimeout: timeout, Operations: []semel.Operation{{Name: "op"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	return e
}
