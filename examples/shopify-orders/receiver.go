package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/store/pebblestore"
)

// secret is that of the app, as the shop shows it.
const secret = "shpss_0123456789abcdef0123456789abcdef"

// book is the order book. It does nothing against orders that come twice: that is what
// the receiver is for.
type book struct {
	mu      sync.Mutex
	entered map[int]int // how often, by the number of the order
	seen    map[string]bool
}

// enter enters an order. The id of the event is kept with it, as it would be in a unique
// column of its table: after a crash of the receiver an event may come again.
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
		b.entered[order.ID]++
	}
	return nil
}

func (b *book) count() (entered, twice int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.entered {
		if entered++; n > 1 {
			twice++
		}
	}
	return entered, twice
}

// receiver is a server that takes the webhooks of the shop, on a directory.
type receiver struct {
	url    string
	server *http.Server
	engine *semel.Engine
	store  semel.Store
	stop   context.CancelFunc
	work   sync.WaitGroup
}

// start opens the directory and serves. Events that were taken before and not entered are
// entered now.
func start(dir string, b *book, seen func(webhook.Seen)) (_ *receiver, err error) {
	r := &receiver{}
	if r.store, err = pebblestore.Open(dir, nil); err != nil {
		return nil, err
	}
	if r.engine, err = semel.New(r.store, nil); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	source, err := webhook.Builtin("shopify")
	if err != nil {
		return nil, err
	}
	hook, err := webhook.New(r.engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{secret}},
		Tenant:          "acme", Handle: b.enter, Seen: seen,
	})
	if err != nil {
		return nil, err
	}
	// A taken event is a message in the store, which the dispatcher passes to the receiver.
	deliver := func(ctx context.Context, d dispatch.Delivery) error {
		err := hook.Work(ctx, d.Message.Payload)
		if refused, ok := errors.AsType[*webhook.Refusal](err); ok {
			return dispatch.Park(string(refused.Code), err)
		}
		return err
	}
	d, err := dispatch.New(r.engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		hook.Destination(): {Sender: dispatch.SenderFunc(deliver)},
	}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.url, r.server = "http://"+l.Addr().String(), &http.Server{Handler: hook}
	r.work.Go(func() { _ = r.server.Serve(l) })
	r.work.Go(func() { _ = d.Run(ctx) })
	r.work.Go(func() { _ = r.engine.Run(ctx, 0) })
	return r, nil
}

// close ends the receiver in the middle of what it does.
func (r *receiver) close() error {
	err := r.server.Close() // which waits for nobody
	r.stop()
	r.work.Wait()
	return errors.Join(err, r.engine.Close(context.Background()), r.store.Close())
}
