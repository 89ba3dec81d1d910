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
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// dueMark remembers the time up to which the due index is empty. Without it each sweep would
// walk again over entries that earlier sweeps removed, until compaction drops them; see
// BenchmarkDueMark.
type dueMark struct {
	mu       sync.Mutex
	low      dueTime // there is no entry before it
	scanning bool
	sinceMin dueTime // the earliest entry that was logged since the scan began
}

// logged notes the earliest entry of a batch that readers can see from now on.
func (m *dueMark) logged(t dueTime) {
	m.mu.Lock()
	m.low = min(m.low, t)
	m.sinceMin = min(m.sinceMin, t)
	m.mu.Unlock()
}

// begin returns where to start a scan, and whether this scan may move the mark: only one at a
// time may.
func (m *dueMark) begin() (from dueTime, moves bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scanning {
		return m.low, false
	}
	m.scanning, m.sinceMin = true, math.MaxUint64
	return m.low, true
}

// end moves the mark to the first entry that the scan found. The scan has read everything that
// was logged when it began.
func (m *dueMark) end(first dueTime) {
	m.mu.Lock()
	m.low = min(first, m.sinceMin)
	m.scanning = false
	m.mu.Unlock()
}

// duePlace is a position in the due index.
type duePlace struct {
	due dueTime
	at  address
}

// String formats the place as the cursor of a page.
func (p duePlace) String() string {
	return strconv.FormatUint(uint64(p.due), 10) + "." + strconv.FormatUint(uint64(p.at), 10)
}

// parseDuePlace parses what String returns, and rejects everything else.
func parseDuePlace(s string) (p duePlace, err error) {
	due, at, _ := strings.Cut(s, ".")
	d, _ := strconv.ParseUint(due, 10, 64)
	a, _ := strconv.ParseUint(at, 10, 64)
	if p = (duePlace{dueTime(d), address(a)}); p.at == noAddress || p.String() != s {
		return duePlace{}, errCursor
	}
	return p, nil
}

// Due is [store.DueIndex.Due], ordered to the nanosecond. Each page shows the database at one
// moment. Due waits for a record that is being changed, and returns it if it is still due at
// the same time afterwards.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	if err := s.enter(ctx); err != nil {
		return page, err
	}
	defer s.leave()
	var from duePlace
	if q.After != "" {
		from, err = parseDuePlace(q.After)
		from.at++
	}
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	moves := false
	if q.After == "" {
		from.due, moves = s.due.begin()
	}
	page, first, err := s.scanDue(ctx, from, &q)
	if moves {
		s.due.end(first)
	}
	return page, err
}

// scanDue reads a page of the index from a place on. It also returns the first time that it
// found, or where the next scan has to begin.
func (s *Store) scanDue(ctx context.Context, from duePlace, q *store.DueQuery) (page store.DuePage, first dueTime, err error) {
	until := sortable(q.Until)
	if from.due > until {
		return page, from.due, nil
	}
	snap := s.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: dueKey(from.due, from.at), UpperBound: dueKey(until+1, 0)})
	if err != nil {
		return page, from.due, err
	}
	defer it.Close() // it returns the same error as it.Error
	first = until
	var last duePlace
	budget := paging.New(ctx)
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return store.DuePage{}, from.due, err
		}
		t, at, ok := parseDueKey(it.Key())
		if !ok {
			return store.DuePage{}, from.due, fmt.Errorf("the due index has a key of %d bytes", len(it.Key()))
		}
		looked := len(page.Records) + len(page.Unreadable)
		if looked == q.Limit || budget.Spent {
			page.Next = last.String()
			return page, first, nil
		}
		if looked == 0 {
			first = min(first, t)
		}
		last = duePlace{t, at}
		rec, found, err := s.readDue(ctx, snap, last, &budget)
		switch {
		case err != nil && ctx.Err() != nil:
			return store.DuePage{}, from.due, ctx.Err()
		case err != nil:
			page.Unreadable = append(page.Unreadable, err)
			s.logger.Error("a due record cannot be read", "error", err)
		case found:
			page.Records = append(page.Records, *rec)
		}
	}
	if err := it.Error(); err != nil {
		if last == (duePlace{}) {
			return page, from.due, err
		}
		page.Next = last.String() // the next call starts at the error
	}
	return page, first, nil
}

// readDue reads the record of an entry of the index, in its durable version. It returns none if
// the record is due at another time now.
func (s *Store) readDue(ctx context.Context, snap *pebble.Snapshot, p duePlace, budget *paging.Budget) (rec *semel.Record, found bool, err error) {
	value, closer, err := snap.Get(recordKey(p.at))
	if errors.Is(err, pebble.ErrNotFound) {
		err = errors.New("it is in the due index and not stored")
	}
	if err == nil {
		defer closer.Close()
	}
	budget.Spend(len(value))
	if rec, err = decode(p.at, value, err); err != nil {
		return rec, false, err
	}
	if makeDueTime(rec.NextAt) != p.due {
		d := rec.ID.Digest()
		return rec, false, damaged(&d, errors.New("the due index has it at another time"))
	}
	rec, err = s.settled(ctx, rec)
	if errors.Is(err, semel.ErrNotFound) {
		return rec, false, nil
	}
	return rec, err == nil && makeDueTime(rec.NextAt) == p.due, err
}
