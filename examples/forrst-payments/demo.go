package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the service with requests to send, and tells what the bank charged.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	order := fmt.Sprintf("lamp%d", time.Now().Unix())
	request := func(id string, amount int) stage.Request {
		return stage.Request{URL: "http://" + l.Addr().String() + "/forrst", Body: fmt.Sprintf(
			`{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"call":{"function":"payments.charge","version":"1.0.0","arguments":{"order":%q,"amount":%d}},"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"charge_%[2]s"}}]}`,
			id, order, amount)}
	}
	stage.Show(out, "Pay for an order, try again with another id and the same key, and try with another amount:",
		request("req_1", 100), request("req_2", 100), request("req_3", 999))
	return serve(ctx, l, dir, &bank{told: func(charge string) { fmt.Fprintln(out, "bank: charged", charge) }})
}
