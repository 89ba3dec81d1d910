package dispatch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store/memstore"
)

func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{
		{Name: "orders.place", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldOutbox}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	// snippet: Dispatch
	mail := dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error {
		fmt.Printf("mail: %s\n", d.Message.Payload) // deduplicate by d.Message.ID
		stop()
		return nil
	})
	d, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		"mail": {Sender: mail, Concurrency: 4, MaxTries: 20},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := semel.Call{Operation: "orders.place", Key: "order-1"}
	_, err = engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		// Sent if the call completes, and only then.
		err := semel.Send(x, semel.Message{Name: "thanks", Destination: "mail", Order: "customer-7", Payload: []byte("thank you")})
		return semel.Result{}, err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = d.Run(ctx) // until ctx is done
	// end snippet

	// Output: mail: thank you
}
