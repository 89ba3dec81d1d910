// Command forrst-payments is a service that charges cards over Forrst, each payment
// once, however often it is requested.
//
//	go run ./examples/forrst-payments -demo
package main

import (
	"context"
	"encoding/json"
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

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/forrst"
	"github.com/semelhq/semel/store/pebblestore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "./payments-data", "`directory` of the store")
	demos := flag.Bool("demo", false, "print requests to send, and what the bank charged")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *data, os.Stdout)
	default:
		err = serve(ctx, l, *data, &bank{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bank stands for the bank. It charges every time that somebody asks.
type bank struct {
	mu      sync.Mutex
	charges map[string]int // by order
	// told, if it isn't nil, is called with the id of each charge.
	told func(charge string)
}

func (b *bank) ask(order string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.charges == nil {
		b.charges = map[string]int{}
	}
	b.charges[order]++
	charge := fmt.Sprintf("ch_%s_%d", order, b.charges[order])
	if b.told != nil {
		b.told(charge)
	}
	return charge
}

// charge is the function payments.charge.
func (b *bank) charge(ctx context.Context, x semel.Execution, r *forrst.Request) (any, error) {
	var args struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	if err := json.Unmarshal(r.Arguments, &args); err != nil || args.Order == "" {
		return nil, &forrst.Error{Code: forrst.InvalidArguments, Message: "An order is required", Source: forrst.At("call", "arguments", "order")}
	}
	if args.Amount <= 0 {
		return nil, &forrst.Error{Code: forrst.InvalidArguments, Message: "The amount must be above zero", Source: forrst.At("call", "arguments", "amount")}
	}
	// A crash during the charge holds the call, and nobody asks the bank again.
	charge, err := semel.Effect(ctx, x, "bank", func(context.Context, string) (string, error) { return b.ask(args.Order), nil })
	if err != nil {
		return nil, err
	}
	return map[string]string{"charge_id": charge, "status": "succeeded"}, nil
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
	})
}

// serve runs the service until ctx is done.
func serve(ctx context.Context, l net.Listener, dir string, b *bank) (err error) {
	store, err := pebblestore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, &semel.Options{Events: &semel.Events{
		Troubled: func(e semel.Troubled) { slog.Error("not answered as it should be", "door", e.Door, "error", e.Err) },
	}})
	if err != nil {
		return err
	}
	service, err := payments(engine, b)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/forrst", service)

	// Expired records are removed, and abandoned calls settled, only while this runs.
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { _ = engine.Run(sweeping, 0) }) // which ends because it is stopped

	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// First stop accepting requests, then record the running calls, then stop sweeping, and close
	// the store last.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), service.Close(grace))
	stopSweeping()
	background.Wait()
	return errors.Join(err, engine.Close(grace))
}
