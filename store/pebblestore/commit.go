package pebblestore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

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
type committer struct {
	mu       sync.Mutex
	oldest   *group // waits to be written, as do those after it
	newest   *group // the last one started
	open     bool   // the newest takes changes
	stopped  bool   // no more come
	maxBytes int
	joined   atomic.Uint64 // changes, ever
	batches  uint64        // started, ever
	records  uint64        // stored when all groups are
	next     address
	free     []*op           // an empty list to reuse
	freeLogs [][]semel.Entry // another
	// entries is how many entries of the evidence log are in the log. Only write
	// uses it, so entries are numbered in the order in which they were logged.
	entries uint64

	wake    chan struct{} // receives when a group was started
	written chan *group   // groups that are in the log
	running sync.WaitGroup
}

// group is one batch.
type group struct {
	ops []*op
	// evidence are the entries of ops, and those that belong to no record, in
	// the order in which they joined.
	evidence [][]semel.Entry
	// others add what is neither a record nor an entry.
	others []func(*pebble.Batch)
	bytes  int // about the size of the batch
	number uint64
	// records is how many are stored when the group is.
	records uint64
	end     address // after those of all records
	entries uint64  // in the evidence log when the group is; known when it is logged
	batch   *pebble.Batch
	next    *group
	// logged is closed when the batch is in the log and can be read, but may
	// still be lost; durable when it can't.
	logged, durable chan struct{}
	// told is closed when the group is durable, which safe says then, or when
	// that takes long.
	told  chan struct{}
	safe  atomic.Bool
	tells sync.Once
	late  *time.Timer
}

// slow is from when on a sync takes long. Until then callers do not look whether
// their context has ended: that starts a timer for each of them.
const slow = 50 * time.Millisecond

func (o *op) deletes() bool { return len(o.value) == 0 }

func (g *group) tell() { g.tells.Do(func() { close(g.told) }) }

// inFlight is how many groups may be in the log and not durable: enough for the
// writer never to wait for that.
const inFlight = 64

// op is one change of one record on its way to the disk. It belongs to its
// caller; others see it through its stripe only, under the stripe's lock, and
// only until its group is durable.
type op struct {
	digest digest
	at     address
	group  *group
	next   *op // in the stripe
	// value is the encoded record; empty when it is being deleted.
	value    []byte
	revision semel.Revision
	// was and due are the record's times in the due index before and after.
	was, due dueTime
	creates  bool // nothing was stored before
	// open: the record is being processed, so it is likely to change soon.
	open bool
	// evidence is written with the record.
	evidence []semel.Entry
	deadline semel.Instant // for joining a group; zero: none
}

// run starts the committer.
func (c *committer) run(s *Store, maxBytes int, m meta) {
	c.maxBytes, c.batches, c.records, c.next, c.entries = maxBytes, m.batches, m.records, m.end, m.entries
	c.wake = make(chan struct{}, 1)
	c.written = make(chan *group, inFlight)
	c.running.Go(func() { c.write(s) })
	c.running.Go(func() { c.follow(s) })
}

// count is how many records are stored when all groups are.
func (c *committer) count() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records
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
func (c *committer) join(o, after *op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open || after != nil && after.group == c.newest {
		c.start()
	}
	g := c.newest
	o.group = g
	g.ops = append(g.ops, o)
	switch {
	case o.creates:
		o.at = c.next
		c.next++
		c.records++
	case o.deletes():
		c.records--
	}
	g.records, g.end = c.records, c.next
	size := len(o.value) + opOverhead
	if len(o.evidence) > 0 {
		g.evidence = append(g.evidence, o.evidence)
		size += entriesSize(o.evidence)
	}
	c.grow(g, size)
}

// add adds to the open group what belongs to no record, about so many bytes.
func (c *committer) add(size int, f func(g *group)) *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		c.start()
	}
	g := c.newest
	f(g)
	c.grow(g, size)
	return g
}

// grow takes note of what a change adds to a group. The caller holds c.mu.
func (c *committer) grow(g *group, size int) {
	c.joined.Add(1)
	if g.bytes += size; g.bytes >= c.maxBytes {
		c.open = false
	}
}

// start opens a group. The caller holds c.mu.
func (c *committer) start() {
	c.batches++
	g := &group{
		ops: c.free, evidence: c.freeLogs, number: c.batches, records: c.records, end: c.next,
		logged: make(chan struct{}), durable: make(chan struct{}), told: make(chan struct{}),
	}
	c.free, c.freeLogs = nil, nil
	if c.oldest == nil {
		c.oldest = g
	} else {
		c.newest.next = g
	}
	c.newest, c.open = g, true
	select {
	case c.wake <- struct{}{}:
	default: // it will be seen
	}
}

// take returns the oldest group that is not written, closed for changes, or nil.
func (c *committer) take() (g *group, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g = c.oldest; g != nil {
		c.oldest, g.next = g.next, nil
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
			late := time.AfterFunc(slow, g.tell)
			g.batch = s.db.NewBatchWithSize(g.bytes + 128)
			first := g.fill(g.batch)
			c.entries = g.fillEvidence(g.batch, c.entries, &pack)
			for _, add := range g.others {
				add(g.batch)
			}
			g.entries = c.entries
			s.hashes.add(g.entries, g.evidence)
			s.subjectIndex.add(g.evidence)
			s.log.write(s.db, g.batch, meta{clock: s.clock.now(), batches: g.number, records: g.records, end: g.end, entries: g.entries})
			s.due.logged(first)
			close(g.logged)
			g.late = late
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
		g.late.Stop()
		s.evidence.durable.Store(g.entries) // before anybody is told
		s.subjectIndex.grown(g.entries)
		s.settle(g)
		g.safe.Store(true)
		close(g.durable)
		g.tell()
		g.batch.Close()
		clear(g.ops)
		clear(g.evidence)
		c.mu.Lock()
		c.free, c.freeLogs = g.ops[:0], g.evidence[:0]
		g.ops, g.evidence, g.others, g.batch = nil, nil, nil, nil
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

// fill adds the changes to a batch and returns the first time in the due index
// that they take. A record, its places in both indexes and its evidence are in one
// batch, so a crash leaves all of them as they were or all as they are now. As no record is
// changed twice, the order is free, and keys that are near each other follow each
// other, for Pebble finds their places in its memory table faster then.
//
// A key of an index is set once before it is removed, so the cheaper
// single-delete is right.
func (g *group) fill(b *pebble.Batch) (first dueTime) {
	for _, o := range g.ops {
		switch {
		case o.creates:
			add := b.SetDeferred(indexKeyLen, addressLen)
			putIndexKey(add.Key, &o.digest)
			putAddress(add.Value, o.at)
			finish(add)
		case o.deletes():
			del := b.SingleDeleteDeferred(indexKeyLen)
			putIndexKey(del.Key, &o.digest)
			finish(del)
		}
	}
	for _, o := range g.ops {
		if o.deletes() {
			del := b.DeleteDeferred(recordKeyLen)
			putRecordKey(del.Key, o.at)
			finish(del)
			continue
		}
		add := b.SetDeferred(recordKeyLen, len(o.value))
		putRecordKey(add.Key, o.at)
		copy(add.Value, o.value)
		finish(add)
	}
	for _, o := range g.ops {
		if o.was != o.due && o.was != never {
			del := b.SingleDeleteDeferred(dueKeyLen)
			putDueKey(del.Key, o.was, o.at)
			finish(del)
		}
	}
	first = never
	for _, o := range g.ops {
		if o.was != o.due && o.due != never {
			add := b.SetDeferred(dueKeyLen, 0)
			putDueKey(add.Key, o.due, o.at)
			finish(add)
			first = min(first, o.due)
		}
	}
	return first
}

// write puts a batch in the log. A failure ends the process: part of the batch
// may be in the log, later batches may or may not follow it there, and only the
// next Open can tell.
//
// A crash before the sync is done leaves the whole batch or nothing of it, and
// nobody was answered. A crash after it leaves the batch.
func (l *logger) write(db *pebble.DB, b *pebble.Batch, m meta) {
	// Pebble panics on some failures of its log.
	defer func() {
		if p := recover(); p != nil {
			l.Fatalf("write to the log: %v", p)
		}
	}()
	add := b.SetDeferred(len(metaKey), metaLen)
	copy(add.Key, metaKey)
	m.put(add.Value)
	finish(add)
	if err := db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		l.Fatalf("write to the log: %v", err)
	}
}

// apply puts a batch in the log that nobody waits for. For a failure see write.
func (l *logger) apply(db *pebble.DB, b *pebble.Batch) {
	defer func() {
		if p := recover(); p != nil {
			l.Fatalf("write to the log: %v", p)
		}
	}()
	if err := db.Apply(b, pebble.NoSync); err != nil {
		l.Fatalf("write to the log: %v", err)
	}
}

// sync waits until a batch is durable. For a failure see write.
func (l *logger) sync(b *pebble.Batch) {
	if err := b.SyncWait(); err != nil {
		l.Fatalf("sync of the log: %v", err)
	}
}

// finish ends a deferred operation, which can fail on an indexed batch only.
func finish(d *pebble.DeferredBatchOp) {
	if err := d.Finish(); err != nil {
		panic(fmt.Sprintf("pebblestore: add to a batch: %v", err))
	}
}

// opOverhead is about what a change takes in a batch beside the record.
const opOverhead = 128
