package demo

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
)

// webhookDoor accepts signed webhooks of Stripe, and charges while Stripe waits.
type webhookDoor struct{}

const (
	webhookPath   = "/webhooks/stripe"
	webhookSecret = "stripe.secret"
	// stripeSecret signs nothing outside of the tour.
	stripeSecret = "whsec_semel_demo_0123456789abcdef"
)

func (webhookDoor) name() string { return "webhooks" }
func (webhookDoor) slug() string { return "webhook" }

func (webhookDoor) configure(c *setup) error {
	c.add("webhooks", `
- path: %s
  source: stripe
  secret_files: [%s]
  upstream: %q
  timeout: 1m
  mode: sync
  lease: %s`, webhookPath, webhookSecret, c.upstream+webhookPath, tourLease)
	return c.file(webhookSecret, stripeSecret)
}

// stripeEvent is an event about an order.
type stripeEvent struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object order `json:"object"`
	} `json:"data"`
}

func (webhookDoor) serve(p *provider, mux *http.ServeMux) {
	mux.HandleFunc("POST "+webhookPath, func(w http.ResponseWriter, r *http.Request) {
		var e stripeEvent
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			http.Error(w, "this is no event", http.StatusBadRequest)
			return
		}
		key, err := url.PathUnescape(r.Header.Get("Semel-Event-Key"))
		if err != nil {
			http.Error(w, "the event has no key", http.StatusBadRequest)
			return
		}
		p.chargeAs(w, r, e.Data.Object, key, func(c Charge) (int, any) { return http.StatusOK, c })
	})
}

// deliver signs each delivery at its own time, as Stripe does.
func (webhookDoor) deliver(ctx context.Context, t *target, o order, _ int) (reply, error) {
	source, err := webhook.Builtin("stripe")
	if err != nil {
		return reply{}, err
	}
	e := stripeEvent{ID: "evt_" + o.Order, Type: "checkout.session.completed"}
	e.Data.Object = o
	d := &webhook.Delivery{Header: http.Header{}, Body: document(e)}
	if err := source.Sign(d, stripeSecret, "", time.Now()); err != nil {
		return reply{}, err
	}
	a, err := t.client.post(ctx, t.guard+webhookPath, d.Header, d.Body)
	return httpReply(a, a.body), err
}

// result is nothing: an event that was handled is all that Stripe wants to know.
func (webhookDoor) result(Charge) semel.Result { return semel.Result{} }
