package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/rig/stage"
)

const secret = "shpss_0123456789abcdef0123456789abcdef"

// receiver is the example while it runs.
type receiver struct {
	t      *testing.T
	url    string
	stop   context.CancelFunc
	ended  chan error
	source *webhook.Source
}

func start(t *testing.T, dir string, opts webhook.Options, events *semel.Events) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, url: "http://" + l.Addr().String(), ended: make(chan error, 1)}
	if r.source, err = webhook.Builtin("shopify"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.ended <- serve(ctx, l, dir, opts, events) }()
	return r
}

func (r *receiver) end() {
	r.t.Helper()
	http.DefaultClient.CloseIdleConnections() // or the server waits for those on which nothing was sent
	r.stop()
	if err := <-r.ended; err != nil {
		r.t.Fatal(err)
	}
}

// post delivers the webhook of an order, and returns the status of the answer.
func (r *receiver) post(ctx context.Context, order int, price, secret string) int {
	d := &webhook.Delivery{Body: fmt.Appendf(nil, `{"id":%d,"total_price":%q}`, order, price), Header: http.Header{
		"Content-Type": {"application/json"}, "X-Shopify-Topic": {"orders/create"},
		"X-Shopify-Shop-Domain": {"acme.myshopify.com"}, "X-Shopify-Event-Id": {fmt.Sprint("event-", order)},
	}}
	if err := r.source.Sign(d, secret, "", time.Now()); err != nil {
		r.t.Error(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(d.Body))
	if err != nil {
		r.t.Error(err)
		return 0
	}
	req.Header = d.Header
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestShopifyOrders has a shop deliver every webhook five times, in random order, by eight
// senders of which some hang up, while the receiver is restarted. One delivery is forged,
// and one has the id of an order with another price.
func TestShopifyOrders(t *testing.T) {
	const orders = 60
	dir, b := t.TempDir(), &book{}
	opts := options(secret, b)
	var refused, conflicts atomic.Int64
	events := &semel.Events{Answered: func(e semel.Delivered) {
		if _, ok := errors.AsType[*webhook.Refusal](e.Err); ok {
			refused.Add(1)
		}
		if e.Decision == semel.Conflict {
			conflicts.Add(1)
		}
	}}
	calls := stage.Shuffled(orders, 5)
	for _, part := range [][]int{calls[:len(calls)/2], calls[len(calls)/2:]} {
		r := start(t, dir, opts, events)
		load := stage.Load{
			Calls: part, Senders: 8, HangUp: 2 * time.Millisecond,
			Try: func(ctx context.Context, order int) (bool, error) {
				return r.post(ctx, order, "10.00", secret) == http.StatusOK, nil
			},
		}
		if err := load.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.end()
	}
	r := start(t, dir, opts, events)
	if status := r.post(t.Context(), 0, "0.01", "another secret"); status != http.StatusUnauthorized || refused.Load() != 1 {
		t.Errorf("a forged delivery got %d, and %d were refused", status, refused.Load())
	}
	if status := r.post(t.Context(), 1, "99.00", secret); status != http.StatusOK || conflicts.Load() != 1 {
		t.Errorf("a changed order got %d, and %d were conflicts", status, conflicts.Load())
	}
	entered := func() []int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Sorted(slices.Values(b.entered))
	}
	if err := stage.Until(t.Context(), func() bool { return len(entered()) >= orders }); err != nil {
		t.Fatal(err)
	}
	r.end()
	for i, order := range entered() {
		if order != i || i >= orders {
			t.Fatalf("not every order is entered once: %d", entered())
		}
	}
}
