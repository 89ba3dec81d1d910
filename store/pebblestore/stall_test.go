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
	"github.com/semelhq/semel/internal/thorough"
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

// queue is what waits: changes in all, and those in groups that were not taken.
func (c *committer) queue() (waiting, queued, groups, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := c.oldest; g != nil; g = g.next {
		groups++
		queued += len(g.ops)
	}
	return c.waiting, queued, groups, c.bytes
}

// onStalledDisk runs a test in a bubble, on a store whose disk hangs. Fill makes writes
// until no further group is taken.
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
					w := semel.Write{Record: rec, Evidence: []semel.Entry{testEntry(rec.ID, 0, 1)}}
					if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
						t.Errorf("Apply gives %v, %v", ok, err)
					}
				})
				synctest.Wait()
			}
			if _, queued, _, _ := s.commits.queue(); queued == 0 {
				t.Error("everything was taken")
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
				_, _, errs[i] = s.Apply(ctx, semel.Write{Record: rec, Evidence: []semel.Entry{testEntry(rec.ID, 0, 1)}})
				if took := time.Since(start); took > time.Second {
					t.Errorf("a caller with a patience of 200 ms was kept for %v", took)
				}
			})
		}
		work.Wait()
		unknown, busy := 0, 0
		for i, err := range errs {
			switch {
			case errors.Is(err, ErrBusy):
				busy++
			case err == nil:
				t.Fatalf("caller %d was told that the write is durable", i)
			case !errors.Is(err, semel.ErrNotApplied):
				unknown++
			}
		}
		waiting, queued, groups, bytes := s.commits.queue()
		t.Logf("of %d writes %d were refused and %d may be made; %d wait, %d of them in %d groups that were not sent, with %d bytes", callers, busy, unknown, waiting, queued, groups, bytes)
		if waiting != unknown || queued != 0 || groups > maxQueued || bytes > unknown*(2<<10)+inFlight*(32<<10) {
			t.Error("writes of callers who have gone are still there")
		}
		if unknown == 0 || unknown == callers {
			t.Error("too little has happened to prove anything")
		}
		disk.open()
		for i, err := range errs {
			_, missing := s.Get(t.Context(), testID(fmt.Sprint(i)))
			if errors.Is(err, semel.ErrNotApplied) != errors.Is(missing, semel.ErrNotFound) {
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
						_, ok, err := s.Apply(t.Context(), semel.Write{Record: rec})
						switch {
						case errors.Is(err, ErrBusy):
							busy.Add(1)
						case !ok || err != nil:
							t.Errorf("Apply gives %v, %v", ok, err)
						}
					})
				}
				synctest.Wait()
				waiting, _, _, bytes := s.commits.queue()
				if waiting < c.low || waiting > c.high || int64(c.callers-waiting) != busy.Load() {
					t.Errorf("of %d writes %d wait, with %d bytes, and %d were refused", c.callers, waiting, bytes, busy.Load())
				}
				disk.open()
				work.Wait()
				synctest.Wait() // who has answered them takes note of it afterwards
				if waiting, _, _, bytes := s.commits.queue(); waiting != 0 || bytes != 0 {
					t.Errorf("in the end %d wait, with %d bytes", waiting, bytes)
				}
				if n := s.commits.records.Load(); n != uint64(c.callers)-uint64(busy.Load()) {
					t.Errorf("%d records are stored", n)
				}
			})
		})
	}
}

// caught is a call that was made while the disk hung, and what it was told.
type caught struct {
	cancel context.CancelFunc
	done   chan struct{}
	rec    semel.Record
	ok     bool
	err    error
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
	<-time.After(2 * slow)
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
	write := func(s *Store, version int64, expect semel.Revision) func(context.Context, *caught) {
		return func(ctx context.Context, c *caught) {
			w := semel.Write{Record: testRecord(id, version, semel.Processing), Expect: expect, Evidence: []semel.Entry{testEntry(id, version-1, version)}}
			c.rec, c.ok, c.err = s.Apply(ctx, w)
		}
	}
	revision := func(version int64) semel.Revision { return testRecord(id, version, semel.Processing).Revision }
	look := func(s *Store) func(context.Context, *caught) {
		return func(ctx context.Context, c *caught) { c.rec, c.err = s.Get(ctx, id) }
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
			first := begin(t, write(s, 1, semel.Revision{}))
			reader, late := begin(t, look(s)), begin(t, write(s, 5, revision(7)))
			if err := first.giveUp(); !errors.Is(err, semel.ErrNotApplied) || !errors.Is(err, context.Canceled) {
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
			first, second := begin(t, write(s, 1, semel.Revision{})), begin(t, write(s, 9, semel.Revision{}))
			if err := first.giveUp(); !errors.Is(err, semel.ErrNotApplied) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			disk.open()
			<-second.done
			if !second.ok || second.err != nil {
				t.Errorf("the second claim gives %v, %v", second.ok, second.err)
			}
		})
	})
	t.Run("one that another follows stays", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			fill()
			first, second := begin(t, write(s, 1, semel.Revision{})), begin(t, write(s, 2, revision(1)))
			if err := first.giveUp(); !errors.Is(err, context.Canceled) || errors.Is(err, semel.ErrNotApplied) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			disk.open()
			<-second.done
			if !second.ok || second.err != nil {
				t.Errorf("the second write gives %v, %v", second.ok, second.err)
			}
			is(t, s, 2)
		})
	})
	t.Run("the one before counts again", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, fill func()) {
			first := begin(t, write(s, 1, semel.Revision{})) // which is sent
			fill()
			second := begin(t, write(s, 2, revision(1)))
			if err := second.giveUp(); !errors.Is(err, semel.ErrNotApplied) {
				t.Errorf("the caller who gave up was told %v", err)
			}
			reader, third := begin(t, look(s)), begin(t, write(s, 2, revision(1)))
			fourth := begin(t, write(s, 3, revision(2)))
			if err := first.giveUp(); !errors.Is(err, context.Canceled) || errors.Is(err, semel.ErrNotApplied) {
				t.Errorf("the caller whose write was sent was told %v", err)
			}
			if err := fourth.giveUp(); !errors.Is(err, semel.ErrNotApplied) {
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
			var refs []semel.Ref
			for _, rec := range recs {
				apply(t, s, rec, semel.Revision{})
				refs = append(refs, semel.Ref{ID: rec.ID, Revision: rec.Revision})
			}
			disk.shut()
			fill()
			calls := []*caught{
				begin(t, func(ctx context.Context, c *caught) { _, c.err = s.Purge(ctx, refs) }),
				begin(t, func(ctx context.Context, c *caught) {
					c.err = s.AppendEvidence(ctx, []semel.Entry{testEntry(id, 0, 1)})
				}),
				begin(t, func(ctx context.Context, c *caught) {
					c.err = s.PutEvidenceTiles(ctx, map[string][]byte{"tile": {1}})
				}),
			}
			for i, c := range calls {
				if err := c.giveUp(); !errors.Is(err, semel.ErrNotApplied) {
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

// A change that is taken back leaves the newest one that is not durable behind.
func TestTheChangeBeforeAWithdrawnOne(t *testing.T) {
	for durable := range 3 {
		var st stripe
		var ops []*op
		for i := range 3 {
			o := &op{value: []byte{1}, revision: semel.Revision{byte(i)}}
			st.replace(st.find(&o.digest), o)
			ops = append(ops, o)
		}
		for _, o := range ops[:durable] {
			if st.remove(o) {
				t.Error("a change that others follow was the last")
			}
			st.forget(o)
		}
		for i := len(ops) - 1; i >= durable; i-- {
			if st.find(&ops[i].digest) != ops[i] {
				t.Errorf("with %d durable, change %d is not found", durable, i)
			}
			st.withdraw(ops[i])
		}
		if st.pending != nil {
			t.Errorf("with %d durable, a change is pending in the end", durable)
		}
	}
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
					cur, err = semel.Record{}, nil
				}
				if err == nil {
					rec := testRecord(id, versions.Add(1), semel.Processing)
					entry := testEntry(id, cur.Fence, rec.Fence)
					_, ok, err := s.Apply(ctx, semel.Write{Record: rec, Expect: cur.Revision, Evidence: []semel.Entry{entry}})
					if err == nil && !ok {
						err = semel.ErrNotApplied
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
		switch definite := errors.Is(err, semel.ErrNotApplied); {
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
	if waiting, _, _, bytes := s.commits.queue(); waiting != 0 || bytes != 0 {
		t.Errorf("in the end %d wait, with %d bytes", waiting, bytes)
	}
}
