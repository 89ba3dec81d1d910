// Command activitypub-inbox tracks reports that other servers of the fediverse send, each
// activity several times and in any order. Its README says more.
//
//	go run ./examples/activitypub-inbox -demo
//	go run ./examples/activitypub-inbox -listen 127.0.0.1:8080 -data ./inbox-data -url https://social.example
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
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/store/pebblestore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "./inbox-data", "`directory` of the store")
	here := flag.String("url", "https://social.example", "`URL` of this server, as others know it")
	demos := flag.Bool("demo", false, "bring another server, and print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *data, os.Stdout)
	default:
		err = serve(ctx, l, *data, *here, httpsig.KeysOptions{}, &tracker{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "activitypub-inbox:", err)
		os.Exit(1)
	}
}

// The states of a report.
const (
	received = "received"
	valid    = "valid"
)

// tracker is a case tracker: the states of the reports. It stands for a database.
type tracker struct {
	mu      sync.Mutex
	reports map[string]string
	// changed, if it isn't nil, is called after each change with its name, and says whether
	// the database has given an answer.
	changed func(change, report string) error
}

// create inserts a report, unless it is there.
func (t *tracker) create(report string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reports[report] != "" {
		return false, nil
	}
	return true, t.set("created", report, received)
}

// state is that of a report.
func (t *tracker) state(report string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reports[report] == "" {
		return "", errors.New("the report isn't here yet") // its offer is on its way
	}
	return t.reports[report], nil
}

// validate changes the state of a report that is still in the state from.
func (t *tracker) validate(report, from string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is := t.reports[report]; is != from {
		return fmt.Errorf("the report is %s by now", is)
	}
	return t.set("validated", report, valid)
}

func (t *tracker) set(change, report, state string) error {
	if t.reports == nil {
		t.reports = map[string]string{}
	}
	t.reports[report] = state
	if t.changed == nil {
		return nil
	}
	return t.changed(change, report)
}

// handle handles an activity. It looks at the state of the report first, because after a
// crash, or when the answer of the database is lost, it gets the activity again.
func (t *tracker) handle(ctx context.Context, log *slog.Logger, a *activitypub.Activity) error {
	var body struct {
		Object string `json:"object"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return &activitypub.Refusal{Code: "unreadable", Err: err}
	}
	switch a.Type {
	case "Offer":
		create := activitypub.Creation{
			Name:   "create_report",
			Create: func(context.Context) (bool, error) { return t.create(body.Object) },
		}
		return create.Take(ctx, log, a)
	case "Accept":
		validate := activitypub.Step[string]{
			Name: "validate_report", From: []string{received}, To: valid,
			State: func(context.Context) (string, error) { return t.state(body.Object) },
			Apply: func(_ context.Context, from string) error { return t.validate(body.Object, from) },
		}
		return validate.Take(ctx, log, a)
	}
	return nil
}

// serve has the inbox of alice, and the shared one, until ctx is done. Activities that were
// accepted before and not handled are handled now.
func serve(ctx context.Context, l net.Listener, dir, here string, keys httpsig.KeysOptions, t *tracker) (err error) {
	store, err := pebblestore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, nil)
	if err != nil {
		return err
	}
	inbox, err := open(engine, here, keys, t)
	if err != nil {
		return err
	}
	// An accepted activity is a message in the store, which the dispatcher passes to the
	// inbox.
	deliver := func(ctx context.Context, d dispatch.Delivery) error {
		err := inbox.Work(ctx, d.Message.Payload)
		if refused, ok := errors.AsType[*activitypub.Refusal](err); ok {
			return dispatch.Park(string(refused.Code), err)
		}
		return err
	}
	d, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		inbox.Destination(): {
			Sender: dispatch.SenderFunc(deliver),
			// An Accept that comes before its Offer waits for it, which says nothing about
			// the tracker.
			BreakAfter: -1, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, MaxTries: 10_000,
		},
	}})
	if err != nil {
		return err
	}
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { _ = d.Run(working) })
	work.Go(func() { _ = engine.Run(working, 0) }) // both end because they are stopped

	// First stop accepting activities, then finish the work, and last close the store.
	err = accept(ctx, l, inbox)
	stopWork()
	work.Wait()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, engine.Close(grace))
}

// open makes the inboxes at the address here.
func open(engine *semel.Engine, here string, keys httpsig.KeysOptions, t *tracker) (*activitypub.Inbox, error) {
	base, err := url.Parse(here)
	if err != nil {
		return nil, err
	}
	verifier, err := httpsig.New(httpsig.Options{Keys: httpsig.NewKeys(keys), Base: base})
	if err != nil {
		return nil, err
	}
	return activitypub.New(engine, activitypub.Options{
		Actors: here + "/actors/{actor}", Shared: "/inbox", Tenant: "cases",
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice", nil },
		Verifier: verifier, Types: []string{"Offer", "Accept"},
		Handle: func(ctx context.Context, a *activitypub.Activity) error {
			return t.handle(ctx, slog.New(slog.DiscardHandler), a)
		}, // duplicates are warnings, and there are many
	})
}

// accept serves the inbox until ctx ends, and lets its requests end.
func accept(ctx context.Context, l net.Listener, inbox http.Handler) (err error) {
	server := &http.Server{Handler: inbox, ReadHeaderTimeout: 5 * time.Second}
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
