package pgstore

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// Transactor runs calls inside transactions that their handlers find in the context.
// It is what a guarded HTTP route takes as its Tx:
//
//	mux.Handle("POST /orders", guard.Handler(semelhttp.Route{
//		Operation: semel.Operation{Name: "orders.create"},
//		Tx:        pgstore.Transactions(pool),
//	}, create))
//
// It may be used concurrently.
type Transactor struct {
	do func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error)
}

// Transactions makes transactions in a database by pgx; see [Do]. The pool is the
// application's own and gives one connection for each call that runs. The engine's
// store must be a [Store] in the same database. Handlers find the transaction with
// [TxFrom].
func Transactions(db Beginner) *Transactor {
	return &Transactor{func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error) {
		return Do(ctx, engine, db, call, func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
			return fn(context.WithValue(ctx, txKey{}, tx))
		})
	}}
}

// SQLTransactions is [Transactions] by database/sql; see [DoSQL]. Options may be nil.
// Handlers find the transaction with [SQLTxFrom].
func SQLTransactions(db *sql.DB, opts *sql.TxOptions) *Transactor {
	return &Transactor{func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error) {
		return DoSQL(ctx, engine, db, opts, call, func(ctx context.Context, tx *sql.Tx) (semel.Result, error) {
			return fn(context.WithValue(ctx, sqlTxKey{}, tx))
		})
	}}
}

// Check refuses an engine whose store is not in PostgreSQL.
func (*Transactor) Check(engine *semel.Engine) error {
	_, err := storeOf(engine)
	return err
}

// DoTx runs one call; see [Do].
func (t *Transactor) DoTx(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error) {
	return t.do(ctx, engine, call, fn)
}

type txKey struct{}

// TxFrom is the transaction that a handler runs in, which it may not end. It reports
// false where there is none: the request is not guarded, or its route has no Tx.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

type sqlTxKey struct{}

// SQLTxFrom is [TxFrom] for [SQLTransactions].
func SQLTxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(sqlTxKey{}).(*sql.Tx)
	return tx, ok
}
