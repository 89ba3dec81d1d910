package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

func Example() {
	store := memstore.New()
	defer store.Close()
	engine, err := semel.New(store, &semel.Options{
		Operations: []semel.Operation{{Name: "payments.charge"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer engine.Close(ctx)

	// The same call is delivered twice; the charge is made once.
	for range 2 {
		call := semel.Call{Tenant: "shop", Principal: "alice", Operation: "payments.charge", Key: "order-1"}
		answer, err := engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			fmt.Println("charging")
			return semel.Result{Data: []byte("receipt 17")}, nil
		})
		fmt.Println(answer.Decision, string(answer.Record.Result.Data), err)
	}
	// Output:
	// charging
	// execute receipt 17 <nil>
	// replay receipt 17 <nil>
}

// A test moves the store's clock instead of waiting until a window ends.
func ExampleStore_Advance() {
	store := memstore.New()
	defer store.Close()
	engine, err := semel.New(store, &semel.Options{
		Operations: []semel.Operation{{Name: "mail.send", Window: time.Hour}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer engine.Close(ctx)

	deliver := func() {
		call := semel.Call{Operation: "mail.send", Key: "welcome/42"}
		answer, err := engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("sent")}, nil
		})
		fmt.Println(answer.Decision, err)
	}
	deliver()
	store.Advance(59 * time.Minute)
	deliver()
	store.Advance(time.Minute)
	deliver()
	// Output:
	// execute <nil>
	// replay <nil>
	// execute <nil>
}
