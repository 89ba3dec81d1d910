package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// searchBatch bounds the records that one search looks at.
const searchBatch = 10_000

// Search is [semel.SearchStore.Search]: it reads records from the newest to the
// oldest, up to ten thousand in one call, and compares each with the query. The
// order is that in which their identities were first stored, which a record keeps
// for as long as it is there.
//
// Damaged records are in Page.Unreadable, and logged. They count towards the limit.
func (s *Store) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	if err := s.enter(ctx); err != nil {
		return semel.Page{}, err
	}
	defer s.leave()
	end := nowhere
	if q.Cursor != "" {
		n, err := strconv.ParseUint(q.Cursor, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != q.Cursor {
			return semel.Page{}, errCursor
		}
		end = address(n)
	}
	q.Limit = min(cmp.Or(max(q.Limit, 0), semel.DefaultSearchLimit), semel.MaxSearchLimit)
	return s.search(ctx, &q, end)
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}

// search looks at records below an address.
func (s *Store) search(ctx context.Context, q *semel.Query, end address) (page semel.Page, err error) {
	var lower, upper [recordKeyLen]byte
	putRecordKey(lower[:], 0)
	putRecordKey(upper[:], end)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower[:], UpperBound: upper[:]})
	if err != nil {
		return page, err
	}
	defer it.Close() // which says what it.Error does
	last := nowhere
	for n, ok := 0, it.Last(); ok; n, ok = n+1, it.Prev() {
		if err := ctx.Err(); err != nil {
			return semel.Page{}, err
		}
		at, ok := parseAddress(it.Key()[1:])
		if !ok {
			return semel.Page{}, fmt.Errorf("the store has a record under a key of %d bytes", len(it.Key()))
		}
		if n == searchBatch || len(page.Records)+len(page.Unreadable) == q.Limit {
			page.Next = strconv.FormatUint(uint64(at)+1, 10)
			return page, nil
		}
		last = at
		rec, err := s.readFound(ctx, it, at)
		switch {
		case errors.Is(err, semel.ErrNotFound): // purged meanwhile
		case err != nil && ctx.Err() != nil:
			return semel.Page{}, ctx.Err()
		case err != nil:
			page.Unreadable = append(page.Unreadable, err)
			s.log.trouble("a record cannot be read", "error", err)
		case q.Matches(&rec):
			page.Records = append(page.Records, rec)
		}
	}
	if err := it.Error(); err != nil {
		if last == nowhere {
			return page, err
		}
		page.Next = strconv.FormatUint(uint64(last), 10) // where the next call meets the error
	}
	return page, nil
}

// readFound reads the record at which a search has arrived. What it returns is
// durable.
func (s *Store) readFound(ctx context.Context, it *pebble.Iterator, at address) (semel.Record, error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return semel.Record{}, fmt.Errorf("record number %d: %w", at, err)
	}
	rec, err := recordcodec.Decode(value)
	if err != nil {
		return semel.Record{}, fmt.Errorf("record number %d: %w", at, err)
	}
	// What the iterator shows was pending when it was made or is durable; and
	// what is not pending any more is durable too.
	if !s.pending(&rec.ID) {
		return rec, nil
	}
	return s.get(ctx, rec.ID)
}
