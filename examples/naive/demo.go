package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/stage"
)

// demo runs the service, and plays its bank. It prints requests to send, and counts the charges.
func demo(ctx context.Context, l net.Listener, out io.Writer) error {
	source, err := webhook.Builtin("stripe")
	if err != nil {
		return err
	}
	var charges atomic.Int64
	bank, stop, err := stage.Toy(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := charges.Add(1)
		fmt.Fprintln(out, "bank: charge", n)
		fmt.Fprintf(w, `{"result":{"charge_id":"ch_%d"}}`, n)
	}))
	if err != nil {
		return err
	}
	defer func() { _ = stop() }() // nobody asks it any more
	const secret = "whsec_demo"
	url, now := "http://"+l.Addr().String(), time.Now()
	call := func(amount int) stage.Request {
		return stage.Request{URL: url + "/forrst", Body: fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%d",`+
			`"call":{"function":"payments.charge","version":"1.0.0","arguments":{"amount":%[1]d}},`+
			`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"order_%d"}}]}`, amount, now.Unix())}
	}
	d := &webhook.Delivery{Header: http.Header{}, Body: fmt.Appendf(nil, `{"id":"evt_%d","type":"payment_intent.succeeded"}`, now.Unix())}
	if err := source.Sign(d, secret, "", now.Add(-24*time.Hour)); err != nil {
		return err
	}
	stage.Show(out, "Charge 100, then 999 under the same key, which gets the answer of the first, and deliver a webhook that somebody has kept since yesterday:",
		call(100), call(999), stage.Request{URL: url + "/webhooks/stripe", Header: d.Header, Body: string(d.Body)})
	return serve(ctx, l, newService(bank, secret))
}
