package redisstore_test

import (
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/redisstore"
)

// An engine on a Redis that other programs use too.
func Example() {
	charge := func(ctx context.Context, address string, call semel.Call, provider func(context.Context) ([]byte, error)) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		store, err := redisstore.Open(ctx, address, &redisstore.Options{Prefix: "payments"})
		if err != nil {
			return nil, err // it can't be reached, or may forget what it has acknowledged
		}
		defer store.Close()
		engine, err := semel.New(store, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
		if err != nil {
			return nil, err
		}
		defer engine.Close(context.WithoutCancel(ctx))
		answer, err := engine.Do(ctx, call, func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
			receipt, err := provider(ctx)
			return semel.Result{Data: receipt}, err
		})
		if err != nil {
			return nil, err
		}
		return answer.Record.Result.Data, nil
	}
	_ = charge
}
