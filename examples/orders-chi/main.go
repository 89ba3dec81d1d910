// Command orders-chi is a service that takes orders: chi routes the requests, pgx
// writes the rows, and POST /orders makes each order once, however often it is sent.
// Claim, rows and answer commit in one transaction, so a crash at any moment leaves
// all of them or nothing.
//
//	createdb orders
//	go run ./examples/orders-chi -database postgres:///orders -demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store/pgstore"
)

func main() {
	database := flag.String("database", "postgres:///orders", "`URL` of the database")
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	demos := flag.Bool("demo", false, "print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		if *demos {
			demo("http://"+listener.Addr().String(), os.Stdout)
		}
		err = serve(ctx, *database, listener, func(h http.Handler) http.Handler { return h })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs the service until ctx is done. around wraps all handlers.
func serve(ctx context.Context, database string, listener net.Listener, around func(http.Handler) http.Handler) (err error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	store, err := pgstore.New(ctx, pool, &pgstore.Options{Migrate: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, &semel.Options{Events: &semel.Events{
		Troubled: func(e semel.Troubled) { slog.Error("not recorded", "door", e.Door, "error", e.Err) },
	}})
	if err != nil {
		return err
	}
	guard, err := semelhttp.New(engine, &semelhttp.Options{StatusPath: "/semel/status/"})
	if err != nil {
		return err
	}

	// Expired records are removed, and abandoned calls settled, only while this runs.
	sweeping, stopSweeping := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { _ = engine.Run(sweeping, 0) }) // which ends because it is stopped

	server := &http.Server{Handler: around(routes(pool, guard)), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// First stop accepting requests, then record the running calls, then stop sweeping, and close
	// the store last.
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), guard.Close(grace))
	stopSweeping()
	background.Wait()
	return errors.Join(err, engine.Close(grace))
}
