package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/terms"
)

// attributes knows how much of the index of attributes is complete. A record's entries are
// written in its batch.
//
// An earlier program writes records without entries. So this program marks each of its batches.
// If the last one lacks the mark, the store rebuilds the entries in the background, from the
// newest record to the oldest, and searches go on.
type attributes struct {
	// low is the address from which on all records have their entries.
	low atomic.Uint64
	// reset drops the existing entries, in the first batch.
	reset bool
	// older: the store writes like programs that had no index.
	older bool

	stop     chan struct{}
	building sync.WaitGroup
}

// attributesMark returns the value of attributesKey: the form of the entries, the number of the
// batch, and low.
func attributesMark(batch uint64, low address) []byte {
	b := append(make([]byte, 0, 1+8+addressLen), terms.Form)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, batch), uint64(low))
}

// read finds out how much of the index is there.
func (a *attributes) read(db pebble.Reader, m *meta) error {
	mark, err := readKey(db, attributesKey)
	a.stop = make(chan struct{})
	a.low.Store(uint64(m.end))
	if len(mark) == 1+8+addressLen && mark[0] == terms.Form && binary.BigEndian.Uint64(mark[1:]) == m.batches {
		a.low.Store(binary.BigEndian.Uint64(mark[1+8:]))
	} else {
		a.reset = m.end > 0
	}
	return err
}

// put adds the index's own state to a batch.
func (a *attributes) put(b *pebble.Batch, batch uint64) {
	if a.older {
		return
	}
	if a.reset {
		must(b.DeleteRange([]byte{attributePrefix}, []byte{attributePrefix + 1}, nil))
		a.reset = false
	}
	must(b.Set(attributesKey, attributesMark(batch, address(a.low.Load())), nil))
}

// putEntries adds and removes the entries of a record.
func (a *attributes) putEntries(b *pebble.Batch, o *op) {
	var is semel.Record
	if o.rec != nil {
		is.Attributes = o.rec.Attributes
	}
	if len(o.attributes)+len(is.Attributes) == 0 || a.older {
		return
	}
	gone, added := terms.Changed(o.attributes, is.Attributes)
	if uint64(o.at) < a.low.Load() {
		added = terms.Of(is.Attributes) // the others may have no entries yet
	}
	for _, t := range gone {
		must(b.Delete(attributeKey(t, o.at), nil))
	}
	for _, t := range added {
		must(b.Set(attributeKey(t, o.at), nil, nil))
	}
}

// newestBefore finds the newest record before an address that has one of some terms.
func newestBefore(it *pebble.Iterator, list []terms.Term, end address) (newest address, found bool) {
	for _, t := range list {
		if !it.SeekLT(attributeKey(t, end)) || len(it.Key()) != attributeKeyLen || [terms.Len]byte(it.Key()[1:]) != t {
			continue
		}
		if at, ok := parseAddress(it.Key()[1+terms.Len:]); ok && (!found || at > newest) {
			newest, found = at, true
		}
	}
	return newest, found
}

// build adds the missing entries of records, in the background.
func (a *attributes) build(s *Store) {
	if s.readOnly || a.low.Load() == 0 {
		return
	}
	a.building.Go(func() {
		for pause := time.Duration(0); a.low.Load() > 0; {
			select {
			case <-a.stop:
				return
			case <-time.After(pause):
			}
			began := time.Now()
			err := a.some(s)
			if pause = time.Since(began); err != nil { // calls come first
				s.logger.Warn("the index of attributes isn't complete, and goes on", "error", err)
				pause = time.Minute
			}
		}
	})
}

// One step of the rebuild reads at most this much, to bound its memory.
const chunkRecords, chunkBytes = 256, 4 << 20

// some adds the entries of the newest records that have none. It writes each as a change that
// leaves the record as it is. If somebody else changes the record meanwhile, that write has all
// of its entries. A crash leaves the records to be read again.
func (a *attributes) some(s *Store) error {
	ctx := context.Background()
	recs, low, err := a.behind(s)
	errs := make([]error, len(recs))
	var work sync.WaitGroup
	for i, rec := range recs {
		work.Go(func() {
			if errs[i] = s.enterToWrite(ctx); errs[i] == nil {
				defer s.leave()
				_, _, errs[i] = s.change(ctx, &rec.ID, rec.Revision, &op{digest: rec.ID.Digest(), rec: rec, due: makeDueTime(rec.NextAt), indexes: true})
			}
		})
	}
	work.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	a.low.Store(uint64(low))
	return nil
}

// behind reads the newest records that still need entries. Once they have them, all records
// from low on do.
func (a *attributes) behind(s *Store) (recs []*semel.Record, low address, err error) {
	ctx := context.Background()
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: recordKey(0), UpperBound: recordKey(address(a.low.Load()))})
	if err != nil {
		return nil, 0, err
	}
	budget, looked := paging.New(paging.With(ctx, chunkBytes, time.Second)), 0
	for ok := it.Last(); ok; ok = it.Prev() {
		at, _ := parseAddress(it.Key()[1:])
		if looked == chunkRecords || budget.Spent {
			low = at + 1
			break
		}
		looked++
		value, err := it.ValueAndErr()
		budget.Spend(len(value))
		// A record that can't be read can't be found, either. Searches through all records name it.
		if rec, err := decode(at, value, err); err == nil && len(rec.Attributes) > 0 {
			recs = append(recs, rec)
		}
	}
	return recs, low, it.Close()
}

// close stops the rebuild.
func (a *attributes) close() {
	close(a.stop)
	a.building.Wait()
}
