package pgstore

import (
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/storetest"
)

// BenchmarkStalledConnection measures what callers notice of a connection that carries
// nothing any more: the calls on it are stuck, and all others have the other one.
func BenchmarkStalledConnection(b *testing.B) {
	n := newNetwork(b, pgtest.Shared(b))
	s := mustOpen(b, n.url(pgtest.Shared(b).Database(b)), &Options{Migrate: true, answer: answerLimit})
	b.Cleanup(func() { mustClose(b, s) })
	storetest.BenchStall(b, s, storetest.Stall{Begin: func() (end func()) {
		var cut atomic.Bool
		n.CutEach(func() faultnet.Cut {
			if cut.CompareAndSwap(false, true) {
				return faultnet.Cut{Place: faultnet.BeforeAnswer, Mute: true}
			}
			return faultnet.Cut{}
		})
		return func() { n.CutEach(nil) }
	}})
}
