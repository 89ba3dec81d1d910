package pgstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statements are the texts of what the store sends every day. They keep nothing in the
// session, so each may go to another one, as with a transaction pooler. joinCreate and
// joinUpdate are for transactions of the application.
type statements struct {
	create, update, joinCreate, joinUpdate, get, due, purge, archive, notify string
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
		{"request_payload", "text", func(b []byte, o *op) []byte {
			if o.write.Record.Fingerprint.IsZero() {
				return nil
			}
			b, _ = o.write.Record.Fingerprint.AppendText(b) // it never fails
			return b
		}},
		{"response_payload", "bytea", func(b []byte, o *op) []byte { return orNull(b, o.write.Record.Result.Data) }},
		{"status", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.State.String()...) }},
		{"created_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.CreatedAt) }},
		{"updated_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.UpdatedAt) }},
		{"expires_at", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.write.Record.ExpiresAt) }},
	}
	identityColumns = []column[*op]{
		{"since", "int8", func(b []byte, o *op) []byte { return appendInt(b, int64(o.write.Record.CreatedAt)) }},
		{"idempotency_key", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Key...) }},
		{"operation_type", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Operation...) }},
		{"user_id", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Principal...) }},
		{"session_id", "text", func(b []byte, o *op) []byte { return append(b, o.write.Record.ID.Tenant...) }},
	}
	recordColumns = slices.Concat(versionColumns, identityColumns)
	// A write may be made until its deadline, and one that changes a record names the
	// revision that it follows.
	deadline      = column[*op]{"deadline", "timestamptz", func(b []byte, o *op) []byte { return appendTime(b, o.deadline) }}
	expect        = column[*op]{"expect", "bytea", func(b []byte, o *op) []byte { return append(b, o.write.Expect[:]...) }}
	createColumns = slices.Concat(recordColumns, []column[*op]{deadline})
	updateColumns = slices.Concat(versionColumns, []column[*op]{expect, deadline})

	archiveColumns = slices.DeleteFunc(slices.Clone(recordColumns), func(c column[*op]) bool {
		return slices.Contains([]string{"next_at", "held", "since"}, c.name)
	})
)

// list joins what text gives for each column, which it numbers from 1.
func list(columns []column[*op], text func(i int, name, kind string) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = text(i+1, c.name, c.kind)
	}
	return strings.Join(parts, ", ")
}

func names(columns []column[*op], prefix string) string {
	return list(columns, func(_ int, name, _ string) string { return prefix + name })
}

// unnest makes rows of parameters that are arrays of one length. In the select list the
// arrays are unfolded side by side as the rows are read; in FROM each would first be
// written to a table of its own.
func unnest(columns []column[*op]) string {
	return "SELECT " + list(columns, func(i int, name, kind string) string { return fmt.Sprintf("unnest($%d::%s[]) AS %s", i, kind, name) })
}

// lockTimeout sets how long a statement waits for a lock, in milliseconds. That happens
// when the first row comes, before anything is locked, and ends with the transaction.
func lockTimeout(value string) string { return "set_config('lock_timeout', " + value + ", true)" }

// making is a statement that makes the writes of rows of parameters, and appends the
// evidence of those that it has made, but for its end, which may select from made. Behind
// the columns come the parameters for the lock timeout and for the entries. A write is made
// only before its deadline, by the server's clock when the statement comes to its row; it
// may then still wait for a lock, for the lock timeout at most, and for the commit.
func making(schema, verb string, columns []column[*op], rest string) string {
	n := len(columns) + 1
	return "WITH made AS (" + verb + " FROM (" + unnest(columns) + ") AS w, " + lockTimeout(fmt.Sprintf("$%d::text", n)) +
		" WHERE (w.deadline IS NULL OR clock_timestamp() < w.deadline)" + rest + "), " + noting(schema, n+1)
}

// barrier is one more row, of so many nulls and one value, where commits wait for a standby;
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

// milliseconds is a duration as settings have it.
func milliseconds(d time.Duration) []byte { return strconv.AppendInt(nil, d.Milliseconds(), 10) }

func newStatements(schema string, d *database) statements {
	log := name(schema, "idempotency_log")
	creating := making(schema, "INSERT INTO "+log+" ("+names(recordColumns, "")+") SELECT "+names(recordColumns, "w."), createColumns,
		" ON CONFLICT (id) DO NOTHING RETURNING id, revision")
	changing := making(schema, "UPDATE "+log+" l SET "+list(versionColumns[1:], func(_ int, name, _ string) string { return name + " = w." + name }), updateColumns,
		" AND l.id = w.id AND l.revision = w.expect RETURNING l.id, l.revision")
	// Writes that are made are named, each by its identity and its revision.
	const named = " SELECT id, revision FROM made"
	return statements{
		create: creating + named, joinCreate: creating + joinEnd(log, createColumns, "NULL"),
		update: changing + named, joinUpdate: changing + joinEnd(log, updateColumns, fmt.Sprintf("($%d::bytea[])[1]", len(updateColumns)-1)),
		// Each identity has a row, with the time when it was looked for.
		get: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, w.id, l.revision, l.response_payload, l.record FROM unnest($1::bytea[]) AS w(id) LEFT JOIN " + log +
			" l ON l.id = w.id" + d.barrier(4),
		due: "SELECT l.next_at, l.id, l.revision, l.response_payload, l.record FROM " + log + " l WHERE l.next_at <= $1::bigint" +
			" AND (l.next_at, l.id) > ($2::bigint, $3::bytea) ORDER BY l.next_at, l.id LIMIT $4::bigint",
		purge: "WITH gone AS (DELETE FROM " + log + " l USING (SELECT unnest($1::bytea[]) AS id, unnest($2::bytea[]) AS revision) AS w, " + lockTimeout("$3::text") +
			" WHERE l.id = w.id AND l.revision = w.revision RETURNING l.id, l.revision) SELECT id, revision FROM gone",
		archive: "WITH w AS (" + unnest(recordColumns) + ") INSERT INTO " + name(schema, "idempotency_archive") + " (" + names(archiveColumns, "") + ")" +
			" SELECT " + names(archiveColumns, "w.") + " FROM w ON CONFLICT (id, revision) DO NOTHING",
		// It waits for no disk; see notices.go.
		notify: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)",
	}
}
