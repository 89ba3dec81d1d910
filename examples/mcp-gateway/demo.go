package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the gateway with a server and an agent of its own, and prints requests to send.
func demo(ctx context.Context, l net.Listener, dir string, out io.Writer) error {
	books := &ledger{}
	there, stop, err := stage.Toy(newShop(books))
	if err != nil {
		return err
	}
	here := "http://" + l.Addr().String()
	told := make(chan error, 1)
	go func() { told <- tell(ctx, out, books, there, here) }()
	return errors.Join(serve(ctx, l, dir, there+"/mcp"), <-told, stop())
}

// tell has an agent refund orders in both ways, counts what the ledger has of them, and prints what
// there is to try.
func tell(ctx context.Context, out io.Writer, books *ledger, there, here string) error {
	const orders = 20
	run := fmt.Sprint(time.Now().Unix())
	fmt.Fprintf(out, "An agent refunds %d orders. Each second answer gets lost on its way, and the agent asks again:\n\n", orders)
	for _, way := range []struct{ name, url string }{{"straight at the server", there}, {"through the gateway", here}} {
		a := &agent{url: func() string { return way.url }, client: &http.Client{Transport: &flaky{}}}
		before := books.count()
		for i := range orders {
			if _, err := a.insist(ctx, refund{Order: fmt.Sprintf("%s-%s-%d", way.name[:1], run, i), Cents: 1250}); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		fmt.Fprintf(out, "  %-24s %d refunds in the ledger\n", way.name, books.count()-before)
	}
	books.mu.Lock()
	books.told = func(id string, r refund) {
		fmt.Fprintf(out, "ledger: %d cents of order %s as %s\n", r.Cents, r.Order, id)
	}
	books.mu.Unlock()
	request := func(id, cents int) stage.Request {
		return stage.Request{
			URL: here + "/mcp", Header: http.Header{"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}},
			Body: fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"refund","arguments":{"order_id":"R-%s","cents":%d}}}`, id, run, cents),
		}
	}
	fmt.Fprintln(out)
	stage.Show(out, "Refund an order through the gateway, ask again under another id, and ask for another amount:", request(1, 1250), request(2, 1250), request(3, 9900))
	return nil
}
