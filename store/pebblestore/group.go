package pebblestore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
)

// group is one batch.
type group struct {
	ops    []*op
	bytes  int // about the size of the batch
	number uint64
	taken  bool // to be written: nobody joins or leaves any more
	end    address
	// entries is how many there are in the evidence log when the group is; known
	// when it is logged.
	entries uint64
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

func (g *group) tell() { g.tells.Do(func() { close(g.told) }) }

// op is one change of one record on its way to the disk. It belongs to its
// caller; others see it through its stripe only, under the stripe's lock, and
// only until its group is durable.
type op struct {
	digest digest
	at     address
	group  *group
	index  int // in the group
	next   *op // in the stripe
	// prev is the change of the same record before this one, until it is durable.
	prev *op
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

	// bare: no record changes. Then there is only evidence, or what batch has.
	bare  bool
	batch *pebble.Batch
}

// opOverhead is about what a change takes in a batch beside the record.
const opOverhead = 128

func (o *op) size() int {
	n := len(o.value) + opOverhead + entriesSize(o.evidence)
	if o.batch != nil {
		n += o.batch.Len()
	}
	return n
}

func (o *op) deletes() bool { return !o.bare && len(o.value) == 0 }

func (o *op) writes() bool { return !o.bare && len(o.value) > 0 }

// fill adds the changes to a batch. It returns the first time in the due index that they
// take, and how many records they add and remove. A record, its places in both indexes
// and its evidence are in one batch, so a crash leaves all of them as they were or all as
// they are now. As no record is changed twice, the order is free, and keys that are near
// each other follow each other, for Pebble finds their places in its memory table faster
// then.
//
// A key of an index is set once before it is removed, so the cheaper
// single-delete is right.
func (g *group) fill(b *pebble.Batch) (first dueTime, more, less uint64) {
	for _, o := range g.ops {
		switch {
		case o.batch != nil:
			must(b.Apply(o.batch, nil))
		case o.creates:
			more++
			add := b.SetDeferred(indexKeyLen, addressLen)
			putIndexKey(add.Key, &o.digest)
			putAddress(add.Value, o.at)
			finish(add)
		case o.deletes():
			less++
			del := b.SingleDeleteDeferred(indexKeyLen)
			putIndexKey(del.Key, &o.digest)
			finish(del)
		}
	}
	for _, o := range g.ops {
		switch {
		case o.deletes():
			del := b.DeleteDeferred(recordKeyLen)
			putRecordKey(del.Key, o.at)
			finish(del)
		case o.writes():
			add := b.SetDeferred(recordKeyLen, len(o.value))
			putRecordKey(add.Key, o.at)
			copy(add.Value, o.value)
			finish(add)
		}
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
	return first, more, less
}

// appendEvidence appends the lists of entries of the changes.
func (g *group) appendEvidence(lists [][]semel.Entry) [][]semel.Entry {
	for _, o := range g.ops {
		if len(o.evidence) > 0 {
			lists = append(lists, o.evidence)
		}
	}
	return lists
}

// finish ends a deferred operation, which can fail on an indexed batch only.
func finish(d *pebble.DeferredBatchOp) { must(d.Finish()) }

// must is for what can fail on an indexed batch only.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("pebblestore: add to a batch: %v", err))
	}
}

// wait returns when the group is durable, or when that takes long and ctx has
// ended.
func wait(ctx context.Context, g *group) error {
	<-g.told
	if g.safe.Load() {
		return nil
	}
	select {
	case <-g.durable:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await waits until changes of one caller are durable, in the order in which they
// joined. When ctx ends before, it takes them back as far as that can be done, and says
// so where that is true of all: then nothing was written.
func (s *Store) await(ctx context.Context, ops ...*op) error {
	err := wait(ctx, ops[len(ops)-1].group)
	if err == nil {
		return nil
	}
	all := true
	for i := range ops {
		all = s.withdraw(ops[len(ops)-1-i]) && all
	}
	if all {
		return fmt.Errorf("%w: %w", semel.ErrNotApplied, err)
	}
	return err
}

// withdraw takes a change back, unless its group was taken, or another change of the
// same record follows it.
func (s *Store) withdraw(o *op) bool {
	if o.bare {
		return s.commits.leave(o)
	}
	st := s.stripe(&o.digest)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.find(&o.digest) != o || !s.commits.leave(o) {
		return false
	}
	st.withdraw(o)
	return true
}

// writeBare writes what belongs to no record.
func (s *Store) writeBare(ctx context.Context, o *op) error {
	o.bare, o.was, o.due = true, never, never
	if err := s.commits.join(o, nil); err != nil {
		return err
	}
	return s.await(ctx, o)
}
