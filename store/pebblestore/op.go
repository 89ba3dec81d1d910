package pebblestore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// op is one change of one record on its way to the disk.
type op struct {
	gather.Item

	digest digest
	at     address
	// value is the encoded record; empty when it is being deleted.
	value []byte
	// was and due are the record's times in the due index before and after.
	was, due dueTime
	creates  bool // nothing was stored before
	revision store.Revision
	running  bool // the attempt in the record hasn't ended, so it will change again
	// evidence is written with the record.
	evidence []store.Entry
	deadline store.Instant // for being sent; zero: none

	// bare: no record changes. Then there is only evidence, or what batch has.
	bare  bool
	batch *pebble.Batch
}

// opOverhead is about what a change takes in a batch beside the record, and an entry of
// evidence beside its leaf and opening.
const opOverhead = 128

// Size is about what the change takes in a batch, for [gather.Queue].
func (o *op) Size() int {
	n := len(o.value) + opOverhead
	for i := range o.evidence {
		n += len(o.evidence[i].Leaf) + len(o.evidence[i].Opening) + opOverhead
	}
	if o.batch != nil {
		n += o.batch.Len()
	}
	return n
}

// putAll adds changes to a batch, and what they add and remove to the store's counts. No record is
// changed twice in a batch, so the order is free, and keys of one kind follow each other: Pebble
// finds the place of a key faster if it is near that of the one before.
//
// A key of an index is set once before it is removed, so the cheaper single-delete is
// right.
func putAll(ops []*op, b *pebble.Batch, m *meta) {
	for _, o := range ops {
		switch {
		case o.bare:
		case len(o.value) == 0:
			m.records--
			must(b.SingleDelete(indexKey(&o.digest), nil))
		case o.creates:
			o.at = m.end
			m.end++
			m.records++
			must(b.Set(indexKey(&o.digest), encodeAddress(o.at), nil))
		}
	}
	for _, o := range ops {
		switch {
		case o.batch != nil:
			must(b.Apply(o.batch, nil))
		case o.bare:
		case len(o.value) == 0:
			must(b.Delete(recordKey(o.at), nil))
		default:
			must(b.Set(recordKey(o.at), o.value, nil))
		}
	}
	for _, o := range ops {
		if o.was != o.due && o.was != never {
			must(b.SingleDelete(dueKey(o.was, o.at), nil))
		}
	}
	for _, o := range ops {
		if o.was != o.due && o.due != never {
			must(b.Set(dueKey(o.due, o.at), nil, nil))
		}
	}
	for _, o := range ops {
		for i := range o.evidence {
			putEntry(b, &o.evidence[i], m.entries)
			m.entries++
		}
	}
}

// must is for what can fail on an indexed batch only.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("pebblestore: add to a batch: %v", err))
	}
}

// writeBare writes what belongs to no record.
func (s *Store) writeBare(ctx context.Context, o *op) error {
	o.bare, o.was, o.due = true, never, never
	return s.commit(ctx, o)
}
