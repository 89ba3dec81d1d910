package datasync_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/store/memstore"
)

// Example changes a user on one side, and has the other side's change come in.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	st := memstore.New()
	defer st.Close()
	engine, err := semel.New(st, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(context.Background())
	database := users{}
	sent := make(chan datasync.Change)
	postToShopify := func(_ context.Context, _ string, body []byte) error {
		c, err := datasync.ParseChange("", body)
		sent <- c
		return err
	}

	// snippet: New
	replica, err := datasync.New(engine, datasync.Options{
		Origin: "semel",
		Apply:  database.write, // UPDATE … WHERE sequence < $1
		Send: func(ctx context.Context, c datasync.Change) error {
			body, err := c.Encode()
			if err != nil {
				return err
			}
			return postToShopify(ctx, c.Key(), body)
		},
	})
	if err != nil {
		panic(err)
	}
	dispatcher, err := dispatch.New(engine, dispatch.Options{Destinations: map[string]dispatch.Destination{
		replica.Destination(): {Sender: dispatch.SenderFunc(func(ctx context.Context, d dispatch.Delivery) error {
			return replica.Work(ctx, d.Message.Payload)
		})},
	}})
	if err != nil {
		panic(err)
	}
	go dispatcher.Run(ctx)
	// end snippet

	// snippet: Put
	ann := datasync.Ref{Entity: "user", ID: "user_12345"}
	state, err := replica.Put(ctx, ann, 1, json.RawMessage(`{"name":"Ann"}`))
	// end snippet
	fmt.Println("version", state.Version, err)
	ours := <-sent
	fmt.Printf("sent %s %s\n", ours.Key(), ours.Content)

	// snippet: Receive
	receive := func(body []byte) (datasync.Outcome, error) {
		c, err := datasync.ParseChange("", body)
		if err != nil {
			return "", err
		}
		return replica.Receive(ctx, c)
	}
	// end snippet
	theirs := ours
	theirs.Origin, theirs.Version, theirs.Time, theirs.Content = "shopify", 2, ours.Time.Add(time.Second), json.RawMessage(`{"name":"Anne"}`)
	for _, c := range []datasync.Change{theirs, theirs, ours} {
		body, _ := c.Encode()
		fmt.Println(receive(body))
	}

	// Output:
	// version 1 <nil>
	// sent sync:user:user_12345:1:semel {"name":"Ann"}
	// applied <nil>
	// duplicate <nil>
	// echo <nil>
}

// users is a database.
type users map[string]datasync.State

// write is called for one state at a time in this example.
func (u users) write(_ context.Context, s datasync.State) error {
	if u[s.ID].Sequence < s.Sequence {
		u[s.ID] = s
	}
	return nil
}
