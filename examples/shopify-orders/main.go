// Command shopify-orders takes the webhooks of a shop, each several times and in any
// order, and enters each order once. Its README says more.
//
//	go run ./examples/shopify-orders -demo
//	go run ./examples/shopify-orders -listen 127.0.0.1:8080 -data ./shop-data -secret shpss_…
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
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/store/pebblestore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "./shop-data", "`directory` of the store")
	secret := flag.String("secret", "", "`secret` of the app, as the shop shows it")
	demos := flag.Bool("demo", false, "play the shop: print webhooks to deliver")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *data, os.Stdout)
	default:
		err = serve(ctx, l, *data, options(*secret, &book{}), door.Log(slog.Default(), slog.LevelInfo))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shopify-orders:", err)
		os.Exit(1)
	}
}

// book is the order book: it stands for a table of your database, with the id of the event
// in a unique column. If the receiver dies after an order is entered and before that is
// recorded, the event comes again.
type book struct {
	mu      sync.Mutex
	seen    map[string]bool // ids of events
	entered []int           // numbers of orders
	// told, if it isn't nil, is called with the number of each order that is entered.
	told func(order int)
}

// enter enters an order.
func (b *book) enter(_ context.Context, e *webhook.Event) error {
	var order struct {
		ID int `json:"id"`
	}
	if err := json.Unmarshal(e.Body, &order); err != nil {
		return &webhook.Refusal{Code: webhook.CodeUnreadable, Err: errors.New("it isn't an order")}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	if !b.seen[e.ID] {
		b.seen[e.ID] = true
		b.entered = append(b.entered, order.ID)
		if b.told != nil {
			b.told(order.ID)
		}
	}
	return nil
}

// options configures the receiver. It verifies signatures, and knows an event by its id, in its
// shop and topic.
func options(secret string, b *book) webhook.Options {
	return webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Secrets: []string{secret}},
		Tenant:          "acme", Handle: b.enter,
	}
}

// serve takes webhooks until ctx is done. Events that were accepted before and not entered
// are entered now.
func serve(ctx context.Context, l net.Listener, dir string, opts webhook.Options, events *semel.Events) (err error) {
	store, err := pebblestore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, &semel.Options{Events: events})
	if err != nil {
		return err
	}
	if opts.Source, err = webhook.Builtin("shopify"); err != nil {
		return err
	}
	hook, err := webhook.New(engine, opts)
	if err != nil {
		return err
	}
	// An accepted event is a message in the store, which the dispatcher passes to the
	// receiver.
	deliver := func(ctx context.Context, d dispatch.Delivery) error {
		err := hook.Work(ctx, d.Message.Payload)
		if refused, ok := errors.AsType[*webhook.Refusal](err); ok {
			return dispatch.Park(string(refused.Code), err)
		}
		return err
	}
	d, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		hook.Destination(): {Sender: dispatch.SenderFunc(deliver)},
	}})
	if err != nil {
		return err
	}
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { _ = d.Run(working) })
	work.Go(func() { _ = engine.Run(working, 0) }) // both end because they are stopped

	server := &http.Server{Handler: hook, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// First stop accepting events, then finish the work, and last close the store.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	stopWork()
	work.Wait()
	return errors.Join(err, engine.Close(grace))
}
