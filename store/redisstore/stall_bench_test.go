package redisstore

import (
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store/storetest"
)

// BenchmarkStalledMaster measures what callers notice of a master of a Cluster that hangs,
// if their records are on others.
func BenchmarkStalledMaster(b *testing.B) {
	// Long before a replica would take over, the stall is over.
	c := redistest.StartCluster(b, "always", "cluster-node-timeout", "60000")
	s := mustOpen(b, c.URL(), nil)
	master := c.Nodes[1]
	var hers []bool // by shard: whether the master has it
	for shard := range tags {
		hers = append(hers, master.Serves(slotOf(shard)))
	}
	storetest.BenchStall(b, s, storetest.Stall{
		Begin: func() (end func()) {
			master.Pause()
			return master.Resume
		},
		Needs: func(id semel.ID) bool {
			sh, _ := s.keys.find(id)
			return hers[sh.index]
		},
	})
}
