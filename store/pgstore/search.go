package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
)

// searchBatch bounds the records that one search looks at.
const searchBatch = 10_000

// Search is [semel.SearchStore.Search]. Searches for a key use its index; others
// look at up to ten thousand records in one call. Records are listed by when their
// identity was first stored, which stays as long as they are there.
func (s *Store) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	if err := s.usable(ctx); err != nil {
		return semel.Page{}, err
	}
	var from *place
	if q.Cursor != "" {
		p, err := decodePlace(q.Cursor, inSearch)
		if err != nil {
			return semel.Page{}, err
		}
		from = &p
	}
	q.Limit = min(cmp.Or(max(q.Limit, 0), semel.DefaultSearchLimit), semel.MaxSearchLimit)
	page, err := s.search(ctx, s.searching(&q, from), &q)
	if err != nil {
		return semel.Page{}, fmt.Errorf("pgstore: search: %w", err)
	}
	return page, nil
}

// search reads a page. Its statement gives the records, and last, with nothing but
// its place, the record at which it stopped looking, if it did.
func (s *Store) search(ctx context.Context, st *statement, q *semel.Query) (page semel.Page, err error) {
	n := 0
	var last place
	err = s.query(ctx, st, func(row [][]byte) error {
		at := placeOf(inSearch, row[4], row[0])
		if row[2] == nil {
			if n < q.Limit {
				page.Next = at.encode()
			}
			return nil
		}
		n, last = n+1, at
		rec, err := decodeRecord(row[0], row[1], row[2], row[3])
		switch {
		case err != nil:
			page.Unreadable = append(page.Unreadable, err)
		case q.Matches(&rec): // the columns are exact to the microsecond, the record is exact
			page.Records = append(page.Records, rec)
		}
		return nil
	})
	if err != nil {
		return semel.Page{}, err
	}
	if n == q.Limit {
		page.Next = last.encode()
	}
	return page, nil
}

// searching is the statement of a search.
func (s *Store) searching(q *semel.Query, from *place) *statement {
	var args []column
	arg := func(c column) string {
		args = append(args, c)
		return fmt.Sprintf("$%d", len(args))
	}
	after := "TRUE"
	if from != nil {
		after = fmt.Sprintf("(since, id) < (%s::bigint, %s::bytea)", arg(int8Value(from.at)), arg(byteaValue(from.id)))
	}
	var conds []string
	text := func(column, value string) {
		conds = append(conds, column+" = "+arg(textValue(value))+"::text")
	}
	if q.Tenant != nil {
		text("session_id", *q.Tenant)
	}
	if q.Principal != "" {
		text("user_id", q.Principal)
	}
	if q.Operation != "" {
		text("operation_type", q.Operation)
	}
	if q.Key != "" {
		text("idempotency_key", q.Key)
	}
	if q.State != 0 {
		text("status", q.State.String())
	}
	if q.Held {
		conds = append(conds, "held")
	}
	if q.After != 0 {
		conds = append(conds, "created_at >= "+arg(timeValue(q.After))+"::timestamptz")
	}
	if q.Before != 0 {
		conds = append(conds, "created_at <= "+arg(timeValue(q.Before))+"::timestamptz")
	}
	table := name(s.opts.Schema, "idempotency_log")
	row := "l.id, l.revision, l.record, " + s.result() + ", l.since"
	const order = " ORDER BY since DESC, id DESC"
	limit := fmt.Sprintf(" LIMIT %d", q.Limit)
	where := strings.Join(append(conds, "TRUE"), " AND ")
	if len(conds) == 0 || q.Key != "" {
		return newRareStatement("SELECT "+row+" FROM "+table+" l WHERE "+after+" AND "+where+order+limit, args...)
	}
	return newRareStatement(fmt.Sprintf("(SELECT %s FROM (SELECT * FROM %s WHERE %s%s LIMIT %d) AS l WHERE %s%s%s)"+
		" UNION ALL (SELECT id, NULL, NULL, NULL, since FROM %s WHERE %s%s OFFSET %d LIMIT 1)",
		row, table, after, order, searchBatch, where, order, limit,
		table, after, order, searchBatch-1), args...)
}
