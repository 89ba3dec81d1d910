package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/store"
)

// errGarbled is the error for an answer that contradicts itself, or names something that the
// server wasn't asked for. The store believes nothing in it, so the result is unknown.
var errGarbled = errors.New("the server's answer contradicts itself")

// statement is an SQL statement with its parameters, in binary form.
type statement struct {
	sql  string
	args [][]byte
	once bool // its text varies, so it isn't worth preparing
}

func newStatement(sql string, args ...[]byte) statement { return statement{sql: sql, args: args} }

// isBinary says that all parameters or results are in binary form.
var isBinary = []int16{pgx.BinaryFormatCode}

// send sends the statement, or adds it to a batch if there is one. It prepares the statement in
// the session, unless the session may change.
func (st *statement) send(ctx context.Context, s *Store, conn *pgx.Conn, batch *pgconn.Batch) (r *pgconn.ResultReader, err error) {
	var prepared *pgconn.StatementDescription
	if !st.once && !s.database.pooler {
		if prepared, err = conn.Prepare(ctx, st.sql, st.sql); err != nil {
			return nil, err
		}
	}
	switch {
	case batch == nil && prepared == nil:
		r = conn.PgConn().ExecParams(ctx, st.sql, st.args, nil, isBinary, isBinary)
	case batch == nil:
		r = conn.PgConn().ExecStatement(ctx, prepared, st.args, isBinary, isBinary)
	case prepared == nil:
		batch.ExecParams(st.sql, st.args, nil, isBinary, isBinary)
	default:
		batch.ExecStatement(prepared, st.args, isBinary, isBinary)
	}
	return r, nil
}

// transact runs statements as one transaction, in one round trip, and returns all their rows.
// Without an error it is committed, as durably as the server's settings say, unless the
// connection was in a transaction before. An error that wraps [store.ErrNotApplied] means that
// it was rolled back or never sent.
//
// It is one implicit transaction because pgx sends a single Sync after the statements, and
// prepares them first. So none of them may begin or end a transaction.
func transact[T any](ctx context.Context, s *Store, conn *pgx.Conn, scan func(values) (T, error), list ...statement) (all []T, err error) {
	if err := ctx.Err(); err != nil {
		return nil, notApplied(err)
	}
	if conn.IsClosed() {
		return nil, notApplied(errors.New("the connection is closed"))
	}
	takeWarning(conn)
	done := false // the server has executed the last statement
	if len(list) == 1 {
		var r *pgconn.ResultReader
		if r, err = list[0].send(ctx, s, conn, nil); err == nil { // uses memory that the connection has
			all, done, err = appendRows(nil, r, scan)
		}
	} else {
		all, done, err = transactBatch(ctx, s, conn, scan, list)
	}
	pe, answered := errors.AsType[*pgconn.PgError](err)
	if err != nil && (!answered || stale(pe)) {
		_ = conn.Close(s.base) // the pool replaces it
	}
	warning := takeWarning(conn)
	switch {
	case answered && rolledBack(pe, done):
		return nil, notApplied(onRights(err, refusedRight))
	case err != nil:
		return nil, err
	case warning != "":
		return nil, unknownFate(warning)
	}
	return all, nil
}

// transactBatch sends several statements for transact.
func transactBatch[T any](ctx context.Context, s *Store, conn *pgx.Conn, scan func(values) (T, error), list []statement) (all []T, done bool, err error) {
	var batch pgconn.Batch
	for i := range list {
		if _, err := list[i].send(ctx, s, conn, &batch); err != nil {
			return nil, false, err
		}
	}
	results, n := conn.PgConn().ExecBatch(ctx, &batch), 0
	for ; err == nil && results.NextResult(); n++ {
		all, done, err = appendRows(all, results.ResultReader(), scan)
	}
	err = cmp.Or(err, results.Close()) // which reads to the end of the transaction
	return all, done && n == len(list), err
}

// appendRows adds the rows of a statement to all, except a barrier's, which begins with null.
// It reports whether the statement was executed, which doesn't exclude an error afterwards.
func appendRows[T any](all []T, r *pgconn.ResultReader, scan func(values) (T, error)) (_ []T, done bool, err error) {
	var rows int64
	for ; r.NextRow(); rows++ {
		row, serr := scan(r.Values())
		if err = cmp.Or(err, serr); err == nil && r.Values()[0] != nil {
			all = append(all, row)
		}
	}
	tag, rerr := r.Close()
	if err = cmp.Or(err, rerr); err == nil && tag.Select() && rows != tag.RowsAffected() {
		err = errGarbled
	}
	return all, tag.String() != "", err
}

// unknownFate returns the error for a transaction that the server committed with a warning.
func unknownFate(warning string) error {
	return fmt.Errorf("the server warns of a transaction whose fate is unknown now: %s", warning)
}

// ignore is the scan function for rows that don't matter.
func ignore(values) (none struct{}, err error) { return none, nil }

// stale reports that a prepared statement is gone or no longer fits the table, so the
// connection can't be used any more.
func stale(pe *pgconn.PgError) bool { return pe.Code == "26000" || pe.Code == "0A000" }

// notApplied marks an error that proves that nothing was changed, or will be.
func notApplied(err error) error { return definite{err} }

// definite is a [store.ErrNotApplied]. Its text doesn't say so, because the statement may
// only have read.
type definite struct{ error }

func (e definite) Unwrap() error        { return e.error }
func (e definite) Is(target error) bool { return target == store.ErrNotApplied }

// refusals are the classes of errors with which a server refuses a statement. It has then
// already rolled the transaction back.
var refusals = []string{
	"0A", "22", "23", "25", "26", "28", "3D", "3F", "42", "44", "54", "55", "P0",
	"53", // resources: disk full, out of memory, too many connections
	"XX", // damaged pages
}

// rolledBack reports whether the server's error proves that nothing of a transaction is
// committed, or will be. done means that its last statement was executed: then the error is
// about the commit, which may have succeeded unless the error says that it was rolled back. An
// error that ends the session may come at the commit, too. Errors of the driver or the network
// prove nothing, even if they claim that nothing was sent.
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

// retries is how often repeat repeats a transaction.
const retries = 8

// repeat runs a transaction again if the server rolls it back because of others. It doesn't
// repeat it for any other error: that may come after the commit, or would just come again.
func repeat(ctx context.Context, run func() error) error {
	for n := 1; ; n++ {
		err := run()
		if err == nil || n > retries || !rolledBackByOthers(err) || !callctx.Pause(ctx, rand.N(time.Duration(n)*time.Millisecond)+1) {
			return err
		}
	}
}

// rolledBackByOthers reports a serialization failure or a deadlock.
func rolledBackByOthers(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01"
}

// metLock reports that a row was locked for too long.
func metLock(err error) bool { return sqlState(err) == "55P03" }

// rolledBackByRow reports that a transaction was rolled back because of a parameter or a row,
// so another with other rows may succeed.
func rolledBackByRow(err error) bool {
	of := []string{"22", "23", "54", "55", "XX"} // data, constraint, program limit, lock not available, damage
	state := sqlState(err)
	return errors.Is(err, store.ErrNotApplied) && len(state) == 5 && slices.Contains(of, state[:2])
}

// sqlState returns the code of a server's error, from any driver; empty if it isn't one.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}
