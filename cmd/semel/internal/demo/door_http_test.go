package demo

import (
	"context"
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// httpDoor is a route of the reverse proxy: requests with an Idempotency-Key.
type httpDoor struct{}

func (httpDoor) name() string { return "HTTP routes" }
func (httpDoor) slug() string { return "http" }

func (httpDoor) configure(c *setup) error {
	c.add("operations", "- {name: routes.charge, financial: true, lease: %s}", tourLease)
	c.add("routes", "- {match: POST /charges, upstream: %q, operation: routes.charge, key: required}", c.upstream)
	return nil
}

// serve adds nothing: it is what the payment service has anyway.
func (httpDoor) serve(*provider, *http.ServeMux) {}

func (httpDoor) deliver(ctx context.Context, t *target, o order, _ int) (reply, error) {
	header := t.bearer()
	header.Set(keyHeader, keyOf(o))
	a, err := t.client.post(ctx, t.guard+"/charges", header, document(o))
	return httpReply(a, a.body), err
}

func (httpDoor) result(c Charge) semel.Result {
	return semelhttp.NewResult(http.StatusCreated, http.Header{"Content-Type": {jsonType}}, document(c))
}
