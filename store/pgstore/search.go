package pgstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// searchBatch bounds the records that one search looks at.
const searchBatch = 10_000

// Search is [store.Searcher.Search]. A search for keys or attributes, or for either of several,
// or for what is in flight or held, uses their indexes; any other looks at up to ten thousand records in one call. Records are listed by when their identity was
// first stored, which stays the same as long as they are there.
func (s *Store) Search(ctx context.Context, q store.Query) (page store.Page, err error) {
	from, err := decodePlace(q.Cursor, inSearch)
	if err != nil {
		return page, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	if q.Limit = limit; !inColumns(&q) {
		q.Limit = store.MaxSearchLimit // few of the rows may match
	}
	for looked := 0; looked < searchBatch; looked += q.Limit {
		rows, err := query(ctx, s, scanRow, searching(s.opts.Schema, &q, from))
		if err != nil {
			return store.Page{}, fmt.Errorf("pgstore: search: %w", err)
		}
		for i, r := range rows {
			from = &place{r.at, r.id}
			if r.record == nil { // the last, where the statement stopped looking
				page.Next = r.place(inSearch)
				return page, nil
			}
			rec, err := r.decode()
			switch {
			case err != nil:
				page.Unreadable = append(page.Unreadable, err)
			case q.Matches(rec): // the columns are exact to the microsecond, the record is exact
				page.Records = append(page.Records, *rec)
			}
			full := len(page.Records)+len(page.Unreadable) == limit
			page.Next = ""
			if i == q.Limit-1 || full && i < len(rows)-1 {
				page.Next = r.place(inSearch)
			}
			if full {
				return page, nil
			}
		}
		if page.Next == "" {
			return page, nil
		}
	}
	return page, nil
}

// inColumns reports whether all that a query asks for is in columns of the table.
func inColumns(q *store.Query) bool {
	return q.PrincipalPrefix == "" && q.OperationPrefix == "" && q.KeyPrefix == "" && q.Digest == "" && q.Fingerprint.IsZero() &&
		q.Disposition == 0 && !q.Unverified && len(q.Any) == 0 && len(q.Not) == 0
}

// anything is the condition of a query that columns say nothing about.
const anything = "TRUE"

// conditions are parts of a statement, with its parameters.
type conditions struct{ args [][]byte }

// of says in SQL what columns can say about a query: it selects all that the query does, and
// maybe more. Indexed reports whether an index finds that.
func (c *conditions) of(q *store.Query) (sql string, indexed bool) {
	var all []string
	where := func(asked bool, cond string, value []byte) {
		if asked {
			c.args = append(c.args, value)
			all = append(all, fmt.Sprintf(cond, len(c.args)))
		}
	}
	attributes := len(q.Attributes)+len(q.AttributePrefixes) > 0
	where(q.Tenant != nil, "tenant = $%d::text", []byte(*cmp.Or(q.Tenant, new(string))))
	where(q.Principal != "", "principal = $%d::text", []byte(q.Principal))
	where(q.Operation != "", "operation = $%d::text", []byte(q.Operation))
	where(q.Key != "", "key = $%d::text", []byte(q.Key))
	running := q.State == semel.Processing || q.Held && q.State == 0
	if running {
		all = append(all, "state = 'processing'") // which a parameter would hide from the index
	}
	where(q.State != 0 && !running, "state = $%d::text", []byte(q.State.String()))
	where(q.Held, "held = $%d::boolean", []byte{1})
	where(attributes, "attributes @@ $%d::text::tsquery", []byte(lexemeQuery(q)))
	where(q.After != 0, "created_at >= $%d::timestamptz", bigint(microseconds(q.After)))
	where(q.Before != 0, "created_at <= $%d::timestamptz", bigint(microseconds(q.Before)))
	indexed = q.Key != "" || attributes || running
	for _, list := range q.Any {
		either, every := []string{"FALSE"}, len(list) > 0
		known := len(c.args)
		for i := range list {
			sql, found := c.of(&list[i])
			if sql == anything {
				either = nil
				break
			}
			either, every = append(either, sql), every && found
		}
		if either == nil {
			c.args = c.args[:known] // PostgreSQL doesn't know the types of parameters that aren't used
			continue
		}
		all = append(all, "("+strings.Join(either, " OR ")+")")
		indexed = indexed || every
	}
	if len(all) == 0 {
		return anything, false
	}
	return "(" + strings.Join(all, " AND ") + ")", indexed
}

// searching is the statement of a search, with its parameters. It returns the records,
// and then, with nothing but its place, the one at which it stopped looking, if it did.
func searching(schema string, q *store.Query, from *place) statement {
	after, c := anything, conditions{}
	if from != nil {
		after, c.args = "(since, id) < ($1::bigint, $2::bytea)", [][]byte{bigint(from.at), from.id}
	}
	matches, indexed := c.of(q)
	args := c.args
	table := name(schema, "semel_records")
	const row = "l.since, l.id, l.revision, l.result, l.record"
	const order = " ORDER BY since DESC, id DESC"
	limit := fmt.Sprintf(" LIMIT %d", q.Limit)
	if matches == anything || indexed {
		return statement{sql: "SELECT " + row + " FROM " + table + " l WHERE " + after + " AND " + matches + order + limit, args: args, once: true}
	}
	return statement{sql: fmt.Sprintf("(SELECT %s FROM (SELECT * FROM %s WHERE %s%s LIMIT %d) AS l WHERE %s%s%s)"+
		" UNION ALL (SELECT since, id, NULL, NULL, NULL FROM %s WHERE %s%s OFFSET %d LIMIT 1)",
		row, table, after, order, searchBatch, matches, order, limit,
		table, after, order, searchBatch-1), args: args, once: true}
}

// place is where a list has arrived: its next page begins behind the row with this value in
// the column that the list is ordered by, and this id. The id may have any length, because
// the row may be damaged.
type place struct {
	at int64
	id []byte
}

// Kinds of lists.
const (
	inDue    = 'd'
	inSearch = 's'
)

// place is that of a row in a list of a kind, for callers to hand back.
func (r *row) place(kind byte) string {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(r.at))
	return base64.RawURLEncoding.EncodeToString(append(b, r.id...))
}

// decodePlace reads a place in a list of a kind, or nothing for its beginning.
func decodePlace(s string, kind byte) (*place, error) {
	if s == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 1+8 || b[0] != kind {
		return nil, &semel.Error{Code: semel.CodeInvalidCall, Message: "the place to continue after is not one of this store"}
	}
	return &place{int64(binary.BigEndian.Uint64(b[1:9])), b[9:]}, nil
}
