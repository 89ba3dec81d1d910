package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pgstore"
)

// order is what is delivered.
type order struct {
	Cart  string `json:"cart"` // its mandate
	Cents int64  `json:"cents"`
}

// receipt is the answer.
type receipt struct {
	Order int64 `json:"order"`
}

// shop makes orders. Its schema holds the records and its own tables.
type shop struct {
	store  *pgstore.Store
	engine *semel.Engine
	pool   *pgxpool.Pool
	schema string
}

// tables are the shop's. In the database an order is also unique by its cart's mandate.
// Only the transaction keeps the statistics from counting an order twice.
const tables = `
CREATE TABLE orders (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	cart   text NOT NULL UNIQUE,
	cents  bigint NOT NULL
);
CREATE TABLE statistics (day int PRIMARY KEY, orders int NOT NULL);
INSERT INTO statistics SELECT day, 0 FROM generate_series(0, 6) AS d(day);
`

// newSchema makes a schema with the tables.
func newSchema(ctx context.Context, url string) (string, error) {
	schema := "orders_" + strings.ToLower(rand.Text()[:12])
	s, err := openShop(ctx, url, schema, true)
	if err != nil {
		return schema, err
	}
	_, err = s.pool.Exec(ctx, tables, pgx.QueryExecModeSimpleProtocol)
	return schema, errors.Join(err, s.close(ctx))
}

func openShop(ctx context.Context, url, schema string, migrate bool) (s *shop, err error) {
	s = &shop{schema: schema}
	if s.store, err = pgstore.Open(ctx, url, &pgstore.Options{Schema: schema, Migrate: migrate}); err != nil {
		return nil, err
	}
	s.engine, err = semel.New(s.store, &semel.Options{Operations: []semel.Operation{
		{Name: "orders.create", Financial: true},
	}})
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *shop) close(ctx context.Context) error {
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(s.engine.Close(context.WithoutCancel(ctx)), s.store.Close())
}

// create makes an order. All deliveries of it get the same receipt.
func (s *shop) create(ctx context.Context, o order) (receipt, semel.Answer, error) {
	var r receipt
	payload, err := json.Marshal(o)
	if err != nil {
		return r, semel.Answer{}, err
	}
	fingerprint, err := semel.FingerprintJSON(payload)
	if err != nil {
		return r, semel.Answer{}, err
	}
	call := semel.Call{Operation: "orders.create", Key: o.Cart, Fingerprint: fingerprint, Wait: orderWait}
	ans, err := pgstore.Do(ctx, s.engine, s.pool, call, func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
		var made receipt
		if err := tx.QueryRow(ctx, "INSERT INTO orders (cart, cents) VALUES ($1, $2) RETURNING id", o.Cart, o.Cents).Scan(&made.Order); err != nil {
			return semel.Result{}, err
		}
		if _, err := tx.Exec(ctx, "UPDATE statistics SET orders = orders + 1 WHERE day = $1", made.Order%7); err != nil {
			return semel.Result{}, err
		}
		data, err := json.Marshal(made)
		return semel.Result{Data: data}, err
	})
	if err != nil {
		return r, ans, err
	}
	return r, ans, json.Unmarshal(ans.Record.Result.Data, &r)
}

// count fills in the figures from the database. The workers and their sessions must have
// ended, because the server counts the deadlocks of a session when it ends.
func (s *shop) count(ctx context.Context, sum *summary) error {
	return errors.Join(
		s.pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&sum.Rows),
		s.pool.QueryRow(ctx, "SELECT sum(orders) FROM statistics").Scan(&sum.Counted),
		s.pool.QueryRow(ctx, "SELECT count(*) FROM idempotency_log WHERE held OR status = 'processing'").Scan(&sum.Held),
	)
}

// deadlocks is how many the server has counted in the database so far.
func (s *shop) deadlocks(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
	return n, err
}

// remove drops the schema.
func (s *shop) remove(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{s.schema}.Sanitize()+" CASCADE")
	if err != nil {
		return fmt.Errorf("remove the schema %s: %w", s.schema, err)
	}
	return nil
}
