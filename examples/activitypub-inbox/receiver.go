package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/protocol/activitypub"
	"github.com/semelhq/semel/protocol/activitypub/httpsig"
	"github.com/semelhq/semel/store/pebblestore"
)

// here is the server of the inbox, as others know it.
const here = "http://social.example"

// receiver is a server with an inbox, on a directory.
type receiver struct {
	address string
	server  *http.Server
	engine  *semel.Engine
	store   semel.Store
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// start opens the directory and serves. Activities that were taken before and not handled
// are handled now.
func start(dir string, t *tracker) (_ *receiver, err error) {
	r := &receiver{}
	if r.store, err = pebblestore.Open(dir, nil); err != nil {
		return nil, err
	}
	if r.engine, err = semel.New(r.store, nil); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	verifier, err := httpsig.New(httpsig.Options{
		// The other server is on this machine. Elsewhere strangers choose where to fetch
		// from, and private addresses are refused.
		Keys: httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true}),
		Base: &url.URL{Scheme: "http", Host: "social.example"},
	})
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil)) // duplicates are warnings, and there are many
	inbox, err := activitypub.New(r.engine, activitypub.Options{
		Actors: here + "/actors/{actor}", Shared: "/inbox", Tenant: "cases",
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice", nil },
		Verifier: verifier, Types: []string{"Offer", "Accept"}, Log: log,
		Handle: func(ctx context.Context, a *activitypub.Activity) error { return t.handle(ctx, log, a) },
	})
	if err != nil {
		return nil, err
	}
	// A taken activity is a message in the store, which the dispatcher passes to the inbox.
	deliver := func(ctx context.Context, d dispatch.Delivery) error {
		err := inbox.Work(ctx, d.Message.Payload)
		if refused, ok := errors.AsType[*activitypub.Refusal](err); ok {
			return dispatch.Park(string(refused.Code), err)
		}
		return err
	}
	d, err := dispatch.New(r.engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		inbox.Destination(): {
			Sender: dispatch.SenderFunc(deliver),
			// An Accept that comes before its Offer waits for it, which says nothing about
			// the tracker.
			BreakAfter: -1, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, MaxTries: 10_000,
		},
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
	r.address, r.server = l.Addr().String(), &http.Server{Handler: inbox}
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
