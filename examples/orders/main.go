// Command orders makes each order exactly once although every order is delivered several
// times at once to processes that may be killed. Claim, order and outcome commit in one
// transaction of PostgreSQL.
//
//	createdb shop
//	go run ./examples/orders -database postgres:///shop -demo
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pgstore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	database := flag.String("database", "postgres:///shop", "`URL` of the database")
	demos := flag.Bool("demo", false, "print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *database, os.Stdout)
	default:
		err = serve(ctx, l, *database)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is the message that is delivered.
type order struct {
	Cart  string `json:"cart"` // its mandate
	Cents int64  `json:"cents"`
}

// receipt is the answer.
type receipt struct {
	Order int64 `json:"order"`
}

// orderWait is how long a duplicate waits for the delivery that makes the order.
const orderWait = 5 * time.Second

// tables are the shop's. In the database an order is also unique by its cart's mandate.
// Only the transaction keeps the statistics from counting an order twice.
//
// The lock is the first of it: two processes that create a table at once both find that there
// is none, and one of them fails, IF NOT EXISTS or not.
const tables = `
SELECT pg_advisory_xact_lock(hashtextextended('tables of orders', 0));
CREATE TABLE IF NOT EXISTS orders (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	cart   text NOT NULL UNIQUE,
	cents  bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS statistics (day int PRIMARY KEY, orders int NOT NULL);
INSERT INTO statistics SELECT day, 0 FROM generate_series(0, 6) AS d(day) ON CONFLICT DO NOTHING;
`

// shop makes orders.
type shop struct {
	engine *semel.Engine
	pool   *pgxpool.Pool
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

// ServeHTTP takes the delivery of an order: 201 if it made the order, 200 if another
// delivery has, and 503 if it should come again.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil || json.Unmarshal(body, &o) != nil || o.Cart == "" {
		http.Error(w, "send a cart and cents", http.StatusBadRequest)
		return
	}
	made, ans, err := s.create(r.Context(), o)
	switch {
	case errors.Is(err, semel.ErrConflict):
		http.Error(w, "the cart has another order", http.StatusUnprocessableEntity)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if ans.Decision == semel.Execute {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(made)
}

// open opens the shop in a database, with the records and its own tables.
func open(ctx context.Context, database string) (s *shop, closeAll func() error, err error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, nil, err
	}
	store, err := pgstore.New(ctx, pool, &pgstore.Options{Migrate: true})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	s = &shop{pool: pool}
	closeAll = func() error {
		pool.Close()
		if s.engine == nil {
			return store.Close()
		}
		return errors.Join(s.engine.Close(context.WithoutCancel(ctx)), store.Close())
	}
	if _, err = pool.Exec(ctx, tables, pgx.QueryExecModeSimpleProtocol); err == nil {
		s.engine, err = semel.New(store, &semel.Options{Operations: []semel.Operation{{Name: "orders.create", Financial: true}}})
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return s, closeAll, nil
}

// serve takes orders until ctx is done.
func serve(ctx context.Context, l net.Listener, database string) (err error) {
	s, closeAll, err := open(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(grace))
}
