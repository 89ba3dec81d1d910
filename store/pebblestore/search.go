package pebblestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/terms"
	"github.com/semelhq/semel/store"
)

// searchBatch is the most records that one search looks at.
const searchBatch = 10_000

// Search is [store.Searcher.Search]. It reads up to ten thousand records in one call, from the
// newest to the oldest, and compares each with the query. They are in order of creation, which
// doesn't change while they are stored. A search for an attribute, or either of several, reads
// only records that have one.
//
// The first search for calls in flight or held reads all records; later ones read only such
// calls.
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

// search looks at the records before an address. With attributes in the query it reads only
// records that have one; for calls in flight or held it reads only candidates, once a search
// has been through the whole store.
func (s *Store) search(ctx context.Context, q *store.Query, end address) (store.Page, error) {
	l := lookup{store: s, query: q, budget: paging.New(ctx)}
	learns := false // the rest of the store, for later searches
	if list, ok := terms.For(q); ok {
		low := address(s.attributes.low.Load())
		if full, err := l.indexed(ctx, list, low, end); full || err != nil {
			return l.page, err
		}
		end = min(end, low)
	} else if q.State == semel.Processing || q.Held {
		known, low := s.processing.before(end)
		for _, at := range known {
			if full, err := l.lookAt(ctx, at); full || err != nil {
				return l.page, err
			}
		}
		learns = end >= low
		end = min(end, low)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: recordKey(0), UpperBound: recordKey(end)})
	if err != nil {
		return store.Page{}, err
	}
	defer it.Close() // it returns the same error as it.Error
	last := noAddress
	for ok := it.Last(); ok; ok = it.Prev() {
		at, ok := parseAddress(it.Key()[1:])
		if !ok {
			return store.Page{}, fmt.Errorf("the store has a record under a key of %d bytes", len(it.Key()))
		}
		if l.enough(at) {
			return l.page, nil
		}
		last = at
		value, err := it.ValueAndErr()
		runs, err := l.look(ctx, at, value, err)
		if err != nil {
			return store.Page{}, err
		}
		if learns {
			s.processing.saw(at, runs)
		}
	}
	switch err := it.Error(); {
	case err != nil && last == noAddress:
		return l.page, err
	case err != nil:
		l.page.Next = strconv.FormatUint(uint64(last), 10) // the next call starts at the error
	case learns:
		s.processing.saw(0, false)
	}
	return l.page, nil
}

// lookup builds a page of a search.
type lookup struct {
	store  *Store
	query  *store.Query
	page   store.Page
	looked int
	budget paging.Budget
}

// indexed looks at the records from low up to end that have an entry for one of some terms, and
// reports whether the page ends there.
func (l *lookup) indexed(ctx context.Context, list []terms.Term, low, end address) (full bool, err error) {
	it, err := l.store.db.NewIter(&pebble.IterOptions{LowerBound: []byte{attributePrefix}, UpperBound: []byte{attributePrefix + 1}})
	if err != nil {
		return false, err
	}
	defer it.Close() // it returns the same error as it.Error
	for at, ok := newestBefore(it, list, end); ok && at >= low; at, ok = newestBefore(it, list, at) {
		if full, err := l.lookAt(ctx, at); full || err != nil {
			return full, err
		}
	}
	return false, it.Error()
}

// lookAt looks at the record at an address, unless the page ends before it.
func (l *lookup) lookAt(ctx context.Context, at address) (full bool, err error) {
	if l.enough(at) {
		return true, nil
	}
	value, err := readKey(l.store.db, recordKey(at))
	if value == nil && err == nil {
		return false, nil // purged meanwhile
	}
	_, err = l.look(ctx, at, value, err)
	return false, err
}

// enough reports whether the page ends before the record at an address.
func (l *lookup) enough(at address) bool {
	if l.looked < searchBatch && !l.budget.Spent && len(l.page.Records)+len(l.page.Unreadable) < l.query.Limit {
		return false
	}
	l.page.Next = strconv.FormatUint(uint64(at)+1, 10)
	return true
}

// look adds the record at an address to the page if the query selects it, or else the error of
// reading it. It reports whether the record may be in flight or held.
func (l *lookup) look(ctx context.Context, at address, value []byte, failed error) (runs bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	l.looked++
	l.budget.Spend(len(value))
	rec, err := decode(at, value, failed)
	if err == nil {
		rec, err = l.store.settled(ctx, rec)
	}
	switch {
	case errors.Is(err, semel.ErrNotFound): // purged meanwhile
		return false, nil
	case err != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		l.page.Unreadable = append(l.page.Unreadable, err)
		l.store.logger.Error("a record cannot be read", "error", err)
		return true, nil
	case l.query.Matches(rec):
		l.page.Records = append(l.page.Records, *rec)
	}
	return !rec.State.Terminal(), nil
}
