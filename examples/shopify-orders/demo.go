package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the receiver of a shop that it plays: it prints webhooks to deliver, a line about each
// delivery, and the orders that are entered.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	source, err := webhook.Builtin("shopify")
	if err != nil {
		return err
	}
	const secret = "the demo's secret"
	order := time.Now().Unix()
	var requests []stage.Request
	for _, price := range []string{"10.00", "10.00", "99.00"} {
		d := &webhook.Delivery{Body: fmt.Appendf(nil, `{"id":%d,"total_price":%q}`, order, price), Header: http.Header{
			"Content-Type": {"application/json"}, "X-Shopify-Topic": {"orders/create"},
			"X-Shopify-Shop-Domain": {"acme.myshopify.com"}, "X-Shopify-Event-Id": {fmt.Sprint("event-", order)},
		}}
		if err := source.Sign(d, secret, "", time.Now()); err != nil {
			return err
		}
		requests = append(requests, stage.Request{URL: "http://" + l.Addr().String(), Header: d.Header, Body: string(d.Body)})
	}
	stage.Show(out, "These webhooks are signed as the shop would. Deliver an order, deliver it again, and deliver its event with another price, which somebody would have to look at:", requests...)
	b := &book{told: func(order int) { fmt.Fprintln(out, "order book: entered", order) }}
	return serve(ctx, l, dir, options(secret, b), door.Log(slog.New(slog.NewTextHandler(out, nil)), slog.LevelInfo))
}
