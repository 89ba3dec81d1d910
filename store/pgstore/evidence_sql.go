package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/store"
)

// evidenceQueue is the table that writes append entries to. Readers of the log number them and
// move them to it.
const evidenceQueue = "semel_evidence_new"

// noted is an entry of evidence, with the identity of the write that it is about, if any.
type noted struct {
	*store.Entry
	id []byte
}

func withID(list []noted, id []byte, entries []store.Entry) []noted {
	for i := range entries {
		list = append(list, noted{&entries[i], id})
	}
	return list
}

// entryColumns are the parameters for entries, in the order of entriesFrom.
var entryColumns = []column[noted]{
	{"subject", "bytea", func(b []byte, n noted) []byte {
		if n.Subject == (store.Subject{}) {
			return nil
		}
		return append(b, n.Subject[:]...)
	}},
	{"also", "bytea", func(b []byte, n noted) []byte { // one after the other
		if len(n.Also) == 0 {
			return nil
		}
		for _, s := range n.Also {
			b = append(b, s[:]...)
		}
		return b
	}},
	{"leaf", "bytea", func(b []byte, n noted) []byte { return append(b, n.Leaf...) }},
	{"opening", "bytea", func(b []byte, n noted) []byte { return orNull(b, n.Opening) }},
	{"id", "bytea", func(b []byte, n noted) []byte { return orNull(b, n.id) }},
}

// appending appends entries to the queue: rows of subject, also, leaf, opening, id and
// place.
func appending(schema, entries, where string) string {
	return "INSERT INTO " + name(schema, evidenceQueue) + " (subject, also, leaf, opening) SELECT subject, also, leaf, opening" +
		" FROM " + entries + " AS e(subject, also, leaf, opening, id, place)" + where + " ORDER BY place"
}

// entriesFrom selects the entries from array parameters, the first of which has the number first.
func entriesFrom(first int) string {
	return fmt.Sprintf("unnest($%d::bytea[], $%d::bytea[], $%d::bytea[], $%d::bytea[], $%d::bytea[]) WITH ORDINALITY", first, first+1, first+2, first+3, first+4)
}

// noting is the part of a statement that appends the evidence of the writes in made. It is in
// one statement with the writes, so a crash leaves both or neither, and a write that is sent
// again but not made again appends nothing.
//
// IS TRUE keeps the planner from making this a join, which would compare every entry with every
// write if hash joins are off.
func noting(schema string, first int) string {
	return "noted AS (" + appending(schema, entriesFrom(first), " WHERE (id IN (SELECT m.id FROM made m)) IS TRUE") + ")"
}

// evidenceStatements are the statements for the evidence log.
type evidenceStatements struct{ append, read, find, erase, put, tile, lock, number string }

const (
	// numberChunk bounds how many entries one transaction numbers, or erases.
	numberChunk = 5000
	// numberLock is how long a reader that numbers entries waits for another.
	numberLock = "10s"
	// subjectLen is the length of a [store.Subject].
	subjectLen = "16"
)

func newEvidenceStatements(schema string, d *database) evidenceStatements {
	entries, also, tiles := name(schema, "semel_evidence"), name(schema, "semel_evidence_also"), name(schema, "semel_evidence_tile")
	const numbered = "(SELECT coalesce(max(n) + 1, 0) FROM ENTRIES)"
	return evidenceStatements{
		append: appending(schema, entriesFrom(1), ""),
		read:   "(SELECT n, subject, leaf, opening FROM " + entries + " WHERE n >= $1::bigint AND n < $2::bigint ORDER BY n)" + d.barrier(3),
		find: "(SELECT n, NULL::bytea, NULL::bytea, NULL::bytea FROM" +
			" ((SELECT n FROM " + entries + " WHERE subject = $1::bytea AND n >= $2::bigint ORDER BY n LIMIT $3::bigint)" +
			" UNION (SELECT n FROM " + also + " WHERE subject = $1::bytea AND n >= $2::bigint ORDER BY n LIMIT $3::bigint)) AS f" +
			" ORDER BY n LIMIT $3::bigint)" + d.barrier(3),
		erase: "UPDATE " + entries + " SET opening = NULL WHERE opening IS NOT NULL AND n >= $1::bigint AND n < $2::bigint",
		put: "INSERT INTO " + tiles + " (name, tile) SELECT name, tile FROM unnest($1::text[], $2::bytea[]) AS w(name, tile)" +
			" ON CONFLICT (name) DO NOTHING",
		tile: "SELECT tile FROM " + tiles + " WHERE name = $1::text",
		lock: "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0)) FROM set_config('lock_timeout', '" + numberLock + "', true)",
		number: strings.NewReplacer("QUEUE", name(schema, evidenceQueue), "ENTRIES", entries, "ALSO", also, "CHUNK", fmt.Sprint(numberChunk)).Replace(
			"WITH fresh AS (DELETE FROM QUEUE WHERE seq <= coalesce((SELECT seq FROM QUEUE ORDER BY seq OFFSET CHUNK - 1 LIMIT 1), 1::bigint << 62)" +
				" RETURNING seq, subject, also, leaf, opening)," +
				" given AS MATERIALIZED (SELECT " + numbered + " + row_number() OVER (ORDER BY seq) - 1 AS n, subject, also, leaf, opening FROM fresh)," +
				" moved AS (INSERT INTO ENTRIES (n, subject, leaf, opening) SELECT n, subject, leaf, opening FROM given RETURNING n)," +
				" indexed AS (INSERT INTO ALSO (subject, n) SELECT DISTINCT substr(also, i, " + subjectLen + "), n FROM given," +
				" generate_series(1, length(also), " + subjectLen + ") AS i)" +
				" SELECT " + numbered + " + count(*) AS numbered, count(*) = CHUNK AS more FROM moved"),
	}
}

// counted says how many entries have numbers, and whether more may be waiting for theirs.
type counted struct {
	numbered int64
	more     bool
}

func scanCounted(v values) (c counted, err error) {
	c.numbered, _ = v.number(0)
	c.more = v.bool(1)
	return c, nil
}

// number numbers every entry that was committed before it was called, in chunks, and returns how
// many entries have a number.
//
// The sequence of the queue has gaps, and transactions don't commit in the order in which they
// took its numbers, so nobody can follow it. Instead, one reader at a time moves the queue to
// the log, in the order of the sequence. The lock has a statement of its own and the isolation
// is READ COMMITTED, so the second statement sees all that earlier readers have moved; the
// primary key refuses a number that exists already.
//
// A write takes its numbers from the sequence after it has changed its row, and so after the
// identity's earlier write. A reader that sees its entries sees the earlier ones, too, which
// come first in the sequence: entries of an identity are numbered in the order of its writes.
//
// A crash before the commit leaves the entries in the queue, for the next reader. A crash after
// it leaves them in the log, with their numbers.
func (s *Store) number(ctx context.Context) (uint64, error) {
	for {
		var c counted
		err := s.writeLog(ctx, func(conn *pgx.Conn) error {
			err := pgx.BeginTxFunc(unending, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
				if _, err = tx.Exec(unending, s.log.lock, "semel evidence "+s.opts.Schema); err == nil {
					c, err = one(transact(unending, s, conn, scanCounted, statement{sql: s.log.number}))
				}
				return err
			})
			if warning := takeWarning(conn); err == nil && warning != "" {
				err = unknownFate(warning)
			}
			return err
		})
		if err != nil {
			return 0, err // it may still run
		}
		if !c.more {
			return uint64(c.numbered), nil
		}
	}
}
