package commerce_test

import (
	"context"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/commerce"
	"github.com/semelhq/semel/store/memstore"
)

func ExampleFormat_Key() {
	// snippet: CartMandate
	hash, err := commerce.CartHash([]commerce.Line{
		{Variant: "shirt-m", Quantity: 2, Price: "19.90"},
		{Variant: "mug", Quantity: 1, Price: "7.50"},
	})
	if err != nil {
		panic(err)
	}
	key, err := commerce.CartMandate.Key(commerce.Values{"session_id": "sess_abc123", "cart_hash": hash})
	if err != nil {
		panic(err)
	}
	call := semel.Call{Operation: "carts.mandate"}
	key.Name(&call) // the key, and the session as its scope
	// end snippet
	fmt.Println(call.Key[:27], call.Scope)
	// Output: cart_mandate:sess_abc123:16 session=sess_abc123
}

func ExampleUpdates() {
	ctx := context.Background()
	// snippet: Update
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{commerce.Updates("sessions.update")}})
	if err != nil {
		panic(err)
	}
	save := func(number uint64, cart string) {
		call := semel.Call{Operation: "sessions.update"}
		if err := (commerce.Update{Session: "sess_abc123", Type: "save_cart", Number: number}).Name(&call); err != nil {
			panic(err)
		}
		saved, ans, err := semel.Do(ctx, engine, call, func(context.Context, semel.Execution) (string, error) {
			return cart, nil // write it to your database here
		})
		fmt.Println(number, ans.Decision, saved, err)
	}
	save(1, "a shirt")
	save(3, "a shirt and a mug")
	save(2, "a mug") // too late: 3 was begun
	save(1, "a shirt")
	// end snippet
	// Output:
	// 1 execute a shirt <nil>
	// 3 execute a shirt and a mug <nil>
	// 2 superseded  number 3 of the sequence was begun, so none below it begins any more
	// 1 replay a shirt <nil>
}

func ExampleOrders() {
	ctx := context.Background()
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	sign := func(_ context.Context, m commerce.Mandate) ([]byte, error) { return []byte("signed"), nil }

	// snippet: Order
	mandates, err := commerce.NewMandates(engine, commerce.MandateOptions{})
	if err != nil {
		panic(err)
	}
	orders, err := commerce.NewOrders(mandates, semel.Operation{})
	if err != nil {
		panic(err)
	}
	cart, err := commerce.ParseCart([]byte(`{"currency": "USD", "lines": [{"variant": "shirt-m", "quantity": 2, "price": "19.90"}]}`))
	if err != nil {
		panic(err)
	}
	buyer := commerce.Buyer{Tenant: "acme", User: "user_12345"}
	mandate, err := mandates.Cart(ctx, buyer, "sess_abc123", cart, sign) // sign makes what the mandate consists of
	if err != nil {
		panic(err)
	}
	ans, err := orders.Place(ctx, buyer, mandate.ID, func(ctx context.Context, x semel.Execution, m commerce.Mandate) (semel.Result, error) {
		return semel.Result{Data: []byte("order_789")}, nil // insert the order here
	})
	// end snippet
	if err != nil {
		panic(err)
	}
	same, err := mandates.Cart(ctx, buyer, "sess_abc123", cart, sign)
	again, err2 := orders.Place(ctx, buyer, same.ID, nil)
	fmt.Println(ans.Decision, string(again.Record.Result.Data), again.Decision, err, err2)
	// Output: execute order_789 replay <nil> <nil>
}
