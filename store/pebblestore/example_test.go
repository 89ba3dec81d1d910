package pebblestore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/pebblestore"
)

// What a call did is known after a restart.
func Example() {
	dir, err := os.MkdirTemp("", "pebblestore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	deliver := func(ctx context.Context) error {
		store, err := pebblestore.Open(dir, nil)
		if err != nil {
			return err // another process has the directory, or it is damaged
		}
		defer store.Close()
		engine, err := semel.New(store, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
		if err != nil {
			return err
		}
		defer engine.Close(ctx)
		call := semel.Call{Tenant: "shop", Principal: "alice", Operation: "payments.charge", Key: "order-1"}
		answer, err := engine.Do(ctx, call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("receipt 17")}, nil
		})
		fmt.Println(answer.Decision, string(answer.Record.Result.Data))
		return err
	}
	for range 2 {
		if err := deliver(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// execute receipt 17
	// replay receipt 17
}
