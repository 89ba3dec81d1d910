package pebblestore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// op is one change of one record on its way to the disk.
type op struct {
	gather.Item

	digest digest
	at     address
	rec    *semel.Record // nil if it is being deleted
	// was and due are the record's times in the due index before and after.
	was, due dueTime
	creates  bool // nothing was stored before
	// attributes are the ones before the change.
	attributes store.Attributes
	indexes    bool // only entries of attributes are written, and rec stays as it was
	// evidence is written with the record.
	evidence []store.Entry
	deadline store.Instant // for sending the write; zero: none

	// bare: no record changes. There is only evidence, or whatever is in batch.
	bare  bool
	batch *pebble.Batch
}

// opOverhead is about how much a change takes in a batch beside the program's data, and an
// entry of evidence beside its leaf and opening.
const opOverhead = 256

// Size is about how much the change takes in a batch, for [gather.Queue].
func (o *op) Size() int {
	n := opOverhead
	if rec := o.rec; rec != nil {
		n += len(rec.Result.Data) + len(rec.Earlier)*opOverhead + len(rec.Attributes)*attributeKeyLen
		for i := range rec.Effects {
			n += len(rec.Effects[i].Result.Data) + opOverhead
		}
		for i := range rec.Outbox {
			n += len(rec.Outbox[i].Payload) + opOverhead
		}
	}
	for i := range o.evidence {
		n += len(o.evidence[i].Leaf) + len(o.evidence[i].Opening) + opOverhead
	}
	if o.batch != nil {
		n += o.batch.Len()
	}
	return n
}

// putAll adds changes to a batch, and keeps the store's counts up to date. No record is changed
// twice in a batch, so the order is free, and keys of one kind follow each other: Pebble finds
// the place of a key faster if it is near that of the one before.
//
// A key of the index, or of the due index, is set only once before it is removed, so the cheaper
// single-delete is enough.
//
// It encodes records in the buffer value, and returns that for the next call: Pebble copies them.
func putAll(ops []*op, b *pebble.Batch, m *meta, a *attributes, value []byte) []byte {
	for _, o := range ops {
		switch {
		case o.bare:
		case o.rec == nil:
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
		case o.bare, o.indexes:
		case o.rec == nil:
			must(b.Delete(recordKey(o.at), nil))
		default:
			var err error
			value, err = codec.Append(value[:0], o.rec)
			must(err)
			must(b.Set(recordKey(o.at), value, nil))
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
		if !o.bare {
			a.putEntries(b, o)
		}
		for i := range o.evidence {
			putEntry(b, &o.evidence[i], m.entries)
			m.entries++
		}
	}
	return value
}

// must panics on errors that can't happen: only indexed batches, and records that can't be
// encoded, cause them.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("pebblestore: add to a batch: %v", err))
	}
}

// writeBare writes a batch that changes no record.
func (s *Store) writeBare(ctx context.Context, o *op) error {
	o.bare, o.was, o.due = true, never, never
	return s.commit(ctx, o)
}
