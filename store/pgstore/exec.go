package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

// errGarbled is about an answer of the server that contradicts itself, or names what
// it was not asked for. Nothing of it is believed, so the result is unknown.
var errGarbled = errors.New("the server's answer contradicts itself")

// execute runs one statement, which is a transaction, and gives its rows to each, which
// may not keep them. When it returns nil that transaction is committed, as durably as
// the server's settings say. An error that wraps [semel.ErrNotApplied] means that it
// was rolled back, or never sent.
func execute(ctx context.Context, conn *pgconn.PgConn, st *statement, each func(row [][]byte) error) error {
	st.each = each
	return executeAll(ctx, conn, st)
}

// executeAll is execute for statements that make one transaction, in one round trip.
// They are one implicit transaction only as long as none of them begins or ends one;
// and all are prepared before the first is sent, for preparing one ends it too.
func executeAll(ctx context.Context, conn *pgconn.PgConn, batch ...*statement) error {
	if conn.IsClosed() {
		return notApplied(pgconn.ErrConnClosed)
	}
	delete(conn.CustomData(), warned)
	if len(batch) == 1 {
		r, err := batch[0].send(ctx, conn)
		if err != nil {
			return notApplied(err) // of preparing it
		}
		done, failed := batch[0].read(r)
		_, err = r.Close() // which has read on to the end of the transaction
		return outcome(ctx, conn, done, err, failed)
	}
	var b pgconn.Batch
	for _, st := range batch {
		if err := st.add(ctx, conn, &b); err != nil {
			return notApplied(err)
		}
	}
	results := conn.ExecBatch(ctx, &b)
	n := 0
	var failed error
	for n < len(batch) && results.NextResult() {
		done, err := batch[n].read(results.ResultReader())
		failed = cmp.Or(failed, err)
		if !done {
			break
		}
		n++
	}
	err := results.Close()
	if err == nil && n < len(batch) {
		failed = cmp.Or(failed, errGarbled)
	}
	return outcome(ctx, conn, n == len(batch), err, failed)
}

// read reads the result of a statement. Done means that the server says that it has
// carried it out, which the commit of its transaction follows. An error is one of who
// reads it, or says that the result is not whole: the server tells how wide its rows
// are, and how many it has sent.
func (st *statement) read(r *pgconn.ResultReader) (done bool, err error) {
	n := int64(0)
	for r.NextRow() {
		switch n++; {
		case err != nil:
		case len(r.Values()) != len(r.FieldDescriptions()):
			err = errGarbled
		case st.each != nil:
			err = st.each(r.Values())
		}
	}
	tag, failed := r.Close()
	switch {
	case failed != nil || err != nil:
	case len(r.FieldDescriptions()) > 0 && n != tag.RowsAffected():
		err = errGarbled
	case st.end != nil:
		err = st.end()
	}
	return tag.String() != "", err
}

// outcome is what became of a transaction that has ended with err, of whose results
// one could not be used. Done means that all of its statements were carried out.
func outcome(ctx context.Context, conn *pgconn.PgConn, done bool, err, failed error) error {
	pe, answered := errors.AsType[*pgconn.PgError](err)
	switch {
	case answered && stale(pe), err != nil && !answered, errors.Is(failed, errGarbled):
		_ = conn.Close(ctx) // the pool replaces it
	}
	switch {
	case answered && rolledBack(pe, done):
		return notApplied(err)
	case err != nil:
		return err
	}
	if n, ok := conn.CustomData()[warned].(*pgconn.Notice); ok && failed == nil {
		// "Canceling wait for synchronous replication" is a warning, and the
		// commit that it is about reports success.
		return fmt.Errorf("the server warns of a transaction whose fate is unknown now: %s", n.Message)
	}
	return failed
}

// notApplied marks an error with which nothing was changed, nor will be.
func notApplied(err error) error { return definite{err} }

// definite is a [semel.ErrNotApplied]. It does not say so itself, because it may be
// about a statement that only reads.
type definite struct{ error }

func (e definite) Unwrap() error        { return e.error }
func (e definite) Is(target error) bool { return target == semel.ErrNotApplied }

// refusals are the classes of errors with which a server refuses a statement. It has
// rolled back what the transaction did by then.
var refusals = []string{
	"0A", "22", "23", "25", "26", "28", "3D", "3F", "42", "44", "54", "55", "P0",
	"53", // resources: the disk is full, memory, connections
	"XX", // damaged pages
}

// rolledBack reports that it is certain by the server's error that nothing of a
// transaction is committed, or will be. An error that comes when all statements were
// carried out is one of the commit, which is not known to have failed unless the error
// says just that; and one that ends the session may come at the commit too. An error
// of a driver or of the network says nothing of the kind, even where it claims that
// nothing was sent: a batch whose connection breaks is reported as sent on a
// connection that was closed before.
func rolledBack(pe *pgconn.PgError, done bool) bool {
	switch {
	case rolledBackByOthers(pe):
		return true
	case done || pe.SeverityUnlocalized != "ERROR" || len(pe.Code) != 5:
		return false
	}
	const cancelled = "57014" // by a time limit, or an operator
	return pe.Code == cancelled || slices.Contains(refusals, pe.Code[:2])
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

// pauseBefore is how long to wait before a transaction is run again, the n-th time.
func pauseBefore(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// rolledBackByOthers reports a serialization failure or a deadlock.
func rolledBackByOthers(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pe.Code == "40001" || pe.Code == "40P01")
}

// metLock reports that a row, or an identity, was locked for too long.
func metLock(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pe.Code == "55P03"
}

// rolledBackByRow reports that a statement failed because of what it was given, or
// of a row that it touched, so its transaction was rolled back, and another with
// other rows may succeed.
func rolledBackByRow(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !errors.Is(err, semel.ErrNotApplied) || len(pe.Code) != 5 {
		return false
	}
	switch pe.Code[:2] {
	case "22", "23", "54", "55", "XX": // data, constraint, program limit, lock not available, damage
		return true
	}
	return false
}
