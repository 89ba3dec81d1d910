package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/store/memstore"
)

// Example takes a webhook of GitHub twice, and handles it once.
func Example() {
	st := memstore.New()
	defer st.Close()
	engine, err := semel.New(st, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(context.Background())

	// snippet: Webhook
	source, err := webhook.Builtin("github")
	if err != nil {
		fmt.Println(err)
		return
	}
	receiver, err := webhook.New(engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{"mysecret"}},
		Mode:            webhook.Sync,
		Handle: func(_ context.Context, e *webhook.Event) error {
			fmt.Printf("%s %s\n", e.Type, e.Body) // an error lets the sender deliver again
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/hooks/github", receiver)
	// end snippet

	for range 2 {
		delivery, err := os.ReadFile("testdata/deliveries/github.http")
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(delivery)))
		if err != nil {
			fmt.Println(err)
			return
		}
		w := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}

	// Output:
	// push {"foo":"bar"}
	// 200
	// 200
}
