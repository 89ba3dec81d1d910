package pgstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
)

// statements are the texts of what the store sends every day. They keep nothing in the
// session, so each may go to another one, as with a transaction pooler. joinCreate and
// joinUpdate are for transactions of the application.
type statements struct {
	create, update, joinCreate, joinUpdate, get, due, purge, archive, notify string
}

// member is a column that a write sets, or something that it is judged by, with the type
// of its parameter, which is an array of those of all writes: add adds a write's element.
type member struct {
	name, kind string
	add        func(b []byte, o *op, rec *semel.Record) []byte
}

// versionMembers change with every version of a record; identityMembers never change.
var (
	versionMembers = []member{
		{"id", "bytea", func(b []byte, o *op, _ *semel.Record) []byte { return appendElement(b, o.id[:]) }},
		{"revision", "bytea", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.Revision[:]) }},
		{"record", "bytea", func(b []byte, o *op, _ *semel.Record) []byte { return appendElement(b, o.record) }},
		{"next_at", "int8", func(b []byte, _ *op, rec *semel.Record) []byte {
			if rec.NextAt == 0 {
				return appendNull(b)
			}
			return appendInt(b, int64(rec.NextAt))
		}},
		{"held", "bool", func(b []byte, _ *op, rec *semel.Record) []byte { return appendBool(b, rec.Held != "") }},
		{"request_payload", "text", func(b []byte, _ *op, rec *semel.Record) []byte {
			if rec.Fingerprint.IsZero() {
				return appendNull(b)
			}
			return appendElement(b, rec.Fingerprint.String())
		}},
		{"response_payload", "bytea", func(b []byte, _ *op, rec *semel.Record) []byte {
			if rec.Result.Data == nil {
				return appendNull(b)
			}
			return appendElement(b, rec.Result.Data)
		}},
		{"status", "text", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.State.String()) }},
		{"created_at", "timestamptz", func(b []byte, _ *op, rec *semel.Record) []byte { return appendTime(b, rec.CreatedAt) }},
		{"updated_at", "timestamptz", func(b []byte, _ *op, rec *semel.Record) []byte { return appendTime(b, rec.UpdatedAt) }},
		{"expires_at", "timestamptz", func(b []byte, _ *op, rec *semel.Record) []byte { return appendTime(b, rec.ExpiresAt) }},
	}
	identityMembers = []member{
		{"since", "int8", func(b []byte, _ *op, rec *semel.Record) []byte { return appendInt(b, int64(rec.CreatedAt)) }},
		{"idempotency_key", "text", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.ID.Key) }},
		{"operation_type", "text", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.ID.Operation) }},
		{"user_id", "text", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.ID.Principal) }},
		{"session_id", "text", func(b []byte, _ *op, rec *semel.Record) []byte { return appendElement(b, rec.ID.Tenant) }},
	}
	recordMembers = slices.Concat(versionMembers, identityMembers)
	deadline      = member{"deadline", "timestamptz", func(b []byte, o *op, _ *semel.Record) []byte { return appendTime(b, o.deadline) }}
	// A write may be made until its deadline, and one that changes a record names the
	// revision that it follows.
	createMembers = slices.Concat(recordMembers, []member{deadline})
	updateMembers = slices.Concat(versionMembers, []member{
		{"expect", "bytea", func(b []byte, o *op, _ *semel.Record) []byte { return appendElement(b, o.write.Expect[:]) }}, deadline,
	})

	archiveMembers = slices.DeleteFunc(slices.Clone(recordMembers), func(m member) bool {
		return slices.Contains([]string{"next_at", "held", "since"}, m.name)
	})
)

// arrays are the parameters of [unnest] for many writes, in one piece of memory, with room for
// further parameters.
func arrays(members []member, ops []*op) [][]byte {
	size := 24 * len(members)
	for _, o := range ops {
		size += o.Size()
	}
	b, args := make([]byte, 0, size), make([][]byte, len(members), len(members)+6)
	for i, m := range members {
		from := len(b)
		b = appendHeader(b, m.kind, len(ops))
		for _, o := range ops {
			b = m.add(b, o, o.write.Record)
		}
		args[i] = b[from:]
	}
	return args
}

// list joins what text gives for each member, which it numbers from 1.
func list(members []member, text func(i int, m member) string) string {
	parts := make([]string, len(members))
	for i, m := range members {
		parts[i] = text(i+1, m)
	}
	return strings.Join(parts, ", ")
}

func names(members []member, prefix string) string {
	return list(members, func(_ int, m member) string { return prefix + m.name })
}

// unnest makes rows of parameters that are arrays of one length. In the select list the
// arrays are unfolded side by side as the rows are read; in FROM each would first be
// written to a table of its own.
func unnest(members []member) string {
	return "SELECT " + list(members, func(i int, m member) string { return fmt.Sprintf("unnest($%d::%s[]) AS %s", i, m.kind, m.name) })
}

// lockTimeout sets how long a statement waits for a lock, in milliseconds. That happens
// when the first row comes, before anything is locked, and ends with the transaction.
func lockTimeout(value string) string { return "set_config('lock_timeout', " + value + ", true)" }

// making is a statement that makes the writes of rows of parameters, and appends the
// evidence of those that it has made, but for its end, which may select from made. Behind
// the members come the parameters for the lock timeout and for the entries. A write is made
// only before its deadline, by the server's clock when the statement comes to its row; it
// may then still wait for a lock, for the lock timeout at most, and for the commit.
func making(schema, verb string, members []member, rest string) string {
	n := len(members) + 1
	return "WITH made AS (" + verb + " FROM (" + unnest(members) + ") AS w, " + lockTimeout(fmt.Sprintf("$%d::text", n)) +
		" WHERE (w.deadline IS NULL OR clock_timestamp() < w.deadline)" + rest + "), " + noted(schema, n+1)
}

// barrier is one more row, of so many nulls and one value, where commits wait for a
// standby. This server may show a row that no standby has, because the wait for it was
// cancelled or the server was restarted. Whoever reads that row acts on it. So the
// transaction that reads it also writes a message of a few bytes to the log, and its commit
// waits until a standby has everything up to here.
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
	creating := making(schema, "INSERT INTO "+log+" ("+names(recordMembers, "")+") SELECT "+names(recordMembers, "w."), createMembers,
		" ON CONFLICT (id) DO NOTHING RETURNING id, revision")
	changing := making(schema, "UPDATE "+log+" l SET "+list(versionMembers[1:], func(_ int, m member) string { return m.name + " = w." + m.name }), updateMembers,
		" AND l.id = w.id AND l.revision = w.expect RETURNING l.id, l.revision")
	// Writes that are made are named, each by its identity and its revision.
	const named = " SELECT id, revision FROM made"
	return statements{
		create: creating + named, joinCreate: creating + joinEnd(log, createMembers, "NULL"),
		update: changing + named, joinUpdate: changing + joinEnd(log, updateMembers, fmt.Sprintf("($%d::bytea[])[1]", len(updateMembers)-1)),
		// Each identity has a row, with the time when it was looked for.
		get: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, w.id, l.revision, l.response_payload, l.record FROM unnest($1::bytea[]) AS w(id) LEFT JOIN " + log +
			" l ON l.id = w.id" + d.barrier(4),
		due: "SELECT l.next_at, l.id, l.revision, l.response_payload, l.record FROM " + log + " l WHERE l.next_at <= $1::bigint" +
			" AND (l.next_at, l.id) > ($2::bigint, $3::bytea) ORDER BY l.next_at, l.id LIMIT $4::bigint",
		purge: "WITH gone AS (DELETE FROM " + log + " l USING (SELECT unnest($1::bytea[]) AS id, unnest($2::bytea[]) AS revision) AS w, " + lockTimeout("$3::text") +
			" WHERE l.id = w.id AND l.revision = w.revision RETURNING l.id, l.revision) SELECT id, revision FROM gone",
		archive: "WITH w AS (" + unnest(recordMembers) + ") INSERT INTO " + name(schema, "idempotency_archive") + " (" + names(archiveMembers, "") + ")" +
			" SELECT " + names(archiveMembers, "w.") + " FROM w ON CONFLICT (id, revision) DO NOTHING",
		// It waits for no disk; see notices.go.
		notify: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)",
	}
}
