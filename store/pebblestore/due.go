package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// dueMark remembers below which time the due index is known to be empty, so that
// a sweep does not walk again over the places that earlier sweeps have cleared
// and that compaction has not dropped yet.
type dueMark struct {
	mu       sync.Mutex
	low      dueTime // no place is below
	scanning bool
	sinceMin dueTime // the lowest place that was logged since the scan began
}

// logged takes note of the lowest place in a batch that can now be read.
func (m *dueMark) logged(t dueTime) {
	m.mu.Lock()
	m.low = min(m.low, t)
	m.sinceMin = min(m.sinceMin, t)
	m.mu.Unlock()
}

// begin returns from where to scan, and whether this scan may move the mark: one
// at a time does.
func (m *dueMark) begin() (from dueTime, moves bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scanning {
		return m.low, false
	}
	m.scanning, m.sinceMin = true, math.MaxUint64
	return m.low, true
}

// end moves the mark to the first place that was found by a scan of everything
// that was logged when it began.
func (m *dueMark) end(first dueTime) {
	m.mu.Lock()
	m.low = min(first, m.sinceMin)
	m.scanning = false
	m.mu.Unlock()
}

// Due is [semel.DueStore.Due]; the longest due come first. A record that is being
// changed is left to the next call. Damaged records do not keep the others from
// being found: their error is returned when nothing else is due.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	recs, err := s.dueRecords(ctx, q.Until, q.Limit)
	return semel.DuePage{Records: recs}, err
}

func (s *Store) dueRecords(ctx context.Context, until semel.Instant, limit int) ([]semel.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if until.IsZero() || limit <= 0 {
		return nil, nil
	}
	from, moves := s.due.begin()
	recs, first, err := s.scanDue(ctx, from, makeDueTime(until), limit)
	if moves {
		if err != nil {
			first = from
		}
		s.due.end(first)
	}
	if len(recs) > 0 {
		return recs, nil
	}
	return nil, err
}

// scanDue reads the index and the records of one state of the database. It
// returns the first place it found, or where the next scan would have to begin.
func (s *Store) scanDue(ctx context.Context, from, until dueTime, limit int) (recs []semel.Record, first dueTime, err error) {
	first = max(from, until)
	if from > until {
		return nil, first, nil
	}
	snap := s.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	var lower, upper [dueKeyLen]byte
	putDueKey(lower[:], from, 0)
	putDueKey(upper[:], until+1, 0)
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: lower[:], UpperBound: upper[:]})
	if err != nil {
		return nil, from, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var bad error
	found := false
	for ok := it.First(); ok && len(recs) < limit; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return recs, from, err
		}
		t, at, ok := parseDueKey(it.Key())
		if !ok {
			return recs, from, fmt.Errorf("the due index has a key of %d bytes", len(it.Key()))
		}
		if !found {
			found, first = true, t
		}
		rec, err := readDue(snap, at, t)
		if err != nil {
			bad = err
			s.log.trouble("a due record cannot be read", "error", err)
			continue
		}
		// What the snapshot shows was pending when the snapshot was taken or
		// is durable; and what is not pending any more is durable too.
		d := rec.ID.Digest()
		st := s.stripe(&d)
		st.mu.Lock()
		pending := st.find(&d) != nil
		st.mu.Unlock()
		if !pending {
			recs = append(recs, rec)
		}
	}
	if err := it.Error(); err != nil {
		return recs, from, err
	}
	return recs, first, bad
}

// readDue reads the record that an entry of the index stands for.
func readDue(snap *pebble.Snapshot, at address, t dueTime) (semel.Record, error) {
	var key [recordKeyLen]byte
	putRecordKey(key[:], at)
	value, closer, err := snap.Get(key[:])
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = errors.New("it is in the due index and not stored")
		}
		return semel.Record{}, fmt.Errorf("record number %d: %w", at, err)
	}
	defer closer.Close()
	rec, err := recordcodec.Decode(value)
	if err != nil {
		return semel.Record{}, fmt.Errorf("record number %d: %w", at, err)
	}
	if makeDueTime(rec.NextAt) != t {
		d := rec.ID.Digest()
		return semel.Record{}, damaged(&d, errors.New("the due index has it at another time"))
	}
	return rec, nil
}
