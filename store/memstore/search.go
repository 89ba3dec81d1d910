package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/dueindex"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// listed is a record with its place in searches. The place depends on when the record's
// identity was first stored, and doesn't change as long as it is.
type listed struct {
	place
	rec *semel.Record
}

// Search is [store.Searcher.Search]. There is no index: a call looks at every record, and
// copies matches until their results add up to a page.
func (s *Store) Search(ctx context.Context, q store.Query) (page store.Page, err error) {
	if s.closed.Load() {
		return page, errClosed
	}
	last, err := parsePlace(q.Cursor)
	if err != nil {
		return page, err
	}
	list := s.matching(&q, last)
	if err := ctx.Err(); err != nil {
		return page, err
	}
	slices.SortFunc(list, func(a, b listed) int { return b.compare(a.place) }) // the newest first
	limit := min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	budget := paging.New(ctx)
	for i, r := range list {
		if i == limit || budget.Spent {
			page.Next = list[i-1].String()
			break
		}
		budget.Spend(len(r.rec.Result.Data))
		page.Records = append(page.Records, *r.rec)
	}
	return page, nil
}

// matching returns all records that match a query and are older than a place.
func (s *Store) matching(q *store.Query, than place) (list []listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, en := range s.records {
		if at := (place{en.since, &en.rec.ID}); at.compare(than) < 0 && q.Matches(en.rec) {
			list = append(list, listed{at, en.rec})
		}
	}
	return list
}

// Due is [store.DueIndex.Due].
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	after, ok := dueindex.Parse(q.After)
	switch {
	case !ok:
		return page, errCursor
	case q.Limit <= 0:
		return page, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return page, errClosed
	}
	s.due.Forget(q.Until)
	recs, last, more := s.due.Page(after, q.Until, q.Limit, paging.New(ctx))
	if page.Records = recs; more {
		page.Next = last.String()
	}
	return page, nil
}
