package pgstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// searchBatch bounds the records that one search looks at.
const searchBatch = 10_000

// Search is [store.Searcher.Search]. A search for keys or attributes, or for either of several,
// or for calls in flight or held, uses their indexes. Any other, and one for an attribute that
// more than ten thousand records have, looks at that many in one call at most. It lists records
// by when their identity was first stored, which doesn't change while they are there.
func (s *Store) Search(ctx context.Context, q store.Query) (page store.Page, err error) {
	from, err := decodePlace(q.Cursor, inSearch)
	if err != nil {
		return page, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	if q.Limit = limit; !inColumns(&q) {
		q.Limit = store.MaxSearchLimit // few of the rows may match
	}
	budget := paging.New(ctx)
	for looked := 0; looked < searchBatch && !budget.Spent; looked += q.Limit {
		rows, err := query(ctx, s, scanRow, searching(s.opts.Schema, &q, from, budget.Bytes)...)
		if err != nil {
			return store.Page{}, fmt.Errorf("pgstore: search: %w", err)
		}
		for i, r := range rows {
			if r.cut() {
				page.Next = from.text(inSearch)
				return page, nil
			}
			from = &place{r.at, r.id}
			if r.record == nil { // the last row, where the statement stopped looking
				page.Next = from.text(inSearch)
				return page, nil
			}
			budget.Spend(len(r.record) + len(r.response))
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
				page.Next = from.text(inSearch)
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

// inColumns reports whether columns of the table cover everything that a query asks for.
func inColumns(q *store.Query) bool {
	return q.PrincipalPrefix == "" && q.OperationPrefix == "" && q.KeyPrefix == "" && q.Digest == "" && q.Fingerprint.IsZero() &&
		q.Disposition == 0 && !q.Unverified && len(q.Any) == 0 && len(q.Not) == 0
}

// anything is the condition of a query that columns say nothing about.
const anything = "TRUE"

// conditions are parts of a statement, with its parameters.
type conditions struct{ args [][]byte }

// of puts into SQL as much of a query as columns can express: it selects everything that the
// query does, and maybe more. index is the part that an index can find, if any.
func (c *conditions) of(q *store.Query) (sql, index string) {
	var all []string
	where := func(asked bool, cond string, value []byte) {
		if asked {
			c.args = append(c.args, value)
			all = append(all, fmt.Sprintf(cond, len(c.args)))
		}
	}
	indexed := func(asked bool) {
		if asked && index == "" {
			index = all[len(all)-1]
		}
	}
	attributes := len(q.Attributes)+len(q.AttributePrefixes) > 0
	where(attributes, "attributes @@ $%d::text::tsquery", []byte(lexemeQuery(q)))
	indexed(attributes)
	where(q.Key != "", "key = $%d::text", []byte(q.Key))
	indexed(q.Key != "")
	running := q.State == semel.Processing || q.Held && q.State == 0
	if running {
		all = append(all, "state = 'processing'") // which a parameter would hide from the index
	}
	indexed(running)
	where(q.Tenant != nil, "tenant = $%d::text", []byte(*cmp.Or(q.Tenant, new(string))))
	where(q.Principal != "", "principal = $%d::text", []byte(q.Principal))
	where(q.Operation != "", "operation = $%d::text", []byte(q.Operation))
	where(q.State != 0 && !running, "state = $%d::text", []byte(q.State.String()))
	where(q.Held, "held = $%d::boolean", []byte{1})
	where(q.After != 0, "created_at >= $%d::timestamptz", bigint(microseconds(q.After)))
	where(q.Before != 0, "created_at <= $%d::timestamptz", bigint(microseconds(q.Before)))
	for _, list := range q.Any {
		either, every := []string{"FALSE"}, len(list) > 0
		known := len(c.args)
		for i := range list {
			sql, found := c.of(&list[i])
			if sql == anything {
				either = nil
				break
			}
			either, every = append(either, sql), every && found != ""
		}
		if either == nil {
			c.args = c.args[:known] // PostgreSQL can't infer the types of unused parameters
			continue
		}
		all = append(all, "("+strings.Join(either, " OR ")+")")
		indexed(every)
	}
	if len(all) == 0 {
		return anything, ""
	}
	return "(" + strings.Join(all, " AND ") + ")", index
}

// withBitmaps lets the next statement use the index of attributes, which a connection's
// settings prevent because that index works only by bitmaps.
var withBitmaps = statement{sql: "SELECT NULL, NULL, NULL, set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'off', true)"}

// searching returns the statements of a search. The last one, with its parameters, returns the
// records and then, without its content, the row at which it stopped looking, if it did.
//
// The statement first asks the attribute's index alone. PostgreSQL knows nothing about rare
// values, and thinks them so frequent that it would rather read all records from the newest on
// until it has a page. If that is right, because searchBatch records or more have the value,
// the statement does so, too.
func searching(schema string, q *store.Query, from *place, bytes int) []statement {
	after, c := anything, conditions{}
	if from != nil {
		after, c.args = "(since, id) < ($1::bigint, $2::bytea)", [][]byte{bigint(from.at), from.id}
	}
	matches, index := c.of(q)
	table := name(schema, "semel_records")
	const row = "l.since, l.id, l.revision, l.result, l.record"
	const order = "since DESC, id DESC"
	some := fmt.Sprintf(" ORDER BY %s LIMIT %d", order, q.Limit)
	found := func(in string) string {
		return "(SELECT " + row + " FROM " + in + " AS l WHERE " + after + " AND " + matches + some + ")"
	}
	scan := func(when string) string {
		return fmt.Sprintf("(SELECT %s FROM (SELECT * FROM %s WHERE %s AND %s ORDER BY %s LIMIT %d) AS l WHERE %s%s)"+
			" UNION ALL (SELECT since, id, NULL, NULL, NULL FROM %s WHERE %s AND %s ORDER BY %s OFFSET %d LIMIT 1)",
			row, table, when, after, order, searchBatch, matches, some,
			table, when, after, order, searchBatch-1)
	}
	last := statement{args: c.args, once: true}
	switch {
	case strings.Contains(index, "@@"):
		last.sql = fmt.Sprintf("WITH few AS MATERIALIZED (SELECT * FROM %s WHERE %s LIMIT %d), are AS MATERIALIZED (SELECT count(*) < %[3]d AS few FROM few) ", table, index, searchBatch) +
			fitting(found("(SELECT * FROM few WHERE (SELECT few FROM are))")+" UNION ALL "+scan("NOT (SELECT few FROM are)"), "since", order, strconv.Itoa(bytes))
		return []statement{withBitmaps, last}
	case matches == anything || index != "":
		last.sql = fitting(found(table), "since", order, strconv.Itoa(bytes))
	default:
		last.sql = fitting(scan(anything), "since", order, strconv.Itoa(bytes))
	}
	return []statement{last}
}

// fitting returns the rows of a list up to a number of bytes, and at least one. It returns the
// others, too, but without their records, see [row.cut].
func fitting(rows, at, order, bytes string) string {
	return "SELECT " + at + ", id, revision, CASE WHEN before < " + bytes + " THEN result END, CASE WHEN before < " + bytes + " THEN record END FROM (" +
		"SELECT l.*, coalesce(sum(octet_length(record) + coalesce(octet_length(result), 0)) OVER (ORDER BY " + order + " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before" +
		" FROM (" + rows + ") AS l) AS l ORDER BY " + order
}

// place is a position in a list: its next page begins after the row with this value in the
// column that orders the list, and this id. The id may have any length, because the row may be
// damaged.
type place struct {
	at int64
	id []byte
}

// Kinds of lists.
const (
	inDue    = 'd'
	inSearch = 's'
)

// text encodes a place in a list of a kind, for callers to hand back.
func (p *place) text(kind byte) string {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(p.at))
	return base64.RawURLEncoding.EncodeToString(append(b, p.id...))
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
