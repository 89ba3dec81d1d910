package pgstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statements are the texts of what the store sends every day. They keep nothing in
// the session, so that each may go to another, as a transaction pooler has it.
type statements struct {
	create, update   text // of many rows
	create1, update1 text // of one
	// noted are the same for writes with evidence.
	noted          struct{ create, update, create1, update1 text }
	get, due       text
	purge, archive text
	notify         text
}

// text is the SQL of a statement.
type text struct {
	// any works on any connection. It sets its lock timeout for itself, which ends
	// with its transaction.
	any string
	// direct works on connections that prepareSession has prepared.
	direct string
	// mark is that of the row that says how many it has written; empty: it names each.
	mark string
}

// member is a column that a write sets, with the type of its parameter.
type member struct{ name, kind string }

// versionMembers change with every version of a record; identityMembers are set
// when the identity is first stored.
var (
	versionMembers = []member{
		{"id", "bytea"}, {"revision", "bytea"}, {"record", "bytea"}, {"next_at", "bigint"}, {"held", "boolean"},
		{"request_payload", "text"}, {"response_payload", "bytea"}, {"status", "text"},
		{"created_at", "timestamptz"}, {"updated_at", "timestamptz"}, {"expires_at", "timestamptz"},
	}
	identityMembers = []member{
		{"since", "bigint"}, {"idempotency_key", "text"}, {"operation_type", "text"}, {"user_id", "text"}, {"session_id", "text"},
	}
	// A write names the revision that it follows, and until when it may be made.
	expectMember, deadlineMember = []member{{"expect", "bytea"}}, []member{{"deadline", "timestamptz"}}

	archiveMembers = []member{
		{"id", "bytea"}, {"revision", "bytea"}, {"record", "bytea"},
		{"request_payload", "text"}, {"response_payload", "bytea"}, {"status", "text"},
		{"created_at", "timestamptz"}, {"updated_at", "timestamptz"}, {"expires_at", "timestamptz"},
		{"idempotency_key", "text"}, {"operation_type", "text"}, {"user_id", "text"}, {"session_id", "text"},
	}
)

// inTime is what a write needs beside the revision that it expects: it may be made
// before its deadline only, by the server's clock when it comes to the row. It may
// then wait for a lock, for the lock timeout at most, and for the commit.
var inTime = beforeDeadline("w.deadline")

func beforeDeadline(deadline string) string {
	return "(" + deadline + " IS NULL OR clock_timestamp() < " + deadline + ")"
}

func names(members []member, prefix string) string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = prefix + m.name
	}
	return strings.Join(list, ", ")
}

// unnest is a table w of parameters that are arrays, all of one length. The arrays
// are unfolded side by side as the rows are read; unnest in FROM would write each of
// them to a table of its own first.
func unnest(members []member) string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = fmt.Sprintf("unnest($%d::%s[]) AS %s", i+1, m.kind, m.name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS w"
}

// params are the parameters of one row.
func params(members []member) string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = fmt.Sprintf("$%d::%s AS %s", i+1, m.kind, m.name)
	}
	return "(SELECT " + strings.Join(list, ", ") + ") AS w"
}

// Marks of the rows that say how many a statement has written.
const (
	markCreated = "c"
	markUpdated = "u"
)

// counting is the part of a statement of many rows that says how many it has written,
// in a row without an identity that is marked, and names the batch by the revision of
// its first write. It says which only where that is not all of them: a row for each
// costs both sides more than it tells. Those that were written are in the table made.
func counting(mark, made string) string {
	return "SELECT NULL::bytea, count(*)::text::bytea, '" + mark + "'::bytea, ($2::bytea[])[1] FROM " + made +
		" UNION ALL " + naming(made) + unlessAll(made)
}

// naming is the part of a statement that says which writes it has made.
func naming(made string) string {
	return "SELECT id, revision, NULL::bytea, NULL::bytea FROM " + made
}

func unlessAll(made string) string {
	return " WHERE (SELECT count(*) FROM " + made + ") < cardinality($1)"
}

// barrier is a row of no record, where commits wait for a standby. A row that this
// server shows may be one that no standby has: whoever waited for it was
// cancelled, or the server was restarted. Whoever is told of it acts on it, so the
// transaction that reads it writes a message of a few bytes to the log, and its
// own commit then waits until a standby has everything up to here.
const barrier = `SELECT pg_logical_emit_message(true, 'semel', '')::text::bytea, NULL::bytea, NULL::bytea, NULL::bytea` +
	` WHERE current_setting('synchronous_standby_names', true) <> ''`

func newStatements(schema string, lockTimeout time.Duration, barriers bool) statements {
	table := name(schema, "idempotency_log")
	limited := func(sql func(limit string) string) text {
		return text{any: sql(", set_config('lock_timeout', '" + milliseconds(lockTimeout) + "', true)"), direct: sql("")}
	}
	same := func(sql string) text { return text{any: sql, direct: sql} }
	after := ""
	if barriers {
		after = " UNION ALL " + barrier
	}
	all := slices.Concat(versionMembers, identityMembers)
	claim, change := slices.Concat(all, deadlineMember), slices.Concat(versionMembers, expectMember, deadlineMember)
	const row = "l.id, l.revision, l.record, l.response_payload"
	// The last part sees the rows that were there before the statement, so it
	// returns what stood in the way, if anything did. A row that came meanwhile is
	// in no part, and is looked for once more.
	insert := func(from, noted string) string {
		return "WITH made AS (INSERT INTO " + table + " (" + names(all, "") + ") SELECT " + names(all, "w.") + " FROM " + from +
			" WHERE " + inTime + " ON CONFLICT (id) DO NOTHING RETURNING id, revision)" + noted + " "
	}
	set := func(from string) string {
		return "UPDATE " + table + " l SET " + assignments() + " FROM " + from + " WHERE l.id = w.id AND l.revision = w.expect AND " + inTime +
			" RETURNING l.id, l.revision"
	}
	create := func(noted string) text {
		t := limited(func(limit string) string {
			return insert(unnest(claim)+limit, noted) + counting(markCreated, "made") + " UNION ALL SELECT " + row +
				" FROM " + unnest(all[:1]) + " JOIN " + table + " l ON l.id = w.id" + unlessAll("made") + after
		})
		t.mark = markCreated
		return t
	}
	create1 := func(noted string) text {
		return limited(func(limit string) string {
			return insert(params(claim)+limit, noted) + naming("made") + " UNION ALL SELECT " + row + " FROM " + table + " l WHERE l.id = $1 AND NOT EXISTS (SELECT FROM made)" + after
		})
	}
	update := func(noted string) text {
		t := limited(func(limit string) string {
			return "WITH made AS (" + set(unnest(change)+limit) + ")" + noted + " " + counting(markUpdated, "made")
		})
		t.mark = markUpdated
		return t
	}
	s := statements{
		create: create(""), create1: create1(""), update: update(""),
		update1: text{any: limited(func(limit string) string { return set(params(change) + limit) }).any, direct: set1(table, change)},
		get:     same("SELECT " + row + " FROM " + table + " l WHERE l.id = ANY($1::bytea[])" + after),
		due: same("SELECT " + row + ", l.next_at FROM " + table + " l WHERE l.next_at <= $1::bigint" +
			" AND (l.next_at, l.id) > ($2::bigint, $3::bytea) ORDER BY l.next_at, l.id LIMIT $4::bigint"),
		purge: limited(func(limit string) string {
			return "DELETE FROM " + table + " l USING unnest($1::bytea[], $2::bytea[]) AS w(id, revision)" + limit +
				" WHERE l.id = w.id AND l.revision = w.revision RETURNING l.id"
		}),
		archive: same("INSERT INTO " + name(schema, "idempotency_archive") + " (" + names(archiveMembers, "") + ")" +
			" SELECT " + names(archiveMembers, "w.") + " FROM " + unnest(archiveMembers) + " ON CONFLICT (id, revision) DO NOTHING"),
		notify: same("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, w.names) FROM unnest($2::text[]) AS w(names)"),
	}
	created, updated := noting(schema, "made", len(claim)+1), noting(schema, "made", len(change)+1)
	s.noted.create, s.noted.create1, s.noted.update = create(created), create1(created), update(updated)
	s.noted.update1 = limited(func(limit string) string {
		return "WITH made AS (" + set(params(change)+limit) + ")" + updated + "SELECT id, revision FROM made"
	})
	return s
}

// anywhere has the writes use no setting of a session, so that they wait for locks as
// long as they say themselves.
func (s statements) anywhere() statements {
	for _, t := range []*text{
		&s.create, &s.create1, &s.update, &s.update1, &s.noted.create, &s.noted.create1, &s.noted.update, &s.noted.update1,
	} {
		t.direct = t.any
	}
	return s
}

// set1 is an update of one row without a table of parameters, which the server
// would join with.
func set1(table string, change []member) string {
	set := make([]string, 0, len(change))
	for i, m := range versionMembers[1:] {
		set = append(set, fmt.Sprintf("%s = $%d::%s", m.name, i+2, m.kind))
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE id = $1::bytea AND revision = $%d::bytea AND %s RETURNING id, revision",
		table, strings.Join(set, ", "), len(change)-1, beforeDeadline(fmt.Sprintf("$%d::timestamptz", len(change))))
}

// assignments are what an update sets.
func assignments() string {
	list := make([]string, 0, len(versionMembers))
	for _, m := range versionMembers[1:] {
		list = append(list, m.name+" = w."+m.name)
	}
	return strings.Join(list, ", ")
}

// milliseconds is a time as a setting has it.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
