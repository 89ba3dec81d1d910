package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/server/api"
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

func ExampleKeyFile() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var keys [2]string
	for life := range keys { // of a program that crashes once
		journal, err := client.OpenKeyFile(filepath.Join(dir, "keys"))
		if err != nil {
			log.Fatal(err)
		}
		if keys[life], err = journal.For("order 42"); err != nil {
			log.Fatal(err)
		}
		_ = journal.Close()
	}
	fmt.Println(keys[0] == keys[1])
	// Output: true
}
