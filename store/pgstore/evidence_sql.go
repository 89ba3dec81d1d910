package pgstore

import (
	"fmt"
	"strings"

	"github.com/semelhq/semel"
)

const evidenceTable = "semel_evidence"

// evidenceColumns are the parameters of the evidence of writes, each entry with the
// identity of its write; none if there is no entry.
func evidenceColumns(ops []*op) []column {
	n, size := 0, 0
	for _, o := range ops {
		n += len(o.write.Evidence)
		size += entriesSize(o.write.Evidence)
	}
	if n == 0 {
		return nil
	}
	e, ids := newEntryColumns(n, size), byteaColumn(n, 32)
	for _, o := range ops {
		for i := range o.write.Evidence {
			e.add(&o.write.Evidence[i])
			ids.bytes(o.id[:])
		}
	}
	return []column{e.subject, e.leaf, e.opening, ids}
}

// entryColumns are the parameters of entries.
type entryColumns struct{ subject, leaf, opening column }

func newEntryColumns(n, size int) entryColumns {
	return entryColumns{subject: byteaColumn(n, 16), leaf: byteaColumn(n, size/n/2), opening: byteaColumn(n, size/n/2)}
}

func (c *entryColumns) add(en *semel.Entry) {
	if en.Subject == (semel.Subject{}) {
		c.subject.null()
	} else {
		c.subject.bytes(en.Subject[:])
	}
	c.leaf.bytes(en.Leaf)
	c.opening.bytesOrNull(en.Opening)
}

// entriesSize is about what entries take in a statement.
func entriesSize(entries []semel.Entry) (n int) {
	for i := range entries {
		n += len(entries[i].Leaf) + len(entries[i].Opening) + 96
	}
	return n
}

// noting is the part of a statement that appends the evidence of the writes that
// were made. The CTE made has their ids; the parameters of the evidence begin with
// the number first. It is in one statement with the writes, so a crash leaves both
// or neither, and a write that is sent again, and not made again, appends nothing.
//
// IS TRUE keeps the planner from making a join of it, which would compare every
// entry with every write where the plans of hash joins are off.
func noting(schema, made string, first int) string {
	return fmt.Sprintf(", noted AS (INSERT INTO %s (subject, leaf, opening) SELECT subject, leaf, opening"+
		" FROM unnest($%d::bytea[], $%d::bytea[], $%d::bytea[], $%d::bytea[]) WITH ORDINALITY AS e(subject, leaf, opening, id, place)"+
		" WHERE (id IN (SELECT m.id FROM %s m)) IS TRUE ORDER BY place) ",
		name(schema, evidenceTable), first, first+1, first+2, first+3, made)
}

// joinNoting makes a statement of a transaction of the application append the
// evidence of its write, if that is made. Statement is one that returns its
// lock_timeout; args are its parameters. Each entry has parameters of its own, for
// not every driver knows arrays of bytes.
func joinNoting(schema, statement string, args []any, entries []semel.Entry) (string, []any) {
	var values strings.Builder
	for i := range entries {
		en := &entries[i]
		n := len(args)
		if i > 0 {
			values.WriteString(", ")
		}
		fmt.Fprintf(&values, "(%d, $%d::bytea, $%d::bytea, $%d::bytea)", i, n+1, n+2, n+3)
		leaf := en.Leaf
		if leaf == nil {
			leaf = []byte{}
		}
		args = append(args, orNull(en.Subject[:], en.Subject == (semel.Subject{})), leaf, orNull(en.Opening, en.Opening == nil))
	}
	return "WITH made AS (" + statement + " AS restored), noted AS (INSERT INTO " + name(schema, evidenceTable) + " (subject, leaf, opening)" +
		" SELECT subject, leaf, opening FROM (VALUES " + values.String() + ") AS e(place, subject, leaf, opening)" +
		" WHERE EXISTS (SELECT FROM made) ORDER BY place) SELECT restored FROM made", args
}

// evidenceStatements are the texts of the evidence log.
type evidenceStatements struct {
	append, read, find, erase, put, tile text
	lock, number                         text
	barrier                              text // none where the server has none
}

// numberChunk bounds the entries that get numbers in one transaction, and erasures.
const numberChunk = 5000

// numberLock is how long one who gives numbers waits for another.
const numberLock = "10s"

func newEvidenceStatements(schema string, barriers bool) evidenceStatements {
	same := func(sql string) text { return text{any: sql, direct: sql} }
	entries, numbers, tiles := name(schema, evidenceTable), name(schema, evidenceTable+"_number"), name(schema, evidenceTable+"_tile")
	e := evidenceStatements{
		append: same("INSERT INTO " + entries + " (subject, leaf, opening) SELECT subject, leaf, opening" +
			" FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS e(subject, leaf, opening, place) ORDER BY place"),
		// LIMIT keeps the planner from reading all entries for a hash join.
		read: same("SELECT g.n, g.subject, e.leaf, e.opening FROM " + numbers + " g CROSS JOIN LATERAL" +
			" (SELECT leaf, opening FROM " + entries + " e WHERE e.seq = g.seq LIMIT 1) AS e WHERE g.n >= $1::bigint AND g.n < $2::bigint ORDER BY g.n"),
		find: same("SELECT n FROM " + numbers + " WHERE subject = $1::bytea AND n >= $2::bigint ORDER BY n LIMIT $3::bigint"),
		erase: same("UPDATE " + entries + " SET opening = NULL WHERE opening IS NOT NULL" +
			" AND seq = ANY(ARRAY(SELECT seq FROM " + numbers + " WHERE n >= $1::bigint AND n < $2::bigint))"),
		put: same("INSERT INTO " + tiles + " (name, tile) SELECT name, tile FROM unnest($1::text[], $2::bytea[]) AS w(name, tile)" +
			" ON CONFLICT (name) DO NOTHING"),
		tile: same("SELECT tile FROM " + tiles + " WHERE name = $1::text"),
		// The planner can't know how little is missing, and behind a pooler would
		// compile the next statement for half a second.
		lock: same("SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0)) FROM set_config('lock_timeout', '" + numberLock + "', true) AS a," +
			" set_config('jit', 'off', true) AS b, set_config('enable_seqscan', 'off', true) AS c"),
		number: same(strings.NewReplacer("ENTRIES", entries, "NUMBERS", numbers, "STATE", name(schema, evidenceTable+"_state"),
			"CHUNK", fmt.Sprint(numberChunk)).Replace(numberSQL)),
	}
	if barriers {
		e.barrier = same(barrier)
	}
	return e
}

// numberSQL gives numbers to entries that have none; see [Store.number]. It returns
// how many have one then, and whether there may be more.
const numberSQL = `WITH state AS (
	SELECT numbered, seen, missing, missing_long, mark,
		isempty(missing_long) OR pg_snapshot_xmin(pg_current_snapshot()) > mark AS over
	FROM STATE LIMIT 1
), fresh AS (
	SELECT e.seq, e.subject FROM state s CROSS JOIN LATERAL unnest(s.missing + s.missing_long) AS m(gap)
		JOIN ENTRIES e ON e.seq >= lower(m.gap) AND e.seq < upper(m.gap)
	UNION ALL
	(SELECT e.seq, e.subject FROM ENTRIES e WHERE e.seq > (SELECT seen FROM state) ORDER BY e.seq LIMIT CHUNK)
), found AS (
	SELECT count(*) AS n, greatest((SELECT seen FROM state), max(seq)) AS seen,
		coalesce(range_agg(int8range(seq, seq, '[]')), '{}') AS entries
	FROM fresh
), given AS (
	INSERT INTO NUMBERS (n, seq, subject)
	SELECT s.numbered + row_number() OVER (ORDER BY f.seq) - 1, f.seq, f.subject FROM fresh f CROSS JOIN state s
), moved AS (
	UPDATE STATE t SET numbered = s.numbered + f.n, seen = f.seen,
		missing = CASE WHEN s.over THEN passed.span ELSE s.missing + passed.span END - f.entries,
		missing_long = CASE WHEN s.over THEN s.missing ELSE s.missing_long END - f.entries,
		mark = CASE WHEN s.over THEN pg_current_xact_id() ELSE s.mark END
	FROM state s, found f, LATERAL (SELECT int8multirange(int8range(s.seen + 1, f.seen + 1)) AS span) AS passed
	WHERE f.n > 0
)
SELECT s.numbered + f.n, f.n >= CHUNK FROM state s, found f`
