// Command agent-checkout is a shop's agent that checks carts out for other agents over A2A: it
// takes the payment at a gateway and places the order, each once. Its README says more.
//
//	createdb shop
//	go run ./examples/agent-checkout -database postgres:///shop -demo
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/a2a"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store/pgstore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	database := flag.String("database", "postgres:///shop", "`URL` of the database")
	gateway := flag.String("gateway", "", "`URL` of the payment gateway")
	demos := flag.Bool("demo", false, "bring a gateway, and print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *database, os.Stdout)
	default:
		err = serve(ctx, l, *database, *gateway)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent-checkout:", err)
		os.Exit(1)
	}
}

const (
	tenant = "acme"
	secret = "shpss_0123456789abcdef" // of the webhooks
	lease  = time.Second              // how long until somebody else continues a killed agent's work
	// One agent after the other makes the table.
	table = `SELECT pg_advisory_xact_lock(7);
	CREATE TABLE IF NOT EXISTS orders (
		id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		mandate     text NOT NULL UNIQUE,
		transaction text NOT NULL,
		cents       bigint NOT NULL)`
)

// checkout is what a message asks for. The buyer's agent decides to pay once, and keeps when.
type checkout struct {
	ID        string    `json:"id"` // of the cart
	User      string    `json:"user"`
	Mugs      int64     `json:"mugs"`
	DecidedAt time.Time `json:"decided_at"`
}

// receipt is the answer.
type receipt struct {
	Order       int64  `json:"order"`
	Transaction string `json:"transaction"`
}

// shop is an agent.
type shop struct {
	engine   *semel.Engine
	pool     *pgxpool.Pool
	mandates *commerce.Mandates
	payments *commerce.Payments
	orders   *commerce.Orders
	gateway  string
	client   *http.Client
}

// checkOut is the work of a message. Each of its steps is done once for the cart, so all of it
// may run again: after a crash, or for another message about the same cart.
//
// A crash leaves a mandate without a payment, a payment that may be held, or one without an
// order. The message is then taken up by its next delivery, and goes on from there.
func (s *shop) checkOut(ctx context.Context, c checkout) (r receipt, err error) {
	buyer := commerce.Buyer{Tenant: tenant, User: c.User} // whom you have authenticated
	cart := commerce.Cart{Currency: "USD", Lines: []commerce.Line{{Variant: "mug", Quantity: c.Mugs, Price: "12.50"}}}
	mandate, err := s.mandates.Cart(ctx, buyer, c.ID, cart, nil)
	if err != nil {
		return r, err
	}
	pay := commerce.Pay{Buyer: buyer, Order: c.ID, Amount: 1250 * c.Mugs, Currency: cart.Currency, IntentAt: c.DecidedAt, Mandate: mandate.ID}
	paid, _, err := s.payments.Pay(ctx, pay)
	if err != nil {
		return r, err
	}
	// A paid cart is ordered even if the mandate has ended since.
	call, err := s.orders.Call(buyer, mandate.ID)
	if err != nil {
		return r, err
	}
	call.Wait = 5 * time.Second
	ans, err := pgstore.Do(ctx, s.engine, s.pool, call, func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
		made := receipt{Transaction: paid.TransactionID}
		if err := tx.QueryRow(ctx, insert, mandate.ID, made.Transaction, pay.Amount).Scan(&made.Order); err != nil {
			return semel.Result{}, err
		}
		data, err := json.Marshal(made)
		return semel.Result{Data: data}, err
	})
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(ans.Record.Result.Data, &r)
}

const insert = "INSERT INTO orders (mandate, transaction, cents) VALUES ($1, $2, $3) RETURNING id"

// charge asks the gateway to charge. Its errors prove nothing, so they hold the payment.
func (s *shop) charge(ctx context.Context, c commerce.Charge) (done commerce.Charged, err error) {
	form := url.Values{"amount": {fmt.Sprint(c.Amount)}, "currency": {c.Currency}, "reference": {c.Reference}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateway, strings.NewReader(form.Encode()))
	if err != nil {
		return done, semel.Aborted(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return done, s.do(r, &done)
}

// ask asks the gateway about a payment that is held. It remembers keys, so a charge that it
// doesn't know may be asked for again.
func (s *shop) ask(ctx context.Context, key string) (told commerce.Told, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.gateway+"?key="+url.QueryEscape(key), nil)
	if err == nil {
		err = s.do(r, &told.Charged)
	}
	told.Refused = told.Charged.TransactionID == ""
	return told, err
}

func (s *shop) do(r *http.Request, answer *commerce.Charged) error {
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// confirm takes the webhook of a payment. It leads to the payment's record, and settles it if
// the gateway's answer was lost. After an error the webhook comes again.
func (s *shop) confirm(ctx context.Context, e *webhook.Event) error {
	var event struct{ ID, Reference string }
	if err := json.Unmarshal(e.Body, &event); err != nil {
		return err
	}
	err := s.payments.Tell(ctx, e.Tenant, commerce.Told{Reference: event.Reference, Charged: commerce.Charged{TransactionID: event.ID}})
	if errors.Is(err, semel.ErrConflict) || errors.Is(err, semel.ErrNotFound) {
		return &webhook.Refusal{Code: "payment_differs", Err: err} // somebody has to look
	}
	return err
}

// Execute implements [a2asrv.AgentExecutor].
func (s *shop) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return answer(ctx, x, s.checkOut)
}

// answer answers a message with the receipt of its checkout.
func answer(ctx context.Context, x *a2asrv.ExecutorContext, checkOut func(context.Context, checkout) (receipt, error)) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) {
		var c checkout
		var r receipt
		text, err := json.Marshal(x.Message.Parts[0].Data())
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err == nil {
			r, err = checkOut(ctx, c)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		yield(sdk.NewMessage(sdk.MessageRoleAgent, sdk.NewDataPart(r)), nil)
	}
}

// Cancel implements [a2asrv.AgentExecutor]. A checkout has no task that could be cancelled.
func (s *shop) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[sdk.Event, error] {
	return func(yield func(sdk.Event, error) bool) { yield(nil, sdk.ErrTaskNotCancelable) }
}

// handler is what an agent serves: messages at /a2a, and webhooks at /webhooks.
func (s *shop) handler(runner *door.Runner) (http.Handler, error) {
	messages, err := a2a.Wrap(s.engine, a2asrv.NewHandler(s), a2a.Options{Runner: runner, Operation: semel.Operation{
		Name: "agent.messages", Lease: lease, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned,
	}})
	if err != nil {
		return nil, err
	}
	s.mandates, err = commerce.NewMandates(s.engine, commerce.MandateOptions{Lease: lease})
	if err != nil {
		return nil, err
	}
	s.orders, err = commerce.NewOrders(s.mandates, semel.Operation{Financial: true})
	if err != nil {
		return nil, err
	}
	s.payments, err = commerce.NewPayments(s.engine, commerce.PaymentOptions{
		Gateway: shield.Stripe(), Charge: s.charge, Ask: s.ask, Mandates: s.mandates,
		Operation: semel.Operation{Lease: lease, ReconcileEvery: lease, InFlight: semel.WaitInFlight},
	})
	if err != nil {
		return nil, err
	}
	source, err := webhook.Builtin("shopify")
	if err != nil {
		return nil, err
	}
	hooks, err := webhook.New(s.engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{secret}},
		Tenant:          tenant, Mode: webhook.Sync, Handle: s.confirm, Lease: lease, OnAbandoned: semel.RetryAbandoned,
	})
	mux := http.NewServeMux()
	mux.Handle("/a2a", a2asrv.NewJSONRPCHandler(messages))
	mux.Handle("/webhooks", hooks)
	return mux, err
}

// connect connects to the shop's database, and makes its table.
func connect(ctx context.Context, database string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, table, pgx.QueryExecModeSimpleProtocol); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// serve is the agent until ctx is done.
func serve(ctx context.Context, l net.Listener, database, gateway string) (err error) {
	slog.SetLogLoggerLevel(slog.LevelError) // the SDK warns of each message that has to come again
	pool, err := connect(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(ctx, pool, &pgstore.Options{Migrate: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, nil)
	if err != nil {
		return err
	}
	s := &shop{engine: engine, pool: pool, gateway: gateway, client: &http.Client{Transport: shield.ProviderKey(shield.Stripe(), nil)}}
	runner := door.NewRunner(engine)
	handler, err := s.handler(runner)
	if err != nil {
		return err
	}
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { _ = engine.Run(working, 0) }) // which ends because it is stopped
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace), runner.Close(grace))
	stopWork()
	work.Wait()
	return errors.Join(err, engine.Close(grace))
}
