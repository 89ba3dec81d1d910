package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

func TestNothingIsLostWhenAServerThatAlwaysSyncsIsKilled(t *testing.T) {
	clause.Proves(t, "CORE-CONC.1", "ON-REDIS", "G-DURABLE")
	srv := redistest.Start(t, "always")
	s := mustOpen(t, srv.URL(), nil)
	if d := durability(t, s); d.Level != store.LevelDisk {
		t.Errorf("the level is %s", d.Level)
	}
	l := startLoad(t, s, 32, nil)
	const kills = 5
	for range kills {
		l.more(t, 500)
		srv.Kill()
		srv.Restart()
	}
	l.more(t, 500)
	lost := l.lost(t)
	t.Logf("%d kills; %d writes acknowledged, %d results unknown for a while, %d identities lost", kills, l.acks.Load(), l.unknown.Load(), lost)
	if lost > 0 {
		t.Errorf("%d identities are lost", lost)
	}
	if l.unknown.Load() == 0 {
		t.Error("no write was hit, so nothing is proved")
	}
}

func TestAServerThatSyncsEverySecondSaysSo(t *testing.T) {
	clause.Proves(t, "ON-REDIS-EVERYSEC")
	srv := redistest.Start(t, "everysec")
	s := mustOpen(t, srv.URL(), nil)
	d := durability(t, s)
	if d.Level != store.LevelRelaxed || len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], "appendfsync is everysec: ") || !strings.Contains(d.Unsafe[0], "of the server") {
		t.Fatalf("the level is %s, unsafe are %q", d.Level, d.Unsafe)
	}
	// While a sync takes longer than a second the server answers and does not write, so
	// not even the end of its process is survived. What was synced is.
	l := startLoad(t, s, 32, nil)
	l.more(t, 1000)
	srv.Do("CONFIG", "SET", "appendfsync", "always")
	l.more(t, 100)
	srv.Kill()
	srv.Restart()
	l.more(t, 100)
	lost := l.lost(t)
	t.Logf("%d writes acknowledged, %d unknown for a while, %d identities lost", l.acks.Load(), l.unknown.Load(), lost)
	if lost > 0 || l.unknown.Load() == 0 {
		t.Errorf("%d identities are lost, %d results were unknown", lost, l.unknown.Load())
	}
}

func TestScriptsAreLoadedAgainWhereTheyAreGone(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	l := startLoad(t, s, 16, nil)
	for range 20 {
		l.more(t, 100)
		srv.Do("SCRIPT", "FLUSH")
	}
	l.more(t, 100)
	if lost := l.lost(t); lost > 0 || l.unknown.Load() > 0 {
		t.Errorf("%d identities are lost, %d results were unknown", lost, l.unknown.Load())
	}
	errors := srv.Do("INFO", "errorstats")
	t.Logf("%s", errors)
	if !strings.Contains(errors, "errorstat_NOSCRIPT") {
		t.Error("no script was missing, so nothing is proved")
	}
}

// servedBy selects identities whose shard is in a slot that n serves.
func servedBy(t *testing.T, s *Store, n *redistest.Server) func(semel.ID) bool {
	t.Helper()
	var serves [shardCount]bool
	for i := range serves {
		serves[i] = n.Serves(slotOf(i))
	}
	return func(id semel.ID) bool {
		sh, _ := s.keys.find(id)
		return serves[sh.index]
	}
}

// A master whose replication is cut goes on acknowledging; when it is lost, so is
// what it acknowledged. That is what the level cache-grade says.
func TestAFailoverLosesWhatTheLevelSays(t *testing.T) {
	clause.Proves(t, "ON-REDIS-REPLICAS")
	t.Parallel()
	c := redistest.StartCluster(t, "always")
	s := mustOpen(t, c.URL(), &Options{Timeout: time.Second})
	d := durability(t, s)
	if d.Level != store.LevelCache || len(d.Unsafe) != 1 || !strings.HasPrefix(d.Unsafe[0], "cluster_enabled is 1: ") {
		t.Fatalf("the level is %s, unsafe are %q", d.Level, d.Unsafe)
	}
	accepting := mustOpen(t, c.URL(), &Options{AcceptLoss: true})
	if d := durability(t, accepting); d.Level != store.LevelCache || len(d.Unsafe) != 0 {
		t.Fatalf("where the operator accepts it, the level is %s, unsafe are %q", d.Level, d.Unsafe)
	}

	master, replica := c.Nodes[0], c.Nodes[3]
	owned := servedBy(t, s, master)
	before := startLoad(t, s, 16, nil)
	before.more(t, 1000)
	before.end()
	awaitReplica(t, master, replica)

	// The replica can't connect again: it has no password.
	master.Do("CONFIG", "SET", "requirepass", "secret")
	if n := master.Do("CLIENT", "KILL", "TYPE", "replica"); n != "1" {
		t.Fatalf("%s replicas were cut off", n)
	}
	cut := startLoad(t, s, 16, owned)
	cut.more(t, 500)
	cut.end()
	master.Kill()
	servertest.Eventually(t, "the replica takes over", func() error {
		if !replica.Serves(slotOf(0)) {
			return errNotYet
		}
		return nil
	})
	after := startLoad(t, s, 16, owned)
	after.more(t, 500)
	lostBefore, lostCut := before.lost(t), cut.lost(t)
	t.Logf("replicated: %d identities, %d lost; acknowledged after the cut: %d identities, %d lost; %d writes acknowledged after the failover",
		len(before.told), lostBefore, len(cut.told), lostCut, after.acks.Load())
	if lostBefore > 0 {
		t.Errorf("%d identities that were replicated are lost", lostBefore)
	}
	if lostCut != len(cut.told) {
		t.Errorf("%d of %d identities are lost that only the lost master had", lostCut, len(cut.told))
	}
	if lost := after.lost(t); lost > 0 {
		t.Errorf("%d identities are lost after the failover", lost)
	}
}

// A master hangs until its replica has taken over, and comes back.
func TestAMasterThatHangsIsReplacedAndComesBack(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "always")
	s := mustOpen(t, c.URL(), &Options{Timeout: time.Second})
	master, replica := c.Nodes[1], c.Nodes[4]
	sh := firstShardOf(master)
	l := startLoad(t, s, 16, nil)
	l.more(t, 1000)
	master.Pause()
	servertest.Eventually(t, "the replica takes over", func() error {
		if !replica.Serves(slotOf(sh)) {
			return errNotYet
		}
		return nil
	})
	l.more(t, 500)
	master.Resume()
	c.AwaitHealthy()
	l.more(t, 500)
	acks, lost := l.acks.Load(), l.lost(t)
	t.Logf("%d writes acknowledged, %d results unknown for a while, %d identities lost", acks, l.unknown.Load(), lost)
	if l.unknown.Load() == 0 {
		t.Error("no write was hit, so nothing is proved")
	}
	if role := master.Do("INFO", "replication"); !strings.Contains(role, "role:slave") {
		t.Error("the master that hung still thinks it is one")
	}
	// What the replica had not received when the master hung may be lost: that is
	// at most what was on its way, one write of each caller.
	if lost > 16 {
		t.Errorf("%d identities are lost, more than could be on their way", lost)
	}
}

func TestASlotIsMovedUnderLoad(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "")
	s := mustOpen(t, c.URL(), nil)
	source, target := c.Nodes[0], c.Nodes[1]
	moved := firstShardOf(source)
	moving := strconv.Itoa(slotOf(moved))
	l := startLoad(t, s, 8, func(id semel.ID) bool {
		sh, _ := s.keys.find(id)
		return sh.index == moved
	})
	l.more(t, 500)
	keysMoved := 0
	for range 2 { // there and back
		target.Do("CLUSTER", "SETSLOT", moving, "IMPORTING", source.ID())
		source.Do("CLUSTER", "SETSLOT", moving, "MIGRATING", target.ID())
		host, port, _ := strings.Cut(target.Addr, ":")
		for {
			key := source.Do("CLUSTER", "GETKEYSINSLOT", moving, "1")
			if key == "[]" {
				break
			}
			name, err := strconv.Unquote(strings.Trim(key, "[]"))
			if err != nil {
				t.Fatal(err)
			}
			source.Do("MIGRATE", host, port, name, "0", "5000")
			keysMoved++
		}
		for _, n := range []*redistest.Server{target, source} {
			n.Do("CLUSTER", "SETSLOT", moving, "NODE", target.ID())
		}
		l.more(t, 200)
		source, target = target, source
	}
	var errors strings.Builder
	for _, n := range c.Nodes[:2] {
		errors.WriteString(n.Do("INFO", "errorstats"))
	}
	acks, lost := l.acks.Load(), l.lost(t)
	t.Logf("%d keys moved; %d writes acknowledged, %d results unknown for a while, %d identities lost; %s", keysMoved, acks, l.unknown.Load(), lost, strings.Join(strings.Fields(errors.String()), " "))
	if lost > 0 {
		t.Errorf("%d identities are lost", lost)
	}
	if !strings.Contains(errors.String(), "errorstat_MOVED") || !strings.Contains(errors.String(), "errorstat_TRYAGAIN") && !strings.Contains(errors.String(), "errorstat_ASK") {
		t.Error("no call met the slot while it moved, so nothing is proved")
	}
}
