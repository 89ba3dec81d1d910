package pgstore_test

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pgstore"
)

// An order and the record of the call that makes it commit together.
func ExampleDo() {
	makeOrder := func(ctx context.Context, engine *semel.Engine, pool *pgxpool.Pool, cart string) (order int64, err error) {
		call := semel.Call{Operation: "orders.create", Key: cart, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(cart))}
		ans, err := pgstore.Do(ctx, engine, pool, call, func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
			var id int64
			if err := tx.QueryRow(ctx, "INSERT INTO orders (cart) VALUES ($1) RETURNING id", cart).Scan(&id); err != nil {
				return semel.Result{}, err
			}
			data, err := json.Marshal(id)
			return semel.Result{Data: data}, err
		})
		if err != nil {
			return 0, err // in_flight, a conflict, a refusal, or the database
		}
		return order, json.Unmarshal(ans.Record.Result.Data, &order)
	}
	_ = makeOrder
}

// A caller with a transaction of its own begins the call in it, ends the attempt, and
// commits.
func ExampleWithSQLTx() {
	pay := func(ctx context.Context, engine *semel.Engine, db *sql.DB, call semel.Call) ([]byte, error) {
		tx, err := db.BeginTx(context.WithoutCancel(ctx), nil) // no deadline for the commit
		if err != nil {
			return nil, err
		}
		defer tx.Rollback()
		ans, attempt, err := pgstore.WithSQLTx(ctx, engine, tx, call)
		if err != nil {
			return nil, err
		}
		if attempt == nil { // somebody else has done it, or is at it
			return ans.Record.Result.Data, ans.Err()
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (key) VALUES ($1)", call.Key); err != nil {
			return nil, err
		}
		receipt := []byte("paid")
		if err := attempt.Complete(ctx, semel.Result{Data: receipt}); err != nil {
			return nil, err
		}
		if err := tx.Commit(); err != nil {
			return nil, err
		}
		attempt.Committed()
		return receipt, nil
	}
	_ = pay
}
