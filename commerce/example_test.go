package commerce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/shield"
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
	save(2, "a mug") // too late: 3 ran
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

// snippet: Tell

// settle is the handler of the gateway's webhooks.
func settle(ctx context.Context, payments *commerce.Payments, e *webhook.Event) error {
	var body struct {
		Data struct {
			Object struct {
				Metadata struct{ Reference string } // as Charge gave it to the gateway
			}
		}
	}
	if err := json.Unmarshal(e.Body, &body); err != nil || e.Payment == nil {
		return err
	}
	told := commerce.Told{Reference: body.Data.Object.Metadata.Reference}
	switch e.Payment.On {
	case "authorized", "captured":
		told.Charged.TransactionID = e.Payment.ID
	case "canceled":
		told.Refused = true
	default:
		return nil
	}
	err := payments.Tell(ctx, e.Tenant, told) // after an error the event comes again
	if errors.Is(err, semel.ErrConflict) || errors.Is(err, semel.ErrNotFound) {
		return &webhook.Refusal{Code: "payment_differs", Err: err} // parked: somebody has to look
	}
	return err
}

// end snippet

func ExamplePayments() {
	ctx := context.Background()
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	buyer, decided := commerce.Buyer{Tenant: "acme", User: "user_12345"}, time.Now()
	// snippet: Payment
	client := &http.Client{Transport: shield.ProviderKey(shield.Stripe(), gateway)} // sends the key
	payments, err := commerce.NewPayments(engine, commerce.PaymentOptions{
		Gateway: shield.Stripe(),
		Charge: func(ctx context.Context, c commerce.Charge) (commerce.Charged, error) {
			form := url.Values{"amount": {fmt.Sprint(c.Amount)}, "currency": {c.Currency}, "metadata[reference]": {c.Reference}}
			r, err := http.NewRequestWithContext(ctx, "POST", "https://api.stripe.com/v1/payment_intents", strings.NewReader(form.Encode()))
			if err != nil {
				return commerce.Charged{}, semel.Aborted(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := client.Do(r)
			if err != nil {
				return commerce.Charged{}, err // the gateway may have charged: the payment is held
			}
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusPaymentRequired {
				return commerce.Charged{}, semel.Rejected("declined", errors.New("the card was declined"))
			}
			var intent struct{ ID string } // without one, the payment is held as well
			err = json.NewDecoder(resp.Body).Decode(&intent)
			return commerce.Charged{TransactionID: intent.ID}, err
		},
	})
	if err != nil {
		panic(err)
	}
	done, ans, err := payments.Pay(ctx, commerce.Pay{Buyer: buyer, Order: "order_789", Amount: 2999, Currency: "USD", IntentAt: decided})
	// end snippet
	fmt.Println(done.TransactionID, ans.Decision, err)
	// Output: pi_1 execute <nil>
}

// gateway stands for Stripe.
var gateway = roundTripper(func(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.Header.Get("Idempotency-Key"), "payment:order_789:2999:USD:") {
		return nil, errors.New("the request has no key")
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"id":"pi_1"}`)), Request: r}, nil
})

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
