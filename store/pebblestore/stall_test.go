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
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// stall is a disk whose syncs of the log hang while it is shut.
type stall struct {
	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (d *stall) fs(fs vfs.FS) vfs.FS { return errorfs.Wrap(fs, errorfs.InjectorFunc(d.operation)) }

func (d *stall) operation(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
	default:
		return nil
	}
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil && strings.HasSuffix(op.Path, ".log") {
		<-gate
	}
	return nil
}

func (d *stall) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = make(chan struct{})
}

func (d *stall) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

// onStalledDisk runs a test in a bubble, on a store whose disk hangs. Fill makes writes
// until no further one is sent.
func onStalledDisk(t *testing.T, body func(t *testing.T, s *Store, disk *stall, fill func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var disk stall
		s := mustOpen(t, "store", &Options{FS: disk.fs(vfs.NewMem())})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		disk.shut()
		var work sync.WaitGroup
		defer work.Wait()
		defer disk.open()
		body(t, s, &disk, func() {
			for i := range inFlight + 4 {
				work.Go(func() {
					rec := testRecord(testID(fmt.Sprint("fill ", i)), 1, semel.Processing)
					w := store.Write{Record: new(rec), Evidence: []store.Entry{testEntry(rec.ID, 0, 1)}}
					if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
						t.Errorf("Apply gives %v, %v", ok, err)
					}
				})
				synctest.Wait()
			}
			if waiting, _ := s.commits.queue.Len(); waiting == 0 {
				t.Error("everything was sent")
			}
		})
	})
}

// While the disk hangs, callers come and give up. What they wanted leaves with them, if
// it was not sent, and then nothing of it is ever written.
func TestCallersThatGiveUpLeaveNothingInTheQueue(t *testing.T) {
	const callers = 10_000
	onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, _ func()) {
		errs := make([]error, callers)
		var work sync.WaitGroup
		for i := range callers {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(100+i%100)*time.Millisecond)
				defer cancel()
				rec := testRecord(testID(fmt.Sprint(i)), 1, semel.Completed)
				start := time.Now()
				_, _, errs[i] = s.Apply(ctx, store.Write{Record: new(rec), Evidence: []store.Entry{testEntry(rec.ID, 0, 1)}})
				if took := time.Since(start); took > time.Second {
					t.Errorf("a caller with a patience of 200 ms was kept for %v", took)
				}
			})
			if i < inFlight {
				synctest.Wait() // so it is sent by itself
			}
		}
		work.Wait()
		unknown, busy := 0, 0
		for i, err := range errs {
			switch {
			case errors.Is(err, ErrBusy):
				busy++
			case err == nil:
				t.Fatalf("caller %d was told that the write is durable", i)
			case !errors.Is(err, store.ErrNotApplied):
				unknown++
			}
		}
		t.Logf("of %d writes %d were refused and %d may be made", callers, busy, unknown)
		nothingWaits(t, s)
		if unknown == 0 || unknown == callers {
			t.Error("too little has happened to prove anything")
		}
		disk.open()
		for i, err := range errs {
			_, missing := s.Get(t.Context(), testID(fmt.Sprint(i)))
			if errors.Is(err, store.ErrNotApplied) != errors.Is(missing, semel.ErrNotFound) {
				t.Fatalf("caller %d was told %v, and then Get gives %v", i, err, missing)
			}
		}
		if _, err := inspect(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}

// What waits is bounded in number and in bytes, and whoever comes then is told at once.
func TestTheQueueIsBounded(t *testing.T) {
	maxWaiting, maxWaitingBytes := int(gather.NewRoom().MaxItems), int(gather.NewRoom().MaxBytes)
	for _, c := range []struct {
		name          string
		callers, size int
		low, high     int // how many wait
	}{
		{"in number", maxWaiting + 3000, 0, maxWaiting, maxWaiting},
		{"in bytes", 90, 1 << 20, 60, 64},
		{"but takes one that is larger than all of it", 2, maxWaitingBytes + 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.size > 0 {
				t.Skip("takes much memory")
			}
			onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, _ func()) {
				var busy atomic.Int64
				var work sync.WaitGroup
				for i := range c.callers {
					work.Go(func() {
						rec := testRecord(testID(fmt.Sprint(i)), 1, semel.Completed)
						rec.Result.Data = make([]byte, c.size)
						_, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec)})
						switch {
						case errors.Is(err, ErrBusy):
							busy.Add(1)
						case !ok || err != nil:
							t.Errorf("Apply gives %v, %v", ok, err)
						}
					})
				}
				synctest.Wait()
				if waiting := c.callers - int(busy.Load()); waiting < c.low || waiting > c.high {
					t.Errorf("of %d writes %d wait, and the others were refused", c.callers, waiting)
				}
				disk.open()
				work.Wait()
				nothingWaits(t, s)
				if n := s.counts().records; n != uint64(c.callers)-uint64(busy.Load()) {
					t.Errorf("%d records are stored", n)
				}
			})
		})
	}
}

// nothingWaits fails if a caller waits, or a change that nobody waits for was not sent.
func nothingWaits(t *testing.T, s *Store) {
	t.Helper()
	if waiting, _ := s.commits.queue.Len(); waiting != 0 {
		t.Errorf("in the end %d wait", waiting)
	}
}

// caught is a call that was made while the disk hung, and what it was told.
type caught struct {
	cancel context.CancelFunc
	done   chan struct{}
	rec    semel.Record // none: the zero Record
	ok     bool
	err    error
}

// valued is what a store returned, with the zero Record for none.
func valued(rec *semel.Record, ok bool, err error) (semel.Record, bool, error) {
	if rec == nil {
		rec = &semel.Record{}
	}
	return *rec, ok, err
}

func (c *caught) giveUp() error {
	c.cancel()
	<-c.done
	return c.err
}

func begin(t *testing.T, f func(ctx context.Context, c *caught)) *caught {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &caught{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		f(ctx, c)
	}()
	<-time.After(100 * time.Millisecond)
	synctest.Wait()
	select {
	case <-c.done:
		t.Fatalf("it did not wait: %v, %v", c.ok, c.err)
	default:
	}
	return c
}

func TestWhatDependsOnAWithdrawnWrite(t *testing.T) {
	id := testID("k")
	write := func(s *Store, version int64, expect store.Revision) func(context.Context, *caught) {
		return func(ctx context.Context, c *caught) {
			w := store.Write{Record: new(testRecord(id, version, semel.Processing)), Expect: expect, Evidence: []store.Entry{testEntry(id, version-1, version)}}
			c.rec, c.ok, c.err = valued(s.Apply(ctx, w))
		}
	}
	revision := func(version int64) store.Revision { return testRecord(id, version, semel.Processing).Revision }
	look := func(s *Store) func(context.Context, *caught) {
		return func(ctx context.Context, c *caught) {
			rec, err := s.Get(ctx, id)
			c.rec, _, c.err = valued(rec, true, err)
		}
	}
	is := func(t *testing.T, s *Store, version int64) {
		t.Helper()
		if rec, err := s.Get(t.Context(), id); err != nil || rec.Fence != version {
			t.Errorf("version %d is stored, error %v, want %d", rec.Fence, err, version)
		}
		if _, err := inspect(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	t.Run("nobody hears of it", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			fill()
			first := begin(t, write(s, 1, store.Revision{}))
			reader, late := begin(t, look(s)), begin(t, write(s, 5, revision(7)))
			if err := first.giveUp(); !errors.Is(err, store.ErrNotApplied) || !errors.Is(err, context.Canceled) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			disk.open()
			<-reader.done
			<-late.done
			if !errors.Is(reader.err, semel.ErrNotFound) {
				t.Errorf("Get gives version %d, %v", reader.rec.Fence, reader.err)
			}
			if late.ok || late.err != nil || !late.rec.Revision.IsZero() {
				t.Errorf("a write that follows another was told of version %d, %v, %v", late.rec.Fence, late.ok, late.err)
			}
		})
	})
	t.Run("a claim that it stood in the way of is made", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			fill()
			first, second := begin(t, write(s, 1, store.Revision{})), begin(t, write(s, 9, store.Revision{}))
			if err := first.giveUp(); !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			disk.open()
			<-second.done
			if !second.ok || second.err != nil {
				t.Errorf("the second claim gives %v, %v", second.ok, second.err)
			}
		})
	})
	t.Run("one that was to follow it is refused", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			fill()
			first, second := begin(t, write(s, 1, store.Revision{})), begin(t, write(s, 2, revision(1)))
			if err := first.giveUp(); !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			disk.open()
			<-second.done
			if second.ok || second.err != nil || !second.rec.Revision.IsZero() {
				t.Errorf("the second write gives version %d, %v, %v", second.rec.Fence, second.ok, second.err)
			}
		})
	})
	t.Run("one that follows what was sent waits for that", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			first := begin(t, write(s, 1, store.Revision{})) // which is sent
			fill()
			second := begin(t, write(s, 2, revision(1)))
			if err := second.giveUp(); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			reader, third := begin(t, look(s)), begin(t, write(s, 2, revision(1)))
			fourth := begin(t, write(s, 3, revision(2)))
			if err := first.giveUp(); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrNotApplied) {
				t.Errorf("the caller whose write was sent was told %v", err)
			}
			if err := fourth.giveUp(); !errors.Is(err, context.Canceled) {
				t.Errorf("the last caller was told %v", err)
			}
			disk.open()
			<-reader.done
			<-third.done
			if reader.err != nil || reader.rec.Fence < 1 || reader.rec.Fence > 2 || !third.ok || third.err != nil {
				t.Errorf("Get gives version %d, %v, the third write %v, %v", reader.rec.Fence, reader.err, third.ok, third.err)
			}
			is(t, s, 2)
		})
	})
	t.Run("purges and evidence leave too", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			disk.open()
			recs := []semel.Record{testRecord(testID("a"), 1, semel.Completed), testRecord(testID("b"), 1, semel.Completed)}
			var refs []store.Ref
			for _, rec := range recs {
				apply(t, s, rec, store.Revision{})
				refs = append(refs, store.Ref{ID: rec.ID, Revision: rec.Revision})
			}
			disk.shut()
			fill()
			calls := []*caught{
				begin(t, func(ctx context.Context, c *caught) { _, c.err = s.Purge(ctx, refs) }),
				begin(t, func(ctx context.Context, c *caught) {
					c.err = s.AppendEvidence(ctx, []store.Entry{testEntry(id, 0, 1)})
				}),
				begin(t, func(ctx context.Context, c *caught) {
					c.err = s.PutEvidenceTiles(ctx, map[string][]byte{"tile": {1}})
				}),
			}
			for i, c := range calls {
				if err := c.giveUp(); !errors.Is(err, store.ErrNotApplied) {
					t.Errorf("caller %d was told %v", i, err)
				}
			}
			disk.open()
			synctest.Wait()
			for _, rec := range recs {
				if _, err := s.Get(t.Context(), rec.ID); err != nil {
					t.Errorf("the record of %s: %v", rec.ID.Key, err)
				}
			}
			if _, err := s.EvidenceTile(t.Context(), "tile"); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("the tile: %v", err)
			}
			if list, err := s.ReadEvidence(t.Context(), 0, 1000); err != nil || len(list) != inFlight+4 {
				t.Errorf("there are %d entries, %v", len(list), err)
			}
		})
	})
}

// Callers with little patience fight over few records, on a disk that hangs again and
// again. The evidence tells which writes were made, and what each followed.
func TestHistoriesOnAStallingDisk(t *testing.T) {
	seed := newSeed(t)
	counts := map[string]int{}
	for run := range max(thorough.Scaled(40), 4) {
		synctest.Test(t, func(t *testing.T) { stallingHistory(t, rand.New(rand.NewPCG(seed, uint64(run))), counts) })
	}
	if len(counts) < 3 {
		t.Errorf("too little has happened to prove anything: %v", counts)
	}
}

// stallingHistory plays one, and counts what became of its writes.
func stallingHistory(t *testing.T, rng *rand.Rand, counts map[string]int) {
	var disk stall
	s := mustOpen(t, "store", &Options{FS: disk.fs(vfs.NewMem()), MemTableBytes: smallTables})
	defer s.Close()
	const callers, steps, identities = 100, 12, 4
	var mu sync.Mutex
	told := map[string]error{} // by leaf; nil: made
	var versions atomic.Int64
	var work sync.WaitGroup
	for range callers {
		rng := rng64(rng)
		work.Go(func() {
			for range steps {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(400))*time.Millisecond)
				id := testID(fmt.Sprint(rng.IntN(identities)))
				cur, err := s.Get(ctx, id)
				if errors.Is(err, semel.ErrNotFound) || rng.IntN(10) == 0 {
					cur, err = &semel.Record{}, nil
				}
				if err == nil {
					rec := testRecord(id, versions.Add(1), semel.Processing)
					entry := testEntry(id, cur.Fence, rec.Fence)
					_, ok, err := s.Apply(ctx, store.Write{Record: new(rec), Expect: cur.Revision, Evidence: []store.Entry{entry}})
					if err == nil && !ok {
						err = store.ErrNotApplied
					}
					mu.Lock()
					told[string(entry.Leaf)] = err
					mu.Unlock()
				}
				cancel()
			}
		})
	}
	work.Go(func() {
		for range 30 {
			disk.shut()
			<-time.After(time.Duration(rng.IntN(500)) * time.Millisecond)
			disk.open()
			<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
	})
	work.Wait()
	if _, err := inspect(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	list, err := s.ReadEvidence(t.Context(), 0, callers*steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range list {
		made[string(en.Leaf)] = true
	}
	for leaf, err := range told {
		switch definite := errors.Is(err, store.ErrNotApplied); {
		case err == nil && !made[leaf]:
			t.Fatalf("%s was acknowledged and is not there", leaf)
		case definite && made[leaf]:
			t.Fatalf("%s was definitely not made, and is there: %v", leaf, err)
		case definite:
			counts["not made"]++
		case err != nil:
			counts["unknown"]++
		default:
			counts["made"]++
		}
	}
	synctest.Wait()
	nothingWaits(t, s)
	for i := range s.stripes {
		if len(s.stripes[i].pending) > 0 {
			t.Error("in the end a record is being changed")
		}
	}
}

// A disk that hangs is told of, also when nobody waits for it any more.
func TestAStalledDiskIsSilent(t *testing.T) {
	onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, _ func()) {
		silent := func() time.Duration { return s.Queues()[0].Silent }
		if silent() != 0 {
			t.Errorf("silent for %v, and nothing waits", silent())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		rec := testRecord(testID("a"), 1, semel.Processing)
		if _, _, err := s.Apply(ctx, store.Write{Record: new(rec)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write on a disk that hangs: %v", err)
		}
		<-time.After(35 * time.Second)
		if silent() != 40*time.Second {
			t.Errorf("silent for %v, want 40s", silent())
		}
		disk.open()
		synctest.Wait()
		if silent() != 0 || s.Queues()[0].Answered.IsZero() {
			t.Errorf("the disk is back: %+v", s.Queues()[0])
		}
	})
}
