package pgstore

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// TestFaultsFailover loses the primary under load and has a standby take over, at
// the same address. What is lost is what the level that was reported before says.
func TestFaultsFailover(t *testing.T) {
	t.Parallel()
	t.Run("with a synchronous standby the level is replicated, and nothing is lost", func(t *testing.T) {
		clause.Proves(t, "ON-POSTGRES-SYNC", "G-DURABLE")
		f := newFailover(t, true)
		if f.level != store.LevelReplicated {
			t.Fatalf("the level is %s", f.level)
		}
		const clients, keys = 16, 100
		var wg sync.WaitGroup
		wg.Go(func() { f.traffic.run(t, clients, keys) })
		f.traffic.reach(clients * keys / 3)
		before := f.acknowledged()
		f.primary.Kill()
		f.takeOver(t)
		wg.Wait()
		f.traffic.check(t, f.store, clients/2*keys)
		lost := f.lost(t, before)
		t.Logf("fired: 1 failover to a synchronous standby with %d calls acknowledged by then, %d calls to the store failed; lost: %d",
			len(before), f.traffic.failed.Load(), len(lost))
		if len(lost) > 0 {
			t.Errorf("acknowledged and lost: %v", lost)
		}
		if len(before) == 0 || f.traffic.failed.Load() == 0 {
			t.Error("no fault fired, so nothing is proved")
		}
	})
	t.Run("with an asynchronous standby the level is disk, and what it had not received is lost", func(t *testing.T) {
		clause.Proves(t, "ON-POSTGRES-ASYNC")
		f := newFailover(t, false)
		if f.level != store.LevelDisk {
			t.Fatalf("the level is %s", f.level)
		}
		const received, unreceived = 40, 30
		for i := range received {
			f.traffic.deliver(t, 0, fmt.Sprint("received ", i))
		}
		f.primary.Await(t, "SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()")
		f.standby.Stop() // the link between the two is cut: a primary that is only killed would still send
		for i := range unreceived {
			f.traffic.deliver(t, 0, fmt.Sprint("unreceived ", i))
		}
		before := f.acknowledged()
		f.primary.Kill()
		f.standby.Restart()
		f.takeOver(t)
		lost := f.lost(t, before)
		if len(before) != received+unreceived || len(lost) != unreceived {
			t.Errorf("of %d acknowledged %d are lost, want %d: %v", len(before), len(lost), unreceived, lost)
		}
		for _, key := range lost {
			if !strings.HasPrefix(key, "unreceived") {
				t.Errorf("%s was received and is lost", key)
			}
		}
		// That is what the level means: the calls are new, and run a second time.
		again := 0
		for key := range before {
			ran := f.traffic.executed[key]
			delete(f.traffic.results, key)
			f.traffic.deliver(t, 0, key)
			if f.traffic.executed[key] > ran {
				again++
			}
		}
		if again != unreceived {
			t.Errorf("%d calls ran a second time, want the %d that were lost", again, unreceived)
		}
		t.Logf("fired: 1 failover to an asynchronous standby with %d calls acknowledged by then; level %s; lost: %d, all of them unreceived; run a second time: %d",
			len(before), f.level, len(lost), again)
	})
}

// failover is a primary and a standby, and a store that finds whichever is in
// charge at one address.
type failover struct {
	primary, standby *pgtest.Server
	network          *network
	store            *Store
	level            store.Level
	traffic          *traffic
}

func newFailover(t *testing.T, synchronous bool) *failover {
	t.Helper()
	f := &failover{primary: pgtest.Start(t, nil)}
	database := f.primary.Database(t)
	f.standby = f.primary.Standby(t, "one")
	state := "async"
	if synchronous {
		state = "sync"
		f.primary.Exec(t, database, "ALTER SYSTEM SET synchronous_standby_names = 'one'")
		f.primary.Exec(t, database, "SELECT pg_reload_conf()")
	}
	f.primary.Await(t, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+state+"'")
	f.network = newNetwork(t, f.primary)
	f.store = mustOpen(t, f.network.url(database), &Options{Migrate: true})
	t.Cleanup(func() { mustClose(t, f.store) })
	d, err := f.store.Durability(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.level = d.Level
	f.traffic = newTraffic(t, f.store)
	return f
}

// takeOver has the standby take the place of the primary.
func (f *failover) takeOver(t *testing.T) {
	t.Helper()
	f.standby.Promote(t)
	f.network.leadTo(t, f.standby)
	f.network.Set(faultnet.Reset) // whoever is connected still finds out
	f.network.Set(faultnet.Healthy)
}

// acknowledged are the outcomes that callers were told of so far.
func (f *failover) acknowledged() map[string]string {
	f.traffic.mu.Lock()
	defer f.traffic.mu.Unlock()
	return maps.Clone(f.traffic.results)
}

// lost are the keys whose outcome is not what callers were told.
func (f *failover) lost(t *testing.T, told map[string]string) (keys []string) {
	t.Helper()
	for key, result := range told {
		var rec *semel.Record
		var err error
		await(t, "the standby answers", func() bool { // connections to the primary break first
			rec, err = f.store.Get(t.Context(), semel.ID{Tenant: "t", Principal: "p", Operation: "charge", Key: key})
			return err == nil || errors.Is(err, semel.ErrNotFound)
		})
		if err != nil || string(rec.Result.Data) != result {
			keys = append(keys, key)
		}
	}
	return keys
}
