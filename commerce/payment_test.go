package commerce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/shield"
	"github.com/semelhq/semel/store"
)

// till is a gateway whose charges do what a test wants.
type till struct {
	*commerce.Payments
	charge func(c commerce.Charge) (commerce.Charged, error)
	keys   []string // that it was charged with
}

func newTill(t *testing.T, engine *semel.Engine, m *commerce.Mandates) *till {
	t.Helper()
	till := &till{charge: func(commerce.Charge) (commerce.Charged, error) { return commerce.Charged{TransactionID: "pi_1"}, nil }}
	var err error
	till.Payments, err = commerce.NewPayments(engine, commerce.PaymentOptions{Gateway: shield.Stripe(), Mandates: m, Charge: func(_ context.Context, c commerce.Charge) (commerce.Charged, error) {
		till.keys = append(till.keys, c.Key)
		return till.charge(c)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return till
}

// payment is one that was decided on now.
func payment() commerce.Pay {
	return commerce.Pay{Buyer: alice, Order: "order:789", Amount: 2999, Currency: "USD", IntentAt: time.Now()}
}

// recordOf is the one record of payments.
func recordOf(t *testing.T, engine *semel.Engine) *semel.Record {
	t.Helper()
	page, err := engine.Search(t.Context(), store.Query{Operation: "commerce.payment"})
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("%d records, %v", len(page.Records), err)
	}
	return &page.Records[0]
}

// TestGatewaysGetTheKey: requests to a gateway carry the key of the payment, or one that is
// derived from it alone, in all tries.
func TestGatewaysGetTheKey(t *testing.T) {
	clause.Proves(t, "MAP-PAY.1")
	for _, gateway := range []shield.Provider{shield.Stripe(), shield.Adyen(), shield.UCP()} {
		for _, order := range []string{"order_789", strings.Repeat("long", 30)} {
			t.Run(gateway.Name+" "+order[:5], func(t *testing.T) {
				var got []string
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if got = append(got, r.Header.Get("Idempotency-Key")); len(got) == 1 {
						w.WriteHeader(http.StatusTooManyRequests)
						return
					}
					fmt.Fprint(w, `{"id":"tx_1"}`)
				}))
				defer server.Close()
				client := &http.Client{Transport: shield.ProviderKey(gateway, nil)}
				charge := func(ctx context.Context, c commerce.Charge) (commerce.Charged, error) {
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(c.Reference))
					if err != nil {
						return commerce.Charged{}, err
					}
					resp, err := client.Do(r)
					if err != nil {
						return commerce.Charged{}, err
					}
					defer resp.Body.Close()
					if c.Key != got[len(got)-1] {
						t.Errorf("the charge is told the key %s, the gateway got %s", c.Key, got[len(got)-1])
					}
					if resp.StatusCode == http.StatusTooManyRequests {
						return commerce.Charged{}, semel.Aborted(errors.New("too many"))
					}
					var done struct{ ID string }
					err = json.NewDecoder(resp.Body).Decode(&done)
					return commerce.Charged{TransactionID: done.ID}, err
				}
				pay := payment()
				pay.Order = order
				key := fmt.Sprintf("payment:%s:2999:USD:%d", order, pay.IntentAt.Unix())
				payments, err := commerce.NewPayments(newEngine(t), commerce.PaymentOptions{Gateway: gateway, Charge: charge})
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := payments.Pay(t.Context(), pay); !errors.Is(err, &semel.Error{Code: semel.CodeAborted}) {
					t.Fatal(err)
				}
				for range 2 {
					if done, _, err := payments.Pay(t.Context(), pay); err != nil || done.TransactionID != "tx_1" {
						t.Fatalf("%+v, %v", done, err)
					}
				}
				if len(got) != 2 || got[0] != got[1] || got[0] != gateway.Key(key) || len(got[0]) > gateway.MaxKey && gateway.MaxKey > 0 {
					t.Errorf("the gateway got %q", got)
				}
				if gateway.Name == "Stripe" && got[0] != key {
					t.Errorf("Stripe got %s, not the key of the payment", got[0])
				}
			})
		}
	}
}

// TestTransactionIsKept: the gateway's transaction is written with the outcome, and finds it.
func TestTransactionIsKept(t *testing.T) {
	clause.Proves(t, "MAP-PAY.2")
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		till := newTill(t, engine, m)
		pay := payment()
		first, ans, err := till.Pay(t.Context(), pay)
		again, _, err2 := till.Pay(t.Context(), pay)
		if err != nil || err2 != nil || first.TransactionID != "pi_1" || again.TransactionID != "pi_1" || len(till.keys) != 1 {
			t.Errorf("%+v, %v; again %+v, %v", first, err, again, err2)
		}
		if ans.Record.Attributes["transaction_id"] != "pi_1" || ans.Record.ExpiresAt.Sub(ans.Record.EndedAt) != 7*24*time.Hour {
			t.Errorf("the record is %+v", ans.Record)
		}
		page, err := engine.Search(t.Context(), store.Query{Attributes: store.Attributes{store.AttributeTransactionID: "pi_1"}})
		if err != nil || len(page.Records) != 1 || page.Records[0].Attributes["order_id"] != "order:789" || page.Records[0].Attributes["amount"] != "2999" {
			t.Errorf("found %+v, %v", page.Records, err)
		}
		other := pay
		other.Buyer.User = "bob"
		if _, _, err := till.Pay(t.Context(), other); !errors.Is(err, semel.ErrConflict) {
			t.Errorf("another user gets the answer: %v", err)
		}
		pass(8 * 24 * time.Hour)
		if _, _, err := till.Pay(t.Context(), pay); !errors.Is(err, &semel.Error{Code: semel.CodeTooLate}) || len(till.keys) != 1 {
			t.Errorf("after the window: %v, charged %d times", err, len(till.keys))
		}
	})
}

// TestPaymentNeedsItsMandate: an expired mandate isn't paid, unless the charge had begun.
func TestPaymentNeedsItsMandate(t *testing.T) {
	clause.Proves(t, "MAP-CART.4")
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		till := newTill(t, engine, m)
		pay := payment()
		pay.Mandate = made(t, m, alice, "s1", cart).ID
		pass(30 * time.Minute)
		for range 2 {
			if _, _, err := till.Pay(t.Context(), pay); !errors.Is(err, commerce.ErrMandateExpired) || len(till.keys) != 0 {
				t.Errorf("%v, charged %v", err, till.keys)
			}
		}
		pay = payment()
		pay.Mandate = made(t, m, alice, "s1", cart).ID
		if _, _, err := till.Pay(t.Context(), pay); err != nil {
			t.Error(err)
		}
	})
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		till := newTill(t, engine, m)
		pay := payment()
		pay.Mandate = made(t, m, alice, "s1", cart).ID
		till.charge = func(c commerce.Charge) (commerce.Charged, error) {
			if string(c.Signed) != "signed "+pay.Mandate {
				t.Errorf("the gateway gets %s", c.Signed)
			}
			return commerce.Charged{}, semel.Unknown(errors.New("no answer"))
		}
		if _, _, err := till.Pay(t.Context(), pay); !errors.Is(err, semel.ErrUnknown) {
			t.Error(err)
		}
		pass(time.Hour)
		rec := recordOf(t, engine)
		// An operator has found the charge at the gateway, and the call goes on.
		done, _ := json.Marshal(commerce.Charged{TransactionID: "pi_9"})
		if _, err := engine.Settle(t.Context(), rec.ID, semel.Settlement{Effects: []store.EffectFinding{{Name: "charge", State: store.EffectConfirmed, Result: semel.Result{Data: done}}}}, "seen"); err != nil {
			t.Fatal(err)
		}
		if got, _, err := till.Pay(t.Context(), pay); err != nil || got.TransactionID != "pi_9" || len(till.keys) != 1 {
			t.Errorf("%+v, %v, charged %d times", got, err, len(till.keys))
		}
	})
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		till := newTill(t, engine, m)
		pay := payment()
		pay.Mandate = made(t, m, alice, "s1", cart).ID
		till.charge = func(commerce.Charge) (commerce.Charged, error) {
			return commerce.Charged{}, semel.Aborted(errors.New("too many requests"))
		}
		_, _, _ = till.Pay(t.Context(), pay)
		pass(30 * time.Minute)
		if _, _, err := till.Pay(t.Context(), pay); !errors.Is(err, commerce.ErrMandateExpired) || len(till.keys) != 1 {
			t.Errorf("what proved to have done nothing goes on after the mandate: %v", err)
		}
	})
}

// TestTell: whichever speaks first, the answer of the gateway or its webhook, a payment is
// one record.
func TestTell(t *testing.T) {
	clause.Proves(t, "MAP-PAY.2")
	paid := func(reference, transaction string) commerce.Told {
		return commerce.Told{Reference: reference, Charged: commerce.Charged{TransactionID: transaction}}
	}
	reference := func(p commerce.Pay) string { return fmt.Sprintf("payment:order%%3A789:2999:USD:%d", p.IntentAt.Unix()) }
	want := func(t *testing.T, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	lost := func(commerce.Charge) (commerce.Charged, error) { return commerce.Charged{}, errors.New("no answer") }
	t.Run("the webhook comes before the answer", func(t *testing.T) {
		in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
			till := newTill(t, engine, m)
			pay := payment()
			goOn := make(chan struct{})
			till.charge = func(commerce.Charge) (commerce.Charged, error) {
				<-goOn
				return commerce.Charged{TransactionID: "pi_1"}, nil
			}
			var group sync.WaitGroup
			group.Go(func() {
				if _, _, err := till.Pay(context.Background(), pay); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			want(t, till.Tell(t.Context(), "acme", paid(reference(pay), "pi_1")), semel.ErrInFlight)
			close(goOn)
			group.Wait()
			want(t, till.Tell(t.Context(), "acme", paid(reference(pay), "pi_1")), nil)
			want(t, till.Tell(t.Context(), "acme", paid(reference(pay), "pi_2")), semel.ErrConflict)
			want(t, till.Tell(t.Context(), "acme", commerce.Told{Reference: reference(pay), Refused: true}), semel.ErrConflict)
			if rec := recordOf(t, engine); rec.Attributes["transaction_id"] != "pi_1" {
				t.Errorf("%+v", rec)
			}
		})
	})
	t.Run("the answer is lost", func(t *testing.T) {
		in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
			till := newTill(t, engine, m)
			till.charge = lost
			pay := payment()
			_, _, err := till.Pay(t.Context(), pay)
			want(t, err, semel.ErrUnknown)
			for range 2 {
				want(t, till.Tell(t.Context(), "acme", paid(reference(pay), "pi_1")), nil)
			}
			got, ans, err := till.Pay(t.Context(), pay)
			if err != nil || got.TransactionID != "pi_1" || ans.Decision != semel.Replay || len(till.keys) != 1 {
				t.Errorf("%+v, %v, charged %d times", got, err, len(till.keys))
			}
			if rec := recordOf(t, engine); rec.Attributes["transaction_id"] != "pi_1" || rec.State != semel.Completed || rec.Settled.Who != "Stripe" {
				t.Errorf("%+v", rec)
			}
		})
	})
	t.Run("the process dies while it waits for the answer", func(t *testing.T) {
		in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
			till := newTill(t, engine, m)
			till.charge = func(commerce.Charge) (commerce.Charged, error) { panic("crash") }
			pay := payment()
			func() {
				defer func() { _ = recover() }()
				_, _, _ = till.Pay(t.Context(), pay)
			}()
			want(t, till.Tell(t.Context(), "acme", paid(reference(pay), "pi_1")), nil)
			if got, _, err := till.Pay(t.Context(), pay); err != nil || got.TransactionID != "pi_1" || len(till.keys) != 1 {
				t.Errorf("%+v, %v, charged %d times", got, err, len(till.keys))
			}
		})
	})
	t.Run("the gateway has refused", func(t *testing.T) {
		in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
			till := newTill(t, engine, m)
			till.charge = lost
			pay := payment()
			_, _, _ = till.Pay(t.Context(), pay)
			for range 2 {
				want(t, till.Tell(t.Context(), "acme", commerce.Told{Reference: reference(pay), Refused: true}), nil)
			}
			till.charge = func(commerce.Charge) (commerce.Charged, error) { return commerce.Charged{TransactionID: "pi_2"}, nil }
			if got, _, err := till.Pay(t.Context(), pay); err != nil || got.TransactionID != "pi_2" || len(till.keys) != 2 || till.keys[0] != till.keys[1] {
				t.Errorf("%+v, %v, charged with %q", got, err, till.keys)
			}
			if recordOf(t, engine).Attributes["transaction_id"] != "pi_2" {
				t.Error("the record has another transaction")
			}
		})
	})
	t.Run("nobody has made such a payment", func(t *testing.T) {
		in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
			till := newTill(t, engine, m)
			pay := payment()
			_, _, _ = till.Pay(t.Context(), pay)
			good := reference(pay)
			for _, ref := range []string{"", "payment", good + ":", strings.Replace(good, "2999", "02999", 1), strings.Replace(good, "2999", "-1", 1), strings.Replace(good, "%3A", ":", 1), strings.Replace(good, "%3A", "%3a", 1), strings.Replace(good, "789", "790", 1), strings.Replace(good, "payment", "order", 1)} {
				want(t, till.Tell(t.Context(), "acme", paid(ref, "pi_1")), semel.ErrNotFound)
			}
			want(t, till.Tell(t.Context(), "another", paid(good, "pi_1")), semel.ErrNotFound)
			if err := till.Tell(t.Context(), "acme", paid(good, "")); err == nil {
				t.Error("a charge without a transaction is taken")
			}
		})
	})
}

// TestWebhookSettlesPayment: an event of the gateway goes through the state machine of
// payments, and settles the payment whose answer was lost. A transaction without a name is
// as good as lost.
func TestWebhookSettlesPayment(t *testing.T) {
	clause.Proves(t, "MAP-PAY.2")
	engine := newEngine(t)
	till := newTill(t, engine, nil)
	till.charge = func(commerce.Charge) (commerce.Charged, error) { return commerce.Charged{}, nil }
	pay := payment()
	if _, _, err := till.Pay(t.Context(), pay); !errors.Is(err, semel.ErrUnknown) {
		t.Fatal(err)
	}
	source, err := webhook.Builtin("stripe")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "whsec_0123456789abcdef"
	receiver, err := webhook.New(engine, webhook.Options{
		VerifierOptions: webhook.VerifierOptions{Source: source, Secrets: []string{secret}},
		Tenant:          "acme", Mode: webhook.Sync, Payments: webhook.CardMachine(),
		Handle: func(ctx context.Context, e *webhook.Event) error { return settle(ctx, till.Payments, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(id, kind string) int {
		body := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"object":{"id":"pi_7","metadata":{"reference":"payment:order%%3A789:2999:USD:%d"}}}}`, id, kind, pay.IntentAt.Unix())
		d := &webhook.Delivery{Header: http.Header{}, Body: []byte(body)}
		if err := source.Sign(d, secret, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header = d.Header
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, r)
		return w.Code
	}
	if code := send("evt_1", "payment_intent.succeeded"); code != http.StatusOK {
		t.Errorf("the event gets %d", code)
	}
	if code := send("evt_2", "payment_intent.canceled"); code != http.StatusOK { // it can't happen any more, and nobody is told
		t.Errorf("the event that can't happen gets %d", code)
	}
	if done, _, err := till.Pay(t.Context(), pay); err != nil || done.TransactionID != "pi_7" || len(till.keys) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if rec := recordOf(t, engine); rec.Attributes["transaction_id"] != "pi_7" || rec.State != semel.Completed {
		t.Errorf("%+v", rec)
	}
}

// TestGatewayIsAsked: a payment whose answer was lost is settled by what its gateway says when
// it is asked for the key that it got.
func TestGatewayIsAsked(t *testing.T) {
	clause.Proves(t, "MAP-PAY.1", "MAP-PAY.2")
	in(t, func(t *testing.T, engine *semel.Engine, _ *commerce.Mandates) {
		var mu sync.Mutex // the gateway is asked in the background
		var charged, asked []string
		var told commerce.Told
		var down error
		payments, err := commerce.NewPayments(engine, commerce.PaymentOptions{
			Gateway: shield.Adyen(), // its keys are derived
			Charge: func(_ context.Context, c commerce.Charge) (commerce.Charged, error) {
				charged = append(charged, c.Key)
				return commerce.Charged{}, errors.New("no answer")
			},
			Ask: func(_ context.Context, key string) (commerce.Told, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, key)
				return told, down
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		pay := payment()
		pay.Order = strings.Repeat("long", 30)
		for _, step := range []struct {
			what    string
			told    commerce.Told
			down    error
			want    error
			charges int
		}{
			{"it doesn't know yet", commerce.Told{}, nil, semel.ErrHeld, 1},
			{"it is down", commerce.Told{Refused: true}, errors.New("down"), semel.ErrHeld, 1},
			{"it names a transaction that can't be kept", commerce.Told{Charged: commerce.Charged{TransactionID: "\x00"}}, nil, semel.ErrHeld, 1},
			{"it has no such charge", commerce.Told{Refused: true}, nil, semel.ErrUnknown, 2}, // and this one is lost as well
			{"it has charged", commerce.Told{Charged: commerce.Charged{TransactionID: "psp_1"}}, nil, nil, 2},
		} {
			if len(charged) == 0 {
				_, _, _ = payments.Pay(t.Context(), pay)
			}
			mu.Lock()
			told, down = step.told, step.down
			mu.Unlock()
			for range 5 {
				pass(time.Minute)
				if _, err := engine.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			done, _, err := payments.Pay(t.Context(), pay)
			if !errors.Is(err, step.want) || len(charged) != step.charges || err == nil && done.TransactionID != "psp_1" {
				t.Errorf("%s: %+v, %v, charged %d times", step.what, done, err, len(charged))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for _, key := range append(charged, asked...) {
			if key != charged[0] {
				t.Errorf("charged with %q, asked for %q", charged, asked)
			}
		}
		if rec := recordOf(t, engine); rec.Attributes["transaction_id"] != "psp_1" || rec.Settled.Who != "Adyen" || len(asked) < 5 {
			t.Errorf("asked %d times: %+v", len(asked), rec)
		}
	})
}

func TestPaymentsRefuse(t *testing.T) {
	engine := newEngine(t)
	till := newTill(t, engine, nil)
	for what, change := range map[string]func(*commerce.Pay){
		"no order":            func(p *commerce.Pay) { p.Order = "" },
		"nothing":             func(p *commerce.Pay) { p.Amount = 0 },
		"a negative amount":   func(p *commerce.Pay) { p.Amount = -1 },
		"no currency":         func(p *commerce.Pay) { p.Currency = "" },
		"no time of intent":   func(p *commerce.Pay) { p.IntentAt = time.Time{} },
		"a mandate of nobody": func(p *commerce.Pay) { p.Mandate = "m" },
	} {
		pay := payment()
		change(&pay)
		if _, _, err := till.Pay(t.Context(), pay); err == nil || len(till.keys) != 0 {
			t.Errorf("%s is charged: %v", what, err)
		}
	}
	if _, err := commerce.NewPayments(engine, commerce.PaymentOptions{}); err == nil {
		t.Error("payments are taken without a gateway")
	}
}
