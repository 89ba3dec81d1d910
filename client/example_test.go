package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/memstore"
)

// serve is a service as "semel serve" runs one.
func serve() (address string, stop func()) {
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		log.Fatal(err)
	}
	a, err := api.New(api.Options{Engine: engine, Identify: func(*http.Request) (api.Caller, error) {
		return api.Caller{Tenant: "acme", Principal: "shop"}, nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(a.Data())
	return srv.URL, srv.Close
}

func ExampleClient_Do() {
	address, stop := serve()
	defer stop()
	c, err := client.New(address, nil)
	if err != nil {
		log.Fatal(err)
	}
	charge := func(ctx context.Context, x semel.Execution) (string, error) {
		return semel.Effect(ctx, x, "charge", func(ctx context.Context, effectKey string) (string, error) {
			fmt.Println("the provider is called")
			return "ch_1", nil
		})
	}
	for range 2 {
		id, ans, err := semel.Do(context.Background(), c, semel.Call{Operation: "payments.charge", Key: "order-42"}, charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ans.Decision, id)
	}
	// Output:
	// the provider is called
	// execute ch_1
	// replay ch_1
}
