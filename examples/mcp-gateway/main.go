// Command mcp-gateway stands in front of a server of MCP that refunds orders as often as anybody
// asks, and makes each refund once. Its README says more.
//
//	go run ./examples/mcp-gateway -demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/mcp"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/store/pebblestore"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "`address` to listen on")
	data := flag.String("data", "./gateway-data", "`directory` of the store")
	upstream := flag.String("upstream", "http://127.0.0.1:3000/mcp", "`URL` of the server")
	demos := flag.Bool("demo", false, "bring a server and an agent, and print requests to send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", *address)
	switch {
	case err != nil:
	case *demos:
		err = demo(ctx, l, *data, os.Stdout)
	default:
		err = serve(ctx, l, *data, *upstream)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-gateway:", err)
		os.Exit(1)
	}
}

// newGateway is the gateway in front of the server at a URL.
func newGateway(engine *semel.Engine, upstream *url.URL) (*mcp.Gateway, error) {
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		return nil, err
	}
	// snippet: Gateway
	return mcp.NewGateway(guard, mcp.GatewayOptions{
		Upstream: upstream,
		Path:     "/mcp",
		// The gateway knows each call for 90 days, so it may tell clients to repeat one.
		Operation: semel.Operation{Name: "shop.tools", Lease: 2 * time.Second, Remember: mcp.HintWindow},
		Tools: map[string]mcp.Tool{
			// An order is refunded once. Declare what tells one call of yours from the next.
			"refund":  {Fields: []string{"/order_id"}, VerifyWith: []string{"refunds"}},
			"refunds": {ReadOnly: true},
		},
		Attributes: map[string]string{"order": "json:/order_id"}, // people find a call by it
	})
	// end snippet
}

// serve runs the gateway on a directory until ctx is done.
func serve(ctx context.Context, l net.Listener, dir, upstream string) (err error) {
	there, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	store, err := pebblestore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	engine, err := semel.New(store, nil)
	if err != nil {
		return err
	}
	gateway, err := newGateway(engine, there)
	if err != nil {
		return err
	}
	// Expired records are removed, and abandoned calls settled, only while this runs.
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { _ = engine.Run(sweeping, 0) }) // which ends because it is stopped

	server := &http.Server{Handler: gateway}
	strict := semelproxy.Strict(server, l) // so that the gateway sees whether its answers arrive
	served := make(chan error, 1)
	go func() { served <- server.Serve(strict) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(grace))
	gateway.Close()
	stopSweeping()
	background.Wait()
	return errors.Join(err, engine.Close(grace))
}
