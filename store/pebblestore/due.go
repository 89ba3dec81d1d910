package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
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

// duePlace is a position in the due index, between pages.
type duePlace struct {
	due dueTime
	at  address
}

// String is the place as the cursor of a page.
func (p duePlace) String() string {
	return strconv.FormatUint(uint64(p.due), 10) + "." + strconv.FormatUint(uint64(p.at), 10)
}

// parseDuePlace is the reverse of String, and takes nothing else.
func parseDuePlace(s string) (p duePlace, err error) {
	due, at, _ := strings.Cut(s, ".")
	d, bad1 := strconv.ParseUint(due, 10, 64)
	a, bad2 := strconv.ParseUint(at, 10, 64)
	if p = (duePlace{dueTime(d), address(a)}); bad1 != nil || bad2 != nil || p.at == nowhere || p.String() != s {
		return duePlace{}, errCursor
	}
	return p, nil
}

// Due is [semel.DueStore.Due], ordered by the nanosecond. Each page is of one state of
// the database. A record that is being changed is waited for, and is in the page if it
// is due at the same time afterwards.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (page semel.DuePage, err error) {
	if err := s.enter(ctx); err != nil {
		return page, err
	}
	defer s.leave()
	if q.After != "" {
		after, err := parseDuePlace(q.After)
		if err != nil || q.Limit <= 0 {
			return page, err
		}
		page, _, err = s.scanDue(ctx, duePlace{after.due, after.at + 1}, &q)
		return page, err
	}
	if q.Limit <= 0 {
		return page, nil
	}
	from, moves := s.due.begin()
	page, first, err := s.scanDue(ctx, duePlace{due: from}, &q)
	if moves {
		s.due.end(first)
	}
	return page, err
}

// scanDue reads a page from a place of the index on. It returns the first time that it
// found there, or where the next scan would have to begin.
func (s *Store) scanDue(ctx context.Context, from duePlace, q *semel.DueQuery) (page semel.DuePage, first dueTime, err error) {
	until := sortable(q.Until)
	if from.due > until {
		return page, from.due, nil
	}
	snap := s.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	var lower, upper [dueKeyLen]byte
	putDueKey(lower[:], from.due, from.at)
	putDueKey(upper[:], until+1, 0)
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: lower[:], UpperBound: upper[:]})
	if err != nil {
		return page, from.due, err
	}
	defer it.Close() // which says what it.Error does
	first = until
	var last duePlace
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return semel.DuePage{}, from.due, err
		}
		t, at, ok := parseDueKey(it.Key())
		if !ok {
			return semel.DuePage{}, from.due, fmt.Errorf("the due index has a key of %d bytes", len(it.Key()))
		}
		switch len(page.Records) + len(page.Unreadable) {
		case 0:
			first = min(first, t)
		case q.Limit:
			page.Next = last.String()
			return page, first, nil
		}
		last = duePlace{t, at}
		rec, found, err := s.readDue(ctx, snap, last)
		switch {
		case err != nil && ctx.Err() != nil:
			return semel.DuePage{}, from.due, ctx.Err()
		case err != nil:
			page.Unreadable = append(page.Unreadable, err)
			s.log.trouble("a due record cannot be read", "error", err)
		case found:
			page.Records = append(page.Records, rec)
		}
	}
	if err := it.Error(); err != nil {
		if last == (duePlace{}) {
			return page, from.due, err
		}
		page.Next = last.String() // where the next call meets the error
	}
	return page, first, nil
}

// readDue reads the record that an entry of the index stands for. What it returns is
// durable; nothing where the record is due at another time by now.
func (s *Store) readDue(ctx context.Context, snap *pebble.Snapshot, p duePlace) (rec semel.Record, found bool, err error) {
	var key [recordKeyLen]byte
	putRecordKey(key[:], p.at)
	value, closer, err := snap.Get(key[:])
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			err = errors.New("it is in the due index and not stored")
		}
		return rec, false, fmt.Errorf("record number %d: %w", p.at, err)
	}
	rec, err = recordcodec.Decode(value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return rec, false, fmt.Errorf("record number %d: %w", p.at, err)
	}
	if makeDueTime(rec.NextAt) != p.due {
		d := rec.ID.Digest()
		return rec, false, damaged(&d, errors.New("the due index has it at another time"))
	}
	// What the snapshot shows was pending when the snapshot was taken or is durable;
	// and what is not pending any more is durable too.
	if !s.pending(&rec.ID) {
		return rec, true, nil
	}
	rec, err = s.get(ctx, rec.ID)
	if errors.Is(err, semel.ErrNotFound) {
		return rec, false, nil
	}
	return rec, err == nil && makeDueTime(rec.NextAt) == p.due, err
}
