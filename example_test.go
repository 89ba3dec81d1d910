package semel_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// Example runs one call twice: the work is done once, and both get its result.
func Example() {
	// snippet: Do
	engine, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "orders.create"}},
	})
	if err != nil {
		panic(err)
	}
	running, stop := context.WithCancel(context.Background())
	defer stop()
	go engine.Run(running, 0) // removes expired records, and settles abandoned calls
	type Order struct{ ID int }
	created := 0
	create := func(ctx context.Context, a semel.Execution) (Order, error) {
		created++
		return Order{ID: 41 + created}, nil
	}
	call := semel.Call{
		Tenant: "acme", Principal: "alice", Operation: "orders.create", Key: "cart-7",
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(`{"item":"lamp"}`)),
	}
	for range 2 {
		order, answer, err := semel.Do(context.Background(), engine, call, create)
		fmt.Println(order.ID, answer.Decision, err)
	}
	fmt.Println("created:", created)
	// end snippet

	// Output:
	// 42 execute <nil>
	// 42 replay <nil>
	// created: 1
}

// Events tell a program what becomes of its calls.
func ExampleEvents() {
	// snippet: Events
	engine, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "orders.create"}},
		Events: &semel.Events{
			Decided: func(e semel.Decided) { fmt.Println(e.ID.Operation, e.Decision) },
			Ended:   func(e semel.Ended) { fmt.Println(e.ID.Operation, e.Disposition, "by the", e.By) },
		},
	})
	// end snippet
	if err != nil {
		panic(err)
	}
	call := semel.Call{Principal: "alice", Operation: "orders.create", Key: "cart-7"}
	for range 2 {
		_, _, _ = semel.Do(context.Background(), engine, call, func(context.Context, semel.Execution) (int, error) { return 42, nil })
	}
	// Output:
	// orders.create execute
	// orders.create completed by the holder
	// orders.create replay
}

// A consumer of a queue makes the message's id the key: a message that is delivered again
// runs nothing, and gives the recorded result.
func ExampleDo() {
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "orders.create"}}})
	if err != nil {
		panic(err)
	}
	type Message struct {
		ID   string
		Body []byte
	}
	orders := 0
	create := func(context.Context, []byte) (int, error) { orders++; return orders, nil }
	// snippet: Consume
	consume := func(ctx context.Context, m Message) (order int, err error) {
		call := semel.Call{
			Principal: "shop", Operation: "orders.create", Key: m.ID,
			Fingerprint: semel.FingerprintOf(semel.SchemeRaw, m.Body),
		}
		order, _, err = semel.Do(ctx, engine, call, func(ctx context.Context, _ semel.Execution) (int, error) {
			return create(ctx, m.Body) // once, however often the queue delivers m
		})
		return order, err
	}
	// end snippet
	for range 3 {
		fmt.Println(consume(context.Background(), Message{"m-1", []byte(`{"item":"lamp"}`)}))
	}
	fmt.Println("orders:", orders)

	// Output:
	// 1 <nil>
	// 1 <nil>
	// 1 <nil>
	// orders: 1
}

// Errors say what the next delivery gets.
func ExampleDo_errors() {
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "charge"}}})
	if err != nil {
		panic(err)
	}
	type Receipt struct{ Number int }
	ctx, tries := context.Background(), 0
	call := semel.Call{Operation: "charge", Key: "order-7"}
	// snippet: Errors
	charge := func(_ context.Context, _ semel.Execution) (Receipt, error) {
		switch tries++; tries {
		case 1: // it began nothing in its ledger, so the next delivery runs
			return Receipt{}, errors.New("connection refused")
		case 2: // proved by hand: the same
			return Receipt{}, semel.Aborted(errors.New("the terminal is off"))
		}
		return Receipt{}, semel.Rejected("card_declined", errors.New("the card is declined")) // for good
	}
	for range 4 {
		_, answer, err := semel.Do(ctx, engine, call, charge)
		var e *semel.Error
		errors.As(err, &e)
		fmt.Println(answer.Decision, e.Code)
	}
	// end snippet

	// A panic proves nothing: the call is held, and the panic goes on.
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		_, _, _ = semel.Do(ctx, engine, semel.Call{Operation: "charge", Key: "order-8"}, func(context.Context, semel.Execution) (Receipt, error) {
			panic("out of paper")
		})
	}()
	_, answer, _ := semel.Do(ctx, engine, semel.Call{Operation: "charge", Key: "order-8"}, charge)
	fmt.Println(answer.Decision)

	// Output:
	// execute aborted
	// execute aborted
	// execute rejected
	// replay rejected
	// recovered: out of paper
	// held
}

// Effect keeps a ledger of calls to the outside: what has a recorded result is
// not called again by a further attempt.
func ExampleEffect() {
	engine, err := semel.New(memstore.New(), &semel.Options{
		Operations: []semel.Operation{{Name: "refund", Effects: []string{"refund", "mail"}}},
	})
	if err != nil {
		panic(err)
	}
	mailServerDown := true
	refund := func(ctx context.Context, a semel.Execution) (string, error) {
		reference, err := semel.Effect(ctx, a, "refund", func(ctx context.Context, key string) (string, error) {
			fmt.Println("the provider refunds, once")
			return "re_1", nil
		})
		if err != nil {
			return "", err
		}
		_, err = semel.Effect(ctx, a, "mail", func(ctx context.Context, key string) (bool, error) {
			if mailServerDown {
				return false, semel.Aborted(errors.New("connection refused"))
			}
			return true, nil
		})
		if err != nil {
			return "", err
		}
		return reference, nil
	}
	call := semel.Call{Operation: "refund", Key: "r-1"}
	_, _, err = semel.Do(context.Background(), engine, call, refund)
	fmt.Println(err)
	mailServerDown = false
	reference, _, err := semel.Do(context.Background(), engine, call, refund)
	fmt.Println(reference, err)

	// Output:
	// the provider refunds, once
	// semel: aborted: connection refused
	// re_1 <nil>
}

// Begin is for doors that answer in a protocol of their own.
func ExampleEngine_Begin() {
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "ship"}}})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	call := semel.Call{Operation: "ship", Key: "parcel-1"}
	first, err := engine.Begin(ctx, call)
	fmt.Println(first.Decision, err)
	second, err := engine.Begin(ctx, call) // while the first is at work
	fmt.Println(second.Decision, second.RetryAfter > 0, err)
	fmt.Println(first.Attempt.Complete(ctx, semel.Result{Data: []byte("shipped")}))
	third, err := engine.Begin(ctx, call)
	fmt.Println(third.Decision, string(third.Record.Result.Data), err)

	// Output:
	// execute <nil>
	// in_flight true <nil>
	// <nil>
	// replay shipped <nil>
}
