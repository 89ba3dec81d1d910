package pgstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statements are the store's everyday statements. None keeps anything in its session.
type statements struct {
	writes                           map[bool]*writeStatements // whether they create records
	get, due, purge, archive, notify string
}

// writeStatements make writes of one kind: one or many without evidence, which spares the server
// work; any number with their evidence; and one in a transaction of the application. met and
// noted also return the rows that stand in the way of new records.
type writeStatements struct {
	columns                     []column[*op]
	one, many, met, noted, join string
}

// versionColumns change with every version of a record; identityColumns never change.
var (
	versionColumns = []column[*op]{
		{"id", "bytea", func(b []byte, o *op) []byte { return append(b, o.id[:]...) }},
		{"revision", "bytea", func(b []byte, o *op) []byte { return append(b, o.write.Record.Revision[:]...) }},
		{"record", "bytea", func(b []byte, o *op) []byte { return append(b, o.record...) }},
		{"next_at", "int8", func(b []byte, o *op) []byte {
			if o.write.Record.NextAt == 0 {
				return nil
			}
			return appendInt(b, int64(o.write.Record.NextAt))
		}},
		{"held", "bool", func(b []byte, o *op) []byte {
			if o.write.Record.Held {
				return append(b, 1)
			}
			return append(b, 0)
		}},
		{"result", "bytea", func(b []byte, o *op) []byte { return orNull(b, o.write.Record.Result.Data) }},
		{"state", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.State.String()...) }},
		{"created_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.CreatedAt) }},
		{"updated_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.UpdatedAt) }},
		{"expires_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.ExpiresAt) }},
		{"payload", "bytea", func(b []byte, o *op) []byte { return orNull(b, o.write.Record.Payload) }},
		{"attributes", "tsvector", func(b []byte, o *op) []byte { return appendLexemes(b, o.write.Record.Attributes) }},
		{"user_id", "text", func(b []byte, o *op) []byte { return appendAttribute(b, o.write.Record.Attributes, "user_id") }},
		{"session_id", "text", func(b []byte, o *op) []byte { return appendAttribute(b, o.write.Record.Attributes, "session_id") }},
	}
	identityColumns = []column[*op]{
		{"since", "int8", func(b []byte, o *op) []byte { return appendInt(b, int64(o.write.Record.CreatedAt)) }},
		{"key", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Key...) }},
		{"operation", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Operation...) }},
		{"principal", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Principal...) }},
		{"tenant", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Tenant...) }},
	}
	recordColumns = slices.Concat(versionColumns, identityColumns)
	// A write has to be made before its deadline, and one that changes a record names the
	// revision that it follows.
	deadline      = column[*op]{"deadline", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.deadline) }}
	expect        = column[*op]{"expect", "bytea", func(b []byte, o *op) []byte { return append(b, o.write.Expect[:]...) }}
	createColumns = slices.Concat(recordColumns, []column[*op]{deadline})
	updateColumns = slices.Concat(versionColumns, []column[*op]{expect, deadline})
	purgeColumns  = []column[*op]{versionColumns[0], expect}

	archiveColumns = slices.DeleteFunc(slices.Clone(recordColumns), func(c column[*op]) bool {
		return slices.Contains([]string{"next_at", "held", "since", "attributes"}, c.name)
	})
)

// list formats the number, the type and the name of each column, and joins the results.
func list(columns []column[*op], format string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = fmt.Sprintf(format, i+1, c.kind, c.name)
	}
	return strings.Join(parts, ", ")
}

func names(columns []column[*op], prefix string) string { return list(columns, prefix+"%[3]s") }

const (
	// scalars is the format of parameters that are one row.
	scalars = "$%d::%s AS %s"
	// unnest is the format of parameters that are arrays of one length. In the select list the
	// server unfolds them as it reads the rows; in FROM it would write each to a table first.
	unnest = "unnest($%d::%s[]) AS %s"
)

// lockTimeout sets how long a statement waits for a lock, in milliseconds. The server sets it
// when the first row comes, before it locks anything, until the transaction ends.
func lockTimeout(value string) string { return "set_config('lock_timeout', " + value + ", true)" }

// newWrites makes the statements for writes of one kind, which begin with verb and end with
// rest. They return the writes that they have made, each by its identity and its revision, and
// append the evidence of those if there is any. there selects the rows that stand in the way, as
// far as they were there before. After the columns come the parameters for the lock timeout and
// for that evidence. expect is an expression for the revision that a write in a transaction
// follows.
func newWrites(schema, log string, columns []column[*op], expect, verb, rest, there string) *writeStatements {
	n := len(columns) + 1
	write := func(rows string) string {
		return verb + " FROM (SELECT " + list(columns, rows) + ") AS w, " + lockTimeout(fmt.Sprintf("$%d::text", n)) +
			" WHERE (w.deadline IS NULL OR clock_timestamp() < w.deadline)" + rest
	}
	made := "WITH made AS (" + write(unnest) + ")"
	noted, answers := made+", "+noting(schema, n+1), " SELECT id, revision, NULL::bytea, NULL::bytea FROM made"+there
	w := &writeStatements{columns: columns, one: write(scalars), many: write(unnest), noted: noted + answers, join: noted + joinEnd(log, columns, expect)}
	if there != "" {
		w.met = made + answers
	}
	return w
}

// barrier adds one more row, of some nulls and one value, if commits wait for a standby;
// appendRows drops it. The transaction that reads it also writes a message of a few bytes to
// the log, and its commit waits until a standby has everything up to here; see the package's
// comment on cancelled commits.
func (d *database) barrier(nulls int) string {
	if !d.barriers {
		return ""
	}
	return " UNION ALL SELECT " + strings.Repeat("NULL, ", nulls) + "pg_logical_emit_message(true, 'semel', '')::text::bytea" +
		" WHERE current_setting('synchronous_standby_names', true) <> ''"
}

// milliseconds formats a duration for a setting.
func milliseconds(d time.Duration) []byte { return strconv.AppendInt(nil, d.Milliseconds(), 10) }

func newStatements(schema string, d *database) statements {
	log := name(schema, "semel_records")
	return statements{
		writes: map[bool]*writeStatements{
			true: newWrites(schema, log, createColumns, "NULL",
				"INSERT INTO "+log+" ("+names(recordColumns, "")+") SELECT "+names(recordColumns, "w."),
				" ON CONFLICT DO NOTHING RETURNING id, revision",
				" UNION ALL SELECT l.id, l.revision, l.result, l.record FROM (SELECT unnest($1::bytea[]) AS id) AS w JOIN "+log+
					" l ON l.id = w.id WHERE (SELECT count(*) FROM made) < cardinality($1::bytea[])"+d.barrier(3)),
			false: newWrites(schema, log, updateColumns, fmt.Sprintf("($%d::bytea[])[1]", len(updateColumns)-1),
				"UPDATE "+log+" l SET "+list(versionColumns[1:], "%[3]s = w.%[3]s"),
				" AND l.id = w.id AND l.revision = w.expect RETURNING l.id, l.revision", ""),
		},
		// Each identity gets a row, with the time of the look-up.
		get: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, w.id, l.revision, l.result, l.record FROM unnest($1::bytea[]) AS w(id) LEFT JOIN " + log +
			" l ON l.id = w.id" + d.barrier(4),
		due: fitting("SELECT l.next_at, l.id, l.revision, l.result, l.record FROM "+log+" l WHERE l.next_at <= $1::bigint"+
			" AND (l.next_at, l.id) > ($2::bigint, $3::bytea) ORDER BY l.next_at, l.id LIMIT $4::bigint", "next_at", "next_at, id", "$5::bigint"),
		purge: "WITH gone AS (DELETE FROM " + log + " l USING (SELECT unnest($1::bytea[]) AS id, unnest($2::bytea[]) AS revision) AS w, " + lockTimeout("$3::text") +
			" WHERE l.id = w.id AND l.revision = w.revision RETURNING l.id) SELECT id FROM gone",
		archive: "WITH w AS (SELECT " + list(recordColumns, unnest) + ") INSERT INTO " + name(schema, "idempotency_archive") + " (" + names(archiveColumns, "") + ")" +
			" SELECT " + names(archiveColumns, "w.") + " FROM w ON CONFLICT (id, revision) DO NOTHING",
		// It waits for no disk; see notices.go.
		notify: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)",
	}
}
