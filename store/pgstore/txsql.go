package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/semelhq/semel"
)

// DoSQL is [Do] for database/sql, with any driver for PostgreSQL whose errors have a
// method SQLState. Options may be nil. fn may not end the transaction: one that does
// gets an error with [semel.CodeUnknown], and has committed what it wrote without an
// outcome.
func DoSQL(ctx context.Context, engine *semel.Engine, db *sql.DB, opts *sql.TxOptions, call semel.Call, fn func(ctx context.Context, tx *sql.Tx) (semel.Result, error)) (semel.Answer, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, err
	}
	begin := func(ctx context.Context) (semel.OwnTx, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		// The package rolls a transaction back when the context that it began
		// under is cancelled, also while it commits.
		tx, err := conn.BeginTx(context.WithoutCancel(ctx), opts)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &ownTx{joined: joined{store: s, link: sqlLink{tx: tx, conn: conn}}}, nil
	}
	return engine.DoTx(ctx, call, begin, func(ctx context.Context, tx semel.OwnTx) (semel.Result, error) {
		return fn(ctx, tx.(*ownTx).link.(sqlLink).tx)
	})
}

// WithSQLTx is [WithTx] for database/sql.
func WithSQLTx(ctx context.Context, engine *semel.Engine, tx *sql.Tx, call semel.Call) (semel.Answer, *semel.TxAttempt, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, nil, err
	}
	return engine.BeginTx(ctx, &joined{store: s, link: sqlLink{tx: tx}}, call)
}

// sqlLink is a link by database/sql.
type sqlLink struct {
	tx   *sql.Tx
	conn *sql.Conn // nil where the transaction is the caller's
}

func (l sqlLink) exec(ctx context.Context, query string, args ...any) error {
	_, err := l.tx.ExecContext(ctx, query, args...)
	return err
}

func (l sqlLink) row(ctx context.Context, query string, args []any, dest ...any) (bool, error) {
	err := l.tx.QueryRowContext(ctx, query, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (l sqlLink) commit(context.Context) error {
	err := l.tx.Commit()
	// The connection goes back to its pool, which finds out whether it is broken.
	_ = l.conn.Close()
	return err
}

// rollback's errors change nothing: a transaction whose end can't be asked for ends
// with its connection.
func (l sqlLink) rollback(context.Context) {
	_ = l.tx.Rollback()
	_ = l.conn.Close()
}
