//go:build !race

// The race detector allocates, too.

package pebblestore

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
)

// Callers who come at once share batches, and what a pair costs in memory is bounded. The
// figures are those of BenchmarkGroupCommit, with room for a busy machine.
func TestWhatAPairCosts(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		t.Fatal(err)
	}
	const pairs = 20_000
	data := newAnswers()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	batches := s.counts().batches
	var next atomic.Int64
	var callers sync.WaitGroup
	for range benchCallers {
		callers.Go(func() {
			for i := next.Add(1); i <= pairs; i = next.Add(1) {
				if err := benchPair(t.Context(), e, int(i), data.of(int(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	runtime.ReadMemStats(&after)
	allocs := float64(after.Mallocs-before.Mallocs) / pairs
	perBatch := 2 * pairs / float64(s.counts().batches-batches)
	t.Logf("%.1f allocations, %.0f writes in a batch", allocs, perBatch)
	if allocs > 11 {
		t.Errorf("a pair has %.1f allocations, want 11 at most", allocs)
	}
	if perBatch < 20 {
		t.Errorf("%d callers have %.0f writes in a batch", benchCallers, perBatch)
	}
}
