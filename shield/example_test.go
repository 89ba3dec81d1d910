package shield_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store/memstore"
)

// A charge that is made once, however often the call is delivered, and about which
// the provider is asked where its answer was lost.
func Example() {
	charges := map[string]bool{}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges[r.Header.Get("Idempotency-Key")] = true
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	}))
	defer provider.Close()

	client := &shield.Client{Provider: shield.Stripe()}
	engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{
		Name:    "payments.charge",
		Class:   semel.Shielded,
		Shields: []semel.Shield{semel.ShieldProviderKey, semel.ShieldLedger},
		Effects: []string{"charge"}, // and nothing else happens outside
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer engine.Close(ctx)

	for range 2 {
		call := semel.Call{Operation: "payments.charge", Key: "order-1"}
		answer, err := engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			req, err := http.NewRequest(http.MethodPost, provider.URL, strings.NewReader("amount=100"))
			if err != nil {
				return semel.Result{}, semel.Aborted(err)
			}
			charge, err := client.Do(ctx, x, "charge", req)
			if err != nil {
				return semel.Result{}, err
			}
			return semel.Result{Data: charge.Body}, nil
		})
		fmt.Println(answer.Decision, string(answer.Record.Result.Data), err)
	}
	fmt.Println(len(charges), "charge")
	// Output:
	// execute {"id":"ch_1"} <nil>
	// replay {"id":"ch_1"} <nil>
	// 1 charge
}
