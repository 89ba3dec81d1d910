package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// The power is cut at a random write, sync, rename or removal of a file, be it
// while the store opens, while callers work, or while it closes. What was not
// synced by then is there or not, block by block, at random. The next cycle goes
// on with what is left.
func TestWhatWasAcknowledgedSurvivesLossOfPower(t *testing.T) {
	clause.Proves(t, "CORE-CONC.1", "CORE-INV.3", "IDS-VIII.1", "ON-EMBEDDED", "G-DURABLE")
	cycles := thorough.Scaled(2500)
	p := &powerTest{seed: newSeed(t), history: newHistory(0), log: newChronicle(), disk: vfs.NewCrashableMem()}
	for range cycles {
		if err := p.cycle(t.Context()); err != nil {
			t.Fatalf("cycle %d: %v", p.cycles, err)
		}
	}
	t.Logf("%d cycles, cut %d times while opening, %d while working, %d while closing, %d when closed; %d records and %d entries found, %d answers to callers, none lost",
		p.cycles, p.cuts[opening], p.cuts[working], p.cuts[closing], p.cuts[closed], p.found, p.log.size, p.history.acks)
	t.Logf("the strict profile refused what was left %d times", p.doubts)
	if p.doubts > cycles/20 {
		t.Error("the strict profile refuses what a loss of power leaves too often")
	}
	for phase, n := range p.cuts {
		if n == 0 {
			t.Errorf("the power was never cut in phase %d", phase)
		}
	}
	if p.found < cycles || p.history.acks < 20*cycles {
		t.Error("too little has happened to prove anything")
	}
}

// The phases of a cycle.
const (
	opening int32 = iota
	working
	closing
	closed
	phases
)

type powerTest struct {
	seed    uint64
	history *history
	log     *chronicle
	disk    *vfs.MemFS // after the last loss of power
	cycles  int
	found   int
	cuts    [phases]int
	doubts  int // how often the strict profile refused what was left
}

// cut is one loss of power.
type cut struct {
	history *history
	disk    *vfs.MemFS
	rng     *rand.Rand
	phase   atomic.Int32
	from    int32        // the phase from which operations are counted
	left    atomic.Int64 // operations until the cut

	once   sync.Once
	when   int32
	before snapshot
	after  *vfs.MemFS
}

// now cuts the power, if that has not happened yet. Whatever was acknowledged
// before the snapshot is on the disk before the clone.
func (c *cut) now() {
	c.once.Do(func() {
		c.when = c.phase.Load()
		c.before = c.history.snapshot()
		c.after = c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent(c.rng), RNG: c.rng})
	})
}

func (c *cut) operation(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && c.phase.Load() >= c.from && c.left.Add(-1) == 0 {
		c.now()
	}
	return nil
}

// powerFS is a file system in memory that can lose its power.
type powerFS struct{ *errorfs.FS }

// Create syncs the directory before it makes a marker. Pebble makes a manifest,
// then the marker that points to it, and syncs the directory once: it relies on a
// file system that keeps the order of changes to a directory, as those with a
// journal do. The one in memory keeps any of them.
func (f powerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := syncDirectory(f, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, category)
}

// ReuseForWrite takes no lock twice, as that of the one in memory does, which
// hangs when the power is cut in between.
func (f powerFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(newname, category)
}

// cycle opens what the last loss of power has left, compares it with what callers
// knew, and works until the next one.
func (p *powerTest) cycle(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(p.seed, uint64(p.cycles)))
	c := &cut{history: p.history, disk: p.disk, rng: rng64(rng)}
	c.from = int32(rng.IntN(int(phases)))
	c.left.Store(1 + rng.Int64N(40))
	opts := &Options{FS: powerFS{errorfs.Wrap(p.disk, errorfs.InjectorFunc(c.operation))}, MemTableBytes: smallTables, Strict: true}
	if p.cycles == 0 {
		// The clock of the store is ahead of the wall clock, so that only what
		// is on the disk can keep it from going back.
		opts.time = ahead(24 * time.Hour)
	}
	s, err := Open("store", opts)
	if err != nil && strings.Contains(err.Error(), "the strict profile takes no risk") {
		p.doubts++
		opts.Strict = false
		s, err = Open("store", opts)
	}
	if err != nil {
		return err
	}
	stored, err := inspectFrom(ctx, s, p.log)
	if err != nil {
		return err
	}
	if err := errors.Join(p.history.compare(stored), p.log.compare(p.history, stored)); err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	if now < p.history.clock {
		return fmt.Errorf("the clock went back by %v", p.history.clock.Sub(now))
	}
	p.found += len(stored)
	p.history.resume(stored)

	c.phase.CompareAndSwap(opening, working)
	if err := crowd(ctx, s, p.history, rng, p.cycles, stored, rng.IntN(16)); err != nil {
		return err
	}
	c.phase.CompareAndSwap(working, closing)
	if err := s.Close(); err != nil {
		return err
	}
	c.phase.CompareAndSwap(closing, closed)
	c.now()
	p.cuts[c.when]++
	p.disk = c.after
	p.history.rewind(c.before)
	p.cycles++
	return nil
}

// The power is cut at each write of a file while a new store is opened for the first time,
// and again when the next opening has acknowledged a record: the third finds it, and no
// damage.
func TestPowerMayFailDuringTheFirstOpening(t *testing.T) {
	clause.Proves(t, "CORE-CONC.1")
	seed := newSeed(t)
	writes, rounds := int64(0), uint64(4)
	if testing.Short() {
		rounds = 1 // one caller, so the race detector learns nothing from more
	}
	for round := range rounds {
		for n := int64(1); ; n++ {
			c := &cut{history: newHistory(0), disk: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(seed, round))}
			c.left.Store(n)
			s, err := Open("store", &Options{FS: powerFS{errorfs.Wrap(c.disk, errorfs.InjectorFunc(c.operation))}})
			if err != nil {
				t.Fatal(err)
			}
			opened := c.left.Load() > 0
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if opened {
				writes += n - 1
				break
			}
			if err := lastsOn(t, c.after); err != nil {
				t.Errorf("round %d, cut at write %d: %v", round, n, err)
			}
		}
	}
	if writes < 40*int64(rounds) {
		t.Errorf("the power was cut at %d writes only", writes)
	}
}

// lastsOn opens the store on a disk, stores a record, cuts the power, and looks for it.
func lastsOn(t *testing.T, disk *vfs.MemFS) error {
	s, err := Open("store", &Options{FS: powerFS{errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error { return nil }))}, MemTableBytes: smallTables, Strict: true})
	if err != nil {
		return fmt.Errorf("second opening: %w", err)
	}
	defer s.Close()
	apply(t, s, testRecord(testID("kept"), 1, semel.Completed), store.Revision{})
	after := disk.CrashClone(vfs.CrashCloneCfg{})
	again, err := Open("store", &Options{FS: after, Strict: true})
	if err != nil {
		return fmt.Errorf("third opening: %w", err)
	}
	defer again.Close()
	if _, err := again.Get(t.Context(), testID("kept")); err != nil {
		return fmt.Errorf("what was acknowledged: %w", err)
	}
	return nil
}

// percent is how much of what is not synced survives: nothing, everything, or
// anything between.
func percent(rng *rand.Rand) int {
	switch rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return 100
	}
	return rng.IntN(101)
}
