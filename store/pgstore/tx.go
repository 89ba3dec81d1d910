package pgstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Beginner starts transactions: a pgxpool.Pool, a pgx.Conn, or a [Begin] around one.
type Beginner interface {
	// Begin starts a transaction.
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Begin is a [Beginner] with options, such as the isolation level:
//
//	pgstore.Begin(func(ctx context.Context) (pgx.Tx, error) {
//		return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
//	})
type Begin func(ctx context.Context) (pgx.Tx, error)

// Begin calls the function.
func (b Begin) Begin(ctx context.Context) (pgx.Tx, error) { return b(ctx) }

// Do runs a whole call in one transaction of a database: the claim, what fn writes and the
// outcome commit together, so within that database the effects happen exactly once. What fn
// returns decides as [semel.Engine.DoTx] says. If the server rolls the transaction back because
// of others (40001, 40P01), Do runs it again, with fn, up to 12 times with growing random
// pauses.
//
// The engine's store must be a [Store] in the same database, or wrap one; see [store.As]. The
// pool is your own, at any isolation level, and gives one connection for the call; recorded
// outcomes are read over the store's. fn may not end the transaction, and should do nothing
// outside the database, because that might happen again.
//
// While fn runs, other deliveries of the call by Do get in_flight in one round trip; see
// [semel.Engine.BeginTx]. Deliveries by Engine.Do see nothing of it until it commits: one that
// comes meanwhile claims the call; then your transaction is rolled back, and your call gets
// that delivery's answer.
func Do(ctx context.Context, engine *semel.Engine, db Beginner, call semel.Call, fn func(ctx context.Context, tx pgx.Tx) (semel.Result, error)) (semel.Answer, error) {
	return doTx(ctx, engine, call, pgxStarter(db), fn)
}

// DoSQL is [Do] for database/sql, with any PostgreSQL driver that has errors with a method
// SQLState. Options may be nil. fn may not end the transaction: if it does, DoSQL returns an
// error with [semel.CodeUnknown], and what fn committed has no outcome.
func DoSQL(ctx context.Context, engine *semel.Engine, db *sql.DB, opts *sql.TxOptions, call semel.Call, fn func(ctx context.Context, tx *sql.Tx) (semel.Result, error)) (semel.Answer, error) {
	return doTx(ctx, engine, call, sqlStarter(db, opts), fn)
}

// starter starts transactions of type T.
type starter[T any] func(ctx context.Context) (tx T, l link, err error)

func pgxStarter(db Beginner) starter[pgx.Tx] {
	return func(ctx context.Context) (pgx.Tx, link, error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, link{}, err
		}
		return &handlerTx{tx}, pgxLink(tx), nil
	}
}

func sqlStarter(db *sql.DB, opts *sql.TxOptions) starter[*sql.Tx] {
	return func(ctx context.Context) (*sql.Tx, link, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, link{}, err
		}
		// database/sql rolls a transaction back when its context is cancelled, even during the
		// commit.
		tx, err := conn.BeginTx(context.WithoutCancel(ctx), opts)
		if err != nil {
			return nil, link{}, errors.Join(err, conn.Close())
		}
		return tx, sqlLink(tx, conn), nil
	}
}

func doTx[T any](ctx context.Context, engine *semel.Engine, call semel.Call, begin starter[T], fn func(ctx context.Context, tx T) (semel.Result, error)) (semel.Answer, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, err
	}
	return engine.DoTx(ctx, call, func(ctx context.Context) (store.OwnTx, error) {
		tx, l, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		return &ownTx{joined: joined{store: s, link: l}, handle: tx}, nil
	}, func(ctx context.Context, tx store.OwnTx) (semel.Result, error) {
		return fn(ctx, tx.(*ownTx).handle.(T))
	})
}

// WithTx begins a call in your own transaction: you do the work in it, end the attempt, commit,
// and call the attempt's method Committed; see [semel.Engine.BeginTx]. The attempt is nil for
// every decision but Execute. If the server rolls the transaction back (40001, 40P01), run it
// again. Give its COMMIT a context without a deadline: an interrupted one may have succeeded.
// To find out, begin the call again.
func WithTx(ctx context.Context, engine *semel.Engine, tx pgx.Tx, call semel.Call) (semel.Answer, semel.TxAttempt, error) {
	return beginIn(ctx, engine, pgxLink(tx), call)
}

// WithSQLTx is [WithTx] for database/sql.
func WithSQLTx(ctx context.Context, engine *semel.Engine, tx *sql.Tx, call semel.Call) (semel.Answer, semel.TxAttempt, error) {
	return beginIn(ctx, engine, sqlLink(tx, nil), call)
}

func beginIn(ctx context.Context, engine *semel.Engine, l link, call semel.Call) (semel.Answer, semel.TxAttempt, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, nil, err
	}
	return engine.BeginTx(ctx, &joined{store: s, link: l}, call)
}

func storeOf(engine *semel.Engine) (*Store, error) {
	s, ok := store.As[*Store](engine.Internal().Store())
	if !ok {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the engine's store is not in PostgreSQL, so it can't take part in a transaction there"}
	}
	if s.database.engine != "" {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the database is " + s.database.engine + ", whose transactions don't have the advisory locks that keep two deliveries of a call apart; run the call outside of your transaction"}
	}
	return s, nil
}

// handlerTx is a transaction that only the engine ends.
type handlerTx struct{ pgx.Tx }

var errNotYours = errors.New("pgstore: the engine ends this transaction; return a result or an error")

func (*handlerTx) Commit(context.Context) error   { return errNotYours }
func (*handlerTx) Rollback(context.Context) error { return errNotYours }

// Transactor runs calls inside transactions that their handlers find in the context. Use it as
// the Tx of a guarded HTTP route:
//
//	mux.Handle("POST /orders", guard.Handler(semelhttp.Route{
//		Operation: semel.Operation{Name: "orders.create"},
//		Tx:        pgstore.Transactions(pool),
//	}, create))
//
// You may use it concurrently.
type Transactor struct {
	do func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error)
}

// Transactions makes transactions by pgx; see [Do]. Each running call takes one connection from
// your pool. Handlers find the transaction with [TxFrom].
func Transactions(db Beginner) *Transactor { return transactor(pgxStarter(db)) }

// SQLTransactions is [Transactions] by database/sql; see [DoSQL]. Options may be nil.
// Handlers find the transaction with [SQLTxFrom].
func SQLTransactions(db *sql.DB, opts *sql.TxOptions) *Transactor {
	return transactor(sqlStarter(db, opts))
}

// txKey finds a transaction of type T in a context.
type txKey[T any] struct{}

func transactor[T any](begin starter[T]) *Transactor {
	return &Transactor{func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error) {
		return doTx(ctx, engine, call, begin, func(ctx context.Context, tx T) (semel.Result, error) {
			return fn(context.WithValue(ctx, txKey[T]{}, tx))
		})
	}}
}

// Check refuses an engine with a store that isn't in PostgreSQL.
func (*Transactor) Check(engine *semel.Engine) error {
	_, err := storeOf(engine)
	return err
}

// DoTx runs one call; see [Do].
func (t *Transactor) DoTx(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(ctx context.Context) (semel.Result, error)) (semel.Answer, error) {
	return t.do(ctx, engine, call, fn)
}

// TxFrom returns the transaction that a handler runs in, which the handler may not end. It
// reports false if there is none: the request isn't guarded, or its route has no Tx.
func TxFrom(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey[pgx.Tx]{}).(pgx.Tx)
	return tx, ok
}

// SQLTxFrom is [TxFrom] for [SQLTransactions].
func SQLTxFrom(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey[*sql.Tx]{}).(*sql.Tx)
	return tx, ok
}
