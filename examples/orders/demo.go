package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the shop with orders to deliver.
func demo(ctx context.Context, l net.Listener, database string, out io.Writer) error {
	cart := fmt.Sprintf("cart-mandate-%d", time.Now().Unix())
	request := func(cents int) stage.Request {
		return stage.Request{URL: "http://" + l.Addr().String() + "/orders", Body: fmt.Sprintf(`{"cart":%q,"cents":%d}`, cart, cents)}
	}
	stage.Show(out, "Deliver an order, deliver it again, and deliver another one for the same cart:", request(1250), request(1250), request(9900))
	return serve(ctx, l, database)
}
