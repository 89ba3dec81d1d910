package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/stage"
)

// demo is the agent with a gateway of its own, and prints requests to send to it.
func demo(ctx context.Context, l net.Listener, database string, out io.Writer) error {
	g := &toyGateway{out: out, shop: "http://" + l.Addr().String(), charged: map[string]string{}, run: fmt.Sprintf("%x", time.Now().Unix())}
	gateway, stop, err := stage.Toy(g)
	if err != nil {
		return err
	}
	cart := fmt.Sprintf(`{"id":"cart-%s","user":"anna","mugs":2,"decided_at":%q}`, g.run, time.Now().UTC().Format(time.RFC3339))
	request := func(message string) stage.Request {
		return stage.Request{URL: g.shop + "/a2a", Header: http.Header{"A2A-Version": {"1.0"}}, Body: fmt.Sprintf(
			`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"%s-%s","role":"ROLE_USER","parts":[{"data":%s}]}}}`,
			message, g.run, cart)}
	}
	stage.Show(out, "A gateway of its own charges, and its webhooks confirm. Send a cart, send it again, and send it in another message:",
		request("m-1"), request("m-1"), request("m-2"))
	err = serve(ctx, l, database, gateway)
	err = errors.Join(err, stop())
	g.hooks.Wait()
	return err
}

// toyGateway is a payment gateway that remembers its keys as long as it runs, and prints each charge.
type toyGateway struct {
	out       io.Writer
	shop, run string
	hooks     sync.WaitGroup

	mu      sync.Mutex
	charged map[string]string // transactions by key
}

// ServeHTTP charges, or finds the charge under a key.
func (g *toyGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		key = r.FormValue("key")
	}
	transaction, known := g.charged[key]
	if r.Method == http.MethodPost && !known {
		transaction = fmt.Sprintf("tx-%s-%d", g.run, len(g.charged)+1)
		g.charged[key] = transaction
		fmt.Fprintf(g.out, "gateway: charged %s cents as %s\n", r.FormValue("amount"), transaction)
		reference := r.FormValue("reference")
		g.hooks.Go(func() { g.tell(transaction, reference) })
	}
	_ = json.NewEncoder(w).Encode(commerce.Charged{TransactionID: transaction}) // a client that is gone asks again
}

// tell sends the webhook of a payment once, with Shopify's signature. A real gateway tries again
// after an error; the demo's payment succeeds without the webhook.
func (g *toyGateway) tell(transaction, reference string) {
	source, err := webhook.Builtin("shopify")
	if err != nil {
		return
	}
	body, _ := json.Marshal(map[string]string{"id": transaction, "reference": reference, "kind": "sale", "status": "success"}) // strings
	d := &webhook.Delivery{Body: body, Header: http.Header{
		"Content-Type": {"application/json"}, "X-Shopify-Topic": {"order_transactions/create"},
		"X-Shopify-Shop-Domain": {"acme.myshopify.com"}, "X-Shopify-Event-Id": {"event-" + transaction},
	}}
	if err := source.Sign(d, secret, "", time.Now()); err != nil {
		return
	}
	r, err := http.NewRequest(http.MethodPost, g.shop+"/webhooks", bytes.NewReader(body))
	if err != nil {
		return
	}
	r.Header = d.Header
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
	}
}
