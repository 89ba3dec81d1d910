package pebblestore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
)

// committer turns the writes of concurrent callers into few synced batches.
//
// Callers let their changes join the open group. One goroutine takes the oldest
// group, writes it to the log as one batch and goes on to the next, without
// waiting until the batch is durable: the callers that have come meanwhile are in
// that one. So a caller that is alone waits for nobody, and many share what a
// batch costs. A second goroutine follows, learns that batches are durable, and
// wakes their callers. Pebble syncs once for all batches that are in the log.
//
// While the disk hangs, groups wait to be taken. A caller that gives up takes its
// change out of such a group again, so that only those wait who are still there, and
// what waits is bounded.
type committer struct {
	mu       sync.Mutex
	oldest   *group // waits to be taken, as do those after it
	newest   *group // the last one started
	queued   int    // groups that wait to be taken
	open     bool   // the newest takes changes
	stopped  bool   // no more come
	maxBytes int
	waiting  int           // changes that are not durable
	bytes    int           // their size
	joined   atomic.Uint64 // changes, ever
	batches  uint64        // started, ever
	next     address
	free     []*op // an empty list to reuse

	// Only write changes these. records is how many are stored, and entries how many
	// entries of the evidence log there are, when all that is in the log is durable.
	// Entries are numbered in the order in which they were logged.
	records atomic.Uint64
	entries uint64
	lists   [][]semel.Entry // of one group; reused

	durable atomic.Uint64 // the number of the newest batch that can't be lost
	wake    chan struct{} // receives when a group was started
	written chan *group   // groups that are in the log
	running sync.WaitGroup
}

// Bounds of what waits for the disk. Writers meet them when the disk hangs, or when more
// of them come than a machine has memory for.
const (
	// inFlight is how many groups may be in the log and not durable: enough for the
	// writer never to wait for that.
	inFlight = 64
	// maxQueued bounds the groups that are not in the log.
	maxQueued = 64
	// maxWaiting bounds the changes in all of them, and maxWaitingBytes their size.
	maxWaiting      = 1 << 14
	maxWaitingBytes = 64 << 20
)

// ErrBusy is what a write fails with when too much waits for the disk already. Nothing
// was written.
var ErrBusy = fmt.Errorf("pebblestore: too much waits for the disk: %w", semel.ErrNotApplied)

// slow is from when on a sync takes long. Until then callers do not look whether
// their context has ended: that starts a timer for each of them.
const slow = 50 * time.Millisecond

// run starts the committer. Its first batch changes nothing: it begins a log with a
// number by which the next Open knows whether anything is missing before it.
func (c *committer) run(s *Store, maxBytes int, m meta) {
	c.maxBytes, c.batches, c.next, c.entries = maxBytes, m.batches, m.end, m.entries
	c.records.Store(m.records)
	c.durable.Store(m.batches)
	if s.readOnly {
		return
	}
	c.wake = make(chan struct{}, 1)
	c.written = make(chan *group, inFlight)
	c.start()
	c.running.Go(func() { c.write(s) })
	c.running.Go(func() { c.follow(s) })
}

func (c *committer) newestGroup() *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// join adds a change to the open group. after is the change of the same record
// that o follows, if that is not durable yet. Changes of one record join in the
// order in which they follow each other, under the lock of its stripe, and no two
// of them are in one group.
func (c *committer) join(o, after *op) error {
	size := o.size()
	c.mu.Lock()
	defer c.mu.Unlock()
	another := !c.open || after != nil && after.group == c.newest
	if c.waiting >= maxWaiting || c.waiting > 0 && c.bytes+size > maxWaitingBytes || another && c.queued >= maxQueued {
		return ErrBusy
	}
	if another {
		c.start()
	}
	g := c.newest
	o.group, o.index = g, len(g.ops)
	g.ops = append(g.ops, o)
	if o.creates {
		o.at = c.next
		c.next++
	}
	c.joined.Add(1)
	c.account(g, 1, size)
	return nil
}

// leave takes a change out of its group again, if that was not taken yet.
func (c *committer) leave(o *op) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := o.group
	if g.taken {
		return false
	}
	last := len(g.ops) - 1
	g.ops[o.index] = g.ops[last]
	g.ops[o.index].index = o.index
	g.ops[last] = nil
	g.ops = g.ops[:last]
	c.account(g, -1, -o.size())
	return true
}

// account takes note of changes that a group has gained or lost. The caller holds c.mu.
func (c *committer) account(g *group, changes, size int) {
	c.waiting += changes
	c.bytes += size
	g.bytes += size
	if g == c.newest && !g.taken {
		c.open = g.bytes < c.maxBytes
	}
}

// start opens a group. The caller holds c.mu.
func (c *committer) start() {
	c.batches++
	g := &group{
		ops: c.free, number: c.batches,
		logged: make(chan struct{}), durable: make(chan struct{}), told: make(chan struct{}),
	}
	g.late = time.AfterFunc(slow, g.tell)
	c.free = nil
	if c.oldest == nil {
		c.oldest = g
	} else {
		c.newest.next = g
	}
	c.newest, c.open = g, true
	c.queued++
	select {
	case c.wake <- struct{}{}:
	default: // it will be seen
	}
}

// take returns the oldest group that was not taken, closed for changes, or nil.
func (c *committer) take() (g *group, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g = c.oldest; g != nil {
		c.oldest, g.next = g.next, nil
		c.queued--
		g.taken, g.end = true, c.next
		if g == c.newest {
			c.open = false
		}
	}
	return g, c.stopped
}

// write writes groups to the log in their order.
func (c *committer) write(s *Store) {
	defer close(c.written)
	var pack packer
	for {
		gather.Until(c.joined.Load)
		g, stopped := c.take()
		switch {
		case g != nil:
			g.batch = s.db.NewBatchWithSize(g.bytes + 192)
			progress{g.number, c.durable.Load()}.log(g.batch)
			first, more, less := g.fill(g.batch)
			c.records.Add(more - less)
			c.lists = g.appendEvidence(c.lists[:0])
			c.entries = pack.fill(g.batch, c.lists, c.entries)
			g.entries = c.entries
			s.hashes.add(g.entries, c.lists)
			s.subjectIndex.add(c.lists)
			clear(c.lists)
			s.log.write(s.db, g.batch, meta{clock: s.clock.now(), batches: g.number, records: c.records.Load(), end: g.end, entries: g.entries})
			s.due.logged(first)
			close(g.logged)
			s.space.look()
			c.written <- g
		case stopped:
			return
		default:
			<-c.wake
		}
	}
}

// follow tells of groups that have become durable.
func (c *committer) follow(s *Store) {
	for g := range c.written {
		s.log.sync(g.batch)
		c.durable.Store(g.number) // before anybody is told
		g.late.Stop()
		s.evidence.durable.Store(g.entries) // this too
		s.subjectIndex.grown(g.entries)
		s.settle(g)
		g.safe.Store(true)
		close(g.durable)
		g.tell()
		g.batch.Close()
		c.mu.Lock()
		c.account(g, -len(g.ops), -g.bytes)
		clear(g.ops)
		c.free = g.ops[:0]
		g.ops, g.batch = nil, nil
		c.mu.Unlock()
	}
}

// stop writes one more batch, which makes the clock durable so that the next
// Open goes on from here, and ends the goroutines. No change may join any more.
// It returns the number of batches.
func (c *committer) stop() uint64 {
	c.mu.Lock()
	c.start()
	c.open, c.stopped = false, true
	n := c.batches
	c.mu.Unlock()
	c.running.Wait()
	return n
}
