package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// Beginner starts transactions: a pgxpool.Pool, a pgx.Conn, or a [Begin] around one
// that wants transactions of another kind.
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

// Do runs one call whole in one transaction of a database: claim, what fn writes,
// and outcome commit together, so that within that database the effects happen
// exactly once. What fn returns decides as [semel.Engine.DoTx] says. A transaction
// that the server rolls back because of others (40001, 40P01) is run again, with fn,
// up to 12 times with growing random pauses.
//
// The engine's store must be a [Store] in the same database. The pool is the
// application's own and holds one connection for the call; the store's own
// connections are asked what is recorded. Any isolation level will do.
//
// fn may not end the transaction, and does nothing outside of the database: that
// might happen again.
//
// While fn runs, other deliveries of the call get in_flight in one round trip; see
// [semel.Engine.BeginTx]. Deliveries through Engine.Do see nothing of it until it
// commits: one that comes meanwhile claims the call, and the transaction is then
// rolled back and gets what that delivery got.
func Do(ctx context.Context, engine *semel.Engine, db Beginner, call semel.Call, fn func(ctx context.Context, tx pgx.Tx) (semel.Result, error)) (semel.Answer, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, err
	}
	begin := func(ctx context.Context) (semel.OwnTx, error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return &ownTx{joined: joined{store: s, link: pgxLink{tx}}, handle: &handlerTx{tx}}, nil
	}
	return engine.DoTx(ctx, call, begin, func(ctx context.Context, tx semel.OwnTx) (semel.Result, error) {
		return fn(ctx, tx.(*ownTx).handle)
	})
}

// WithTx begins a call in a transaction of the caller, who does the work in it, ends
// the attempt, commits, and calls its method Committed; see [semel.Engine.BeginTx]. The
// attempt is nil for every decision but Execute.
//
// The caller runs a transaction again that the server rolls back (40001, 40P01), and
// gives its COMMIT a context without a deadline: one that is interrupted may have
// been carried out. Beginning the call again finds out.
func WithTx(ctx context.Context, engine *semel.Engine, tx pgx.Tx, call semel.Call) (semel.Answer, *semel.TxAttempt, error) {
	s, err := storeOf(engine)
	if err != nil {
		return semel.Answer{}, nil, err
	}
	return engine.BeginTx(ctx, &joined{store: s, link: pgxLink{tx}}, call)
}

func storeOf(engine *semel.Engine) (*Store, error) {
	s, ok := engine.Store().(*Store)
	if !ok {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the engine's store is not in PostgreSQL, so it can't take part in a transaction there"}
	}
	if s.kin != "" {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the database is " + s.kin + ", whose transactions don't have the advisory locks that keep two deliveries of a call apart; run the call outside of your transaction"}
	}
	return s, nil
}

// handlerTx is a transaction that only the engine ends.
type handlerTx struct{ pgx.Tx }

var errNotYours = errors.New("pgstore: the engine ends this transaction; return a result or an error")

// Commit refuses.
func (*handlerTx) Commit(context.Context) error { return errNotYours }

// Rollback refuses.
func (*handlerTx) Rollback(context.Context) error { return errNotYours }

// link is a transaction by one of the two ways to use a database.
type link interface {
	exec(ctx context.Context, sql string, args ...any) error
	// row runs a statement that gives one row or none, and reports which.
	row(ctx context.Context, sql string, args []any, dest ...any) (bool, error)
	commit(ctx context.Context) error
	rollback(ctx context.Context)
}

// pgxLink is a link by pgx.
type pgxLink struct{ tx pgx.Tx }

func (l pgxLink) exec(ctx context.Context, sql string, args ...any) error {
	_, err := l.tx.Exec(ctx, sql, args...)
	return err
}

func (l pgxLink) row(ctx context.Context, sql string, args []any, dest ...any) (bool, error) {
	err := l.tx.QueryRow(ctx, sql, args...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (l pgxLink) commit(ctx context.Context) error { return l.tx.Commit(ctx) }

// rollback's error changes nothing: a transaction whose end can't be asked for ends
// with its connection, which pgx closes then.
func (l pgxLink) rollback(ctx context.Context) { _ = l.tx.Rollback(ctx) }
