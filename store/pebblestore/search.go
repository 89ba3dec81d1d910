package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// searchBatch is how many records one search looks at, at most.
const searchBatch = 10_000

// Search is [store.Searcher.Search]. It reads up to ten thousand records in one call, from
// the newest to the oldest, and compares each with the query. They are in the order in which
// they were created, which doesn't change while they are stored.
//
// Damaged records are in Page.Unreadable, and logged. They count towards the limit.
func (s *Store) Search(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.leave()
	end := noAddress
	if q.Cursor != "" {
		n, err := strconv.ParseUint(q.Cursor, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != q.Cursor {
			return store.Page{}, errCursor
		}
		end = address(n)
	}
	q.Limit = min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	return s.search(ctx, &q, end)
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}

// search looks at the records before an address.
func (s *Store) search(ctx context.Context, q *store.Query, end address) (page store.Page, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: recordKey(0), UpperBound: recordKey(end)})
	if err != nil {
		return page, err
	}
	defer it.Close() // which says what it.Error does
	last := noAddress
	for n, ok := 0, it.Last(); ok; n, ok = n+1, it.Prev() {
		if err := ctx.Err(); err != nil {
			return store.Page{}, err
		}
		at, ok := parseAddress(it.Key()[1:])
		if !ok {
			return store.Page{}, fmt.Errorf("the store has a record under a key of %d bytes", len(it.Key()))
		}
		if n == searchBatch || len(page.Records)+len(page.Unreadable) == q.Limit {
			page.Next = strconv.FormatUint(uint64(at)+1, 10)
			return page, nil
		}
		last = at
		value, err := it.ValueAndErr()
		rec, err := decode(at, value, err)
		if err == nil {
			rec, err = s.settled(ctx, rec)
		}
		switch {
		case errors.Is(err, semel.ErrNotFound): // purged meanwhile
		case err != nil && ctx.Err() != nil:
			return store.Page{}, ctx.Err()
		case err != nil:
			page.Unreadable = append(page.Unreadable, err)
			s.logger.Error("a record cannot be read", "error", err)
		case q.Matches(rec):
			page.Records = append(page.Records, *rec)
		}
	}
	if err := it.Error(); err != nil {
		if last == noAddress {
			return page, err
		}
		page.Next = strconv.FormatUint(uint64(last), 10) // where the next call meets the error
	}
	return page, nil
}
