package pebblestore

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/turns"
)

// tail is what callers have seen of a disk that hung for a second.
type tail struct {
	p999 time.Duration // of the calls shortly before it, meanwhile and after it
	// before and after are how many calls ended in a tenth of a second: before it, and in the
	// second tenth after it.
	before, after int
}

// afterAStall has 256 callers begin and complete new calls. A while later the disk hangs, for a
// second.
func afterAStall(t testing.TB, s *Store, disk *stall) tail {
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		t.Fatal(err)
	}
	type call struct{ ended, took time.Duration }
	calls := make([][]call, benchCallers)
	var next atomic.Int64
	var enough atomic.Bool
	var work sync.WaitGroup
	data, start := newAnswers(), time.Now()
	for n := range calls {
		work.Go(func() {
			for !enough.Load() {
				i, began := int(next.Add(1)), time.Now()
				if err := benchPair(t.Context(), e, i, data.of(i)); err != nil {
					t.Error(err)
				}
				calls[n] = append(calls[n], call{time.Since(start), time.Since(began)})
			}
		})
	}
	const tenth = 100 * time.Millisecond
	<-time.After(3 * tenth)
	disk.shut()
	<-time.After(time.Second)
	disk.open()
	opened := time.Since(start)
	<-time.After(3 * tenth)
	enough.Store(true)
	work.Wait()

	var seen tail
	var took []time.Duration
	for _, c := range slices.Concat(calls...) {
		took = append(took, c.took)
		switch {
		case c.ended >= tenth && c.ended < 2*tenth:
			seen.before++
		case c.ended >= opened+tenth && c.ended < opened+2*tenth:
			seen.after++
		}
	}
	slices.Sort(took)
	seen.p999 = took[len(took)*999/1000]
	return seen
}

// A disk that hangs for a second delays calls by that second, and by nothing of ours: no pause
// before a repetition, no queue that takes long to drain. In a bubble no time passes but for
// the disk's.
func TestAStallCostsItsOwnTime(t *testing.T) {
	if testing.Short() {
		t.Skip("makes some 70,000 calls")
	}
	synctest.Test(t, func(t *testing.T) {
		var disk stall
		var busy atomic.Bool // not while Pebble opens or closes: it then holds locks, on which no bubble waits
		slow := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if busy.Load() && op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
				<-time.After(time.Millisecond)
			}
			return nil
		}))
		s := mustOpen(t, "store", &Options{FS: disk.fs(slow)})
		defer s.Close()
		busy.Store(true)
		seen := afterAStall(t, s, &disk)
		busy.Store(false)
		t.Logf("%+v", seen)
		if seen.p999 < time.Second {
			t.Errorf("p99.9 is %v: the disk hasn't delayed anybody, and this test shows nothing", seen.p999)
		}
		if most := time.Second + 50*time.Millisecond; seen.p999 > most {
			t.Errorf("p99.9 is %v, want %v at most", seen.p999, most)
		}
		if 100*seen.after < 95*seen.before {
			t.Errorf("%d calls end in a tenth of a second before, and %d soon after", seen.before, seen.after)
		}
	})
}

// BenchmarkAStall shows the same on the machine's own disk, where all work takes time: the
// medians of its rounds.
func BenchmarkAStall(b *testing.B) {
	var above, after []float64
	for range b.N {
		var disk stall
		s := mustOpen(b, b.TempDir(), &Options{FS: disk.fs(vfs.Default)})
		seen := afterAStall(b, s, &disk)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		above = append(above, float64(seen.p999-time.Second)/float64(time.Millisecond))
		after = append(after, float64(seen.after)/float64(seen.before))
	}
	b.ReportMetric(turns.Median(above), "ms-above-1s-p99.9")
	b.ReportMetric(turns.Median(after), "after/before")
}
