// Command forrst-payments is a service that charges cards over Forrst, each payment
// once, however often it is requested.
//
//	go run ./examples/forrst-payments
//	go run ./examples/forrst-payments -listen 127.0.0.1:8080 -data ./payments-data
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/forrst"
	"github.com/semelhq/semel/store/pebblestore"
)

func main() {
	address := flag.String("listen", "", "`address` to serve on; without one a storm of requests is played")
	data := flag.String("data", "./payments-data", "`directory` of the store")
	payments := flag.Int("payments", 200, "payments in the storm")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *address == "" {
		err = storm(ctx, os.Stdout, *payments)
	} else {
		err = listen(ctx, *address, *data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func listen(ctx context.Context, address, data string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return serve(ctx, listener, data, &bank{})
}

// storm plays against a service of its own, whose store is removed afterwards.
func storm(ctx context.Context, out io.Writer, payments int) error {
	dir, err := os.MkdirTemp("", "forrst-payments-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	b := &bank{}
	go func() { ended <- serve(serving, listener, dir, b) }()
	err = play(ctx, out, "http://"+listener.Addr().String()+"/forrst", payments, b)
	stop()
	return errors.Join(err, <-ended)
}

// serve runs the service until ctx is done.
func serve(ctx context.Context, listener net.Listener, dir string, b *bank) (err error) {
	store, err := pebblestore.Open(dir, nil)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, nil)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	service, err := payments(engine, b)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/forrst", service)

	// Expired records are removed, and abandoned calls settled, only while this runs.
	sweeping, stopSweeping := context.WithCancel(context.Background())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		_ = engine.Run(sweeping, 0) // which ends because it is stopped
	}()

	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// First stop accepting requests, then record what is under way, then stop sweeping,
	// and last close the store.
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), service.Close(grace))
	stopSweeping()
	<-swept
	return errors.Join(err, engine.Close(grace))
}

// payments is the service with its one function.
func payments(engine *semel.Engine, b *bank) (*forrst.Service, error) {
	return forrst.New(engine, forrst.Options{
		Service: "payments-api",
		Functions: []forrst.Function{{
			Name: "payments.charge", Description: "Charges a card", SideEffects: []string{"create"},
			// Nothing but the bank is called, and that in the ledger: a call that
			// a crash has cut off before may run again.
			Operation: semel.Operation{Name: "payments.charge", Financial: true, Effects: []string{"bank"}},
			Versions:  []forrst.Version{{Version: "1.0.0", Run: b.charge}},
		}},
		OnError: func(_ context.Context, err error) { slog.Error("not answered as it should be", "error", err) },
	})
}
