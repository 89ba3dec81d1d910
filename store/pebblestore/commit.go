package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// committer turns the writes of concurrent callers into few synced batches: group commit.
//
// One goroutine puts a batch in the log, and continues with the next without waiting until the
// first is synced: the callers that came meanwhile are in that one. So a lone caller waits for
// nobody, and many share the cost of a batch. One sync of Pebble covers everything in the log.
//
// While the disk hangs, callers wait in the queue. A caller that gives up takes its write
// along, so the queue is bounded and has no orphans.
type committer struct {
	queue   gather.Queue[*op]
	sending sync.WaitGroup

	// The end of the log, known to the goroutine that puts batches in it. Batches, records and
	// entries of the evidence log are numbered in its order.
	last   meta
	synced chan struct{} // closed when last is durable
	value  []byte        // buffer for encoding records

	syncing chan struct{} // has an element for each batch that is in the log and not durable
	durable atomic.Uint64 // the number of the newest batch that can't be lost
	// entries is how many entries of the evidence log can't be lost. Readers get no more: if
	// somebody signed entries that a crash then took back, they would be caught telling two
	// stories.
	entries atomic.Uint64
}

// inFlight bounds the batches that are in the log and not durable yet. While the disk hangs,
// their results are unknown. BenchmarkInFlight shows the cost of one at a time.
const inFlight = 64

// ErrBusy is the error of a write when too many already wait for the disk. Nothing was written.
var ErrBusy = fmt.Errorf("pebblestore: too much waits for the disk: %w", store.ErrNotApplied)

// start makes the store ready to write. Its first batch changes nothing: it gives the new log a
// number, so that the next Open notices if an earlier one is missing.
func (s *Store) start(maxBytes int, last meta) {
	c := &s.commits
	c.last = last
	c.durable.Store(last.batches)
	c.entries.Store(last.entries)
	if s.readOnly {
		return
	}
	c.synced, c.syncing = make(chan struct{}), make(chan struct{}, inFlight)
	close(c.synced)
	room := gather.NewRoom()
	c.queue = gather.Queue[*op]{
		Start: s.send, Workers: 1, MaxBatch: int(room.MaxItems), MaxBytes: maxBytes,
		Work: &c.sending, Room: room,
	}
	s.send(nil)()
}

// stop waits for writes that outlived their callers. Then it writes one more batch, which makes
// the clock durable so that the next Open continues from here. No call may be running. It
// returns the number of batches.
func (s *Store) stop() uint64 {
	s.commits.sending.Wait()
	s.send(nil)()
	return s.commits.last.batches
}

// commit returns when a change is durable. If ctx ends before the change is sent, it is
// withdrawn, and the error is a [store.ErrNotApplied].
func (s *Store) commit(ctx context.Context, o *op) error {
	err := s.commits.queue.Do(ctx, o)
	if !errors.Is(err, gather.ErrNotSent) {
		return err
	}
	s.settle(o, false)
	if errors.Is(err, gather.ErrFull) {
		return ErrBusy
	}
	return fmt.Errorf("%w: %w", store.ErrNotApplied, err)
}

// settle lets others see and change a record again, once its change is durable (made) or
// withdrawn.
func (s *Store) settle(o *op, made bool) {
	if !o.bare {
		s.stripe(&o.digest).end(o, made)
	}
}

// send puts a batch in the log. finish waits until the batch is durable.
func (s *Store) send(batch []*op) (finish func()) {
	c := &s.commits
	b := s.log(batch)
	now, before, synced := c.last, c.synced, make(chan struct{})
	c.synced = synced
	c.syncing <- struct{}{}
	s.space.look()
	return func() {
		s.logger.sync(b)
		<-before                     // so that no batch becomes visible before the ones that it follows
		c.durable.Store(now.batches) // before anybody gets an answer
		c.entries.Store(now.entries) // this too
		close(synced)
		s.processing.changed(batch)
		for _, o := range batch {
			s.settle(o, true)
		}
		b.Close()
		<-c.syncing
	}
}

// log puts a batch in the log. A record, its places in the indexes and its evidence are in one
// batch, so a crash leaves either all of the old ones or all of the new ones. No record is
// changed twice in a batch, so the order is free.
func (s *Store) log(batch []*op) *pebble.Batch {
	m, b := &s.commits.last, s.db.NewBatch()
	m.batches++
	progress{m.batches, s.commits.durable.Load()}.log(b)
	s.attributes.put(b, m.batches)
	first := never
	s.commits.value = putAll(batch, b, m, &s.attributes, s.commits.value)
	for _, o := range batch {
		if o.due != o.was {
			first = min(first, o.due)
		}
	}
	s.hashes.add(batch, m.entries)
	m.clock = s.clock.now()
	s.clock.put(b)
	s.logger.write(s.db, b, m)
	s.due.logged(first)
	return b
}
