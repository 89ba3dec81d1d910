package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

// rounds is how often a write looks again when the record comes and goes while it
// looks.
const rounds = 10

// send makes the writes, of which no two are of one identity, in one transaction,
// and settles all of them, or returns an error.
//
// A crash before its commit leaves nothing of them. A crash after it leaves all,
// and nobody may have been told: the engine sends them again and finds them.
func (s *statements) send(ctx context.Context, conn *pgconn.PgConn, ops []*op) error {
	// What an earlier run has settled was committed.
	if ops = unsettled(ops); len(ops) == 0 {
		return nil
	}
	for range rounds {
		if err := s.write(ctx, conn, ops); err != nil {
			return err
		}
		open := unsettled(ops)
		if len(open) == 0 {
			return nil
		}
		// Another writer was there at the same time. Its row is there for a
		// statement that begins now.
		ids := make([]digest, len(open))
		for i, o := range open {
			ids[i] = o.id
		}
		found := byIdentity(open)
		err := execute(ctx, conn, s.getting(ids), func(row [][]byte) error {
			if o := found[digestOf(row[0])]; o != nil {
				o.read(row)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, o := range open {
			if !o.settled && !o.creates() {
				o.refused(new(semel.Record))
			}
		}
		if ops = unsettled(open); len(ops) == 0 {
			return nil
		}
	}
	return errors.New("the record comes and goes too often")
}

// unsettled are those of ops that are not settled.
func unsettled(ops []*op) []*op {
	if !slices.ContainsFunc(ops, func(o *op) bool { return o.settled }) {
		return ops
	}
	var open []*op
	for _, o := range ops {
		if !o.settled {
			open = append(open, o)
		}
	}
	return open
}

func byIdentity(ops []*op) map[digest]*op {
	m := make(map[digest]*op, len(ops))
	for _, o := range ops {
		m[o.id] = o
	}
	return m
}

// write sends the writes once. Those that are not settled then met another writer.
func (s *statements) write(ctx context.Context, conn *pgconn.PgConn, ops []*op) error {
	creates, updates := parted(ops)
	var room [2]*statement
	batch := room[:0]
	if len(creates) > 0 {
		batch = append(batch, s.creating(creates))
	}
	if len(updates) > 0 {
		batch = append(batch, s.updating(updates))
	}
	var byID map[digest]*op // made when a row names one
	err := executeAll(ctx, conn, batch, func(row [][]byte) error {
		if all := counted(row, creates, updates); all != nil {
			made(all)
			return nil
		}
		if byID == nil {
			byID = byIdentity(ops)
		}
		o := byID[digestOf(row[0])]
		switch {
		case o == nil: // of the barrier, or a count
		case len(row) == 1 || row[1] == nil:
			o.made = true
		default:
			o.read(row)
		}
		return nil
	})
	for _, st := range batch {
		st.arena.discard()
	}
	if err != nil {
		for _, o := range ops {
			o.settled, o.made, o.err = false, false, nil // read in what was rolled back
		}
		return err
	}
	for _, st := range batch {
		if st.sql.tells && st.wrote == 1 {
			made(st.ops)
		}
	}
	// A row that stood in the way, was purged and replaced by this write was read
	// too, so what was made comes last.
	for _, o := range ops {
		if o.made {
			o.err = nil
			o.wrote()
		}
	}
	return nil
}

// parted are the writes that create records, and those that change them.
func parted(ops []*op) (creates, updates []*op) {
	other := func(o *op) bool { return o.creates() != ops[0].creates() }
	switch {
	case slices.ContainsFunc(ops, other):
	case ops[0].creates():
		return ops, nil
	default:
		return nil, ops
	}
	for _, o := range ops {
		if o.creates() {
			creates = append(creates, o)
		} else {
			updates = append(updates, o)
		}
	}
	return creates, updates
}

// made notes that the server has made writes, which counts when their transaction is
// committed.
func made(ops []*op) {
	for _, o := range ops {
		o.made = true
	}
}

// counted is what a row says was written as a whole; nil if it says something else.
func counted(row [][]byte, creates, updates []*op) []*op {
	if len(row) < 2 || len(row[1]) != len(markCreated) {
		return nil
	}
	all := updates
	if string(row[1]) == markCreated {
		all = creates
	}
	if string(row[0]) == strconv.Itoa(len(all)) {
		return all
	}
	return nil
}

// read settles a write by the row that is stored.
func (o *op) read(row [][]byte) {
	rec, err := decodeRecord(row[0], row[1], row[2], row[3])
	o.refused(&rec)
	o.err = err
}

func digestOf(b []byte) (d digest) {
	if len(b) == len(d) {
		copy(d[:], b)
	}
	return d
}

// execute runs one statement, which is a transaction, and gives its rows to each, which
// may not keep them. When it returns nil that transaction is committed, as durably as
// the server's settings say.
func execute(ctx context.Context, conn *pgconn.PgConn, st *statement, each func(row [][]byte) error) error {
	delete(conn.CustomData(), warned)
	r, err := st.send(ctx, conn)
	if err != nil {
		return err
	}
	failed := rows(r, each)
	tag, err := r.Close() // which reads on to the end of the transaction
	st.wrote = tag.RowsAffected()
	return outcome(ctx, conn, err, failed)
}

// executeAll is execute for statements that make one transaction, in one round trip.
func executeAll(ctx context.Context, conn *pgconn.PgConn, batch []*statement, each func(row [][]byte) error) error {
	if len(batch) == 1 {
		return execute(ctx, conn, batch[0], each)
	}
	delete(conn.CustomData(), warned)
	var b pgconn.Batch
	for _, st := range batch {
		if err := st.add(ctx, conn, &b); err != nil {
			return err
		}
	}
	results := conn.ExecBatch(ctx, &b)
	var failed error
	for i := 0; results.NextResult(); i++ {
		r := results.ResultReader()
		failed = cmp.Or(failed, rows(r, each))
		tag, err := r.Close()
		failed = cmp.Or(failed, err)
		if i < len(batch) {
			batch[i].wrote = tag.RowsAffected()
		}
	}
	return outcome(ctx, conn, results.Close(), failed)
}

// rows gives rows to each until it fails.
func rows(r *pgconn.ResultReader, each func(row [][]byte) error) (failed error) {
	for r.NextRow() {
		if failed == nil {
			failed = each(r.Values())
		}
	}
	return failed
}

// outcome is what became of a transaction that has ended with err, of whose results
// one could not be used.
func outcome(ctx context.Context, conn *pgconn.PgConn, err, failed error) error {
	if err != nil {
		if stale(err) {
			_ = conn.Close(ctx) // the pool replaces it
		}
		return err
	}
	if n, ok := conn.CustomData()[warned].(*pgconn.Notice); ok && failed == nil {
		// "Canceling wait for synchronous replication" is a warning, and the
		// commit that it is about reports success.
		return fmt.Errorf("the server warns of a transaction whose fate is unknown now: %s", n.Message)
	}
	return failed
}

// warned is where a connection notes the last warning of its server.
const warned = "semel.warned"

func onNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" || n.SeverityUnlocalized == "" && n.Severity == "WARNING" {
		conn.CustomData()[warned] = n
	}
}

// retries is how often a transaction runs again that the server has rolled back
// because of others.
const retries = 8

// repeat runs a transaction again while the server rolls it back because of others.
// Only these two errors are repeated: all others may come after the commit, or
// would come again.
func repeat(ctx context.Context, run func() error) error {
	for n := 1; ; n++ {
		err := run()
		if err == nil || n > retries || !rolledBackByOthers(err) {
			return err
		}
		pause := time.NewTimer(rand.N(pauseBefore(n)) + 1)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}

// rolledBackByOthers reports a serialization failure or a deadlock.
func rolledBackByOthers(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pe.Code == "40001" || pe.Code == "40P01")
}

// rolledBackByRow reports that a statement failed because of what it was given, or
// of a lock on a row of it, so its transaction was rolled back, and another with
// other rows may succeed.
func rolledBackByRow(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pe.SeverityUnlocalized != "ERROR" || len(pe.Code) != 5 {
		return false
	}
	switch pe.Code[:2] {
	case "22", "23", "54", "55": // data, constraint, program limit, lock not available
		return true
	}
	return false
}
