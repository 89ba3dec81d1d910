package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/webhook"
)

// shop sends webhooks, and repeats each until it is answered.
type shop struct {
	source *webhook.Source
	url    atomic.Pointer[string] // of the receiver
	hungUp atomic.Int64
}

// play has a shop deliver the webhooks of its orders, each several times, in random order
// and by several senders, while the receiver is restarted.
func play(ctx context.Context, dir string, b *book, orders, copies int) (*summary, error) {
	source, err := webhook.Builtin("shopify")
	if err != nil {
		return nil, err
	}
	s := &shop{source: source}
	var refused, conflicts atomic.Int64
	seen := func(e webhook.Seen) {
		if _, ok := errors.AsType[*webhook.Refusal](e.Err); ok {
			refused.Add(1)
		}
		if e.Decision == semel.Conflict {
			conflicts.Add(1)
		}
	}
	r, err := start(dir, b, seen)
	if err != nil {
		return nil, err
	}
	s.url.Store(&r.url)

	deliveries := rand.Perm(orders * copies)
	half := len(deliveries) / 2
	s.deliver(ctx, deliveries[:half], orders)
	if err := r.close(); err != nil {
		return nil, err
	}
	if r, err = start(dir, b, seen); err != nil {
		return nil, err
	}
	s.url.Store(&r.url)
	s.deliver(ctx, deliveries[half:], orders)

	if err := s.forge(ctx); err != nil {
		return nil, err
	}
	if err := s.change(ctx); err != nil {
		return nil, err
	}
	for entered, _ := b.count(); entered < orders; entered, _ = b.count() {
		select { // what was taken is entered soon
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), r.close())
		}
	}
	return &summary{
		Orders: orders, Deliveries: len(deliveries), Restarts: 1, HungUp: int(s.hungUp.Load()),
		Refused: int(refused.Load()), Conflicts: int(conflicts.Load()),
	}, r.close()
}

// deliver delivers webhooks, by eight senders at once.
func (s *shop) deliver(ctx context.Context, deliveries []int, orders int) {
	work := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for n := range work {
				s.insist(ctx, n%orders)
			}
		})
	}
	for _, n := range deliveries {
		work <- n
	}
	close(work)
	senders.Wait()
}

// insist sends the webhook of an order until it is answered with 200. One sender in ten
// hangs up at first, and sends it again.
func (s *shop) insist(ctx context.Context, order int) {
	hangUp := rand.IntN(10) == 0
	for ctx.Err() == nil {
		try, cancel := context.WithCancel(ctx)
		if hangUp {
			time.AfterFunc(rand.N(2*time.Millisecond), cancel)
			s.hungUp.Add(1)
		}
		status, err := s.post(try, order, body(order, "10.00"), secret)
		cancel()
		if err == nil && status == http.StatusOK {
			return
		}
		hangUp = false
	}
}

// forge sends a webhook with a secret that isn't the shop's.
func (s *shop) forge(ctx context.Context) error {
	status, err := s.post(ctx, 0, body(0, "0.01"), "another secret")
	if err == nil && status != http.StatusUnauthorized {
		err = fmt.Errorf("a forged delivery got %d", status)
	}
	return err
}

// change sends the webhook of an order with another content.
func (s *shop) change(ctx context.Context) error {
	status, err := s.post(ctx, 1, body(1, "99.00"), secret)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a changed delivery got %d", status)
	}
	return err
}

func body(order int, price string) []byte {
	return fmt.Appendf(nil, `{"id":%d,"email":"jon@example.com","total_price":%q}`, order, price)
}

// post makes one delivery.
func (s *shop) post(ctx context.Context, order int, body []byte, secret string) (int, error) {
	d := &webhook.Delivery{Body: body, Header: http.Header{}}
	d.Header.Set("Content-Type", "application/json")
	d.Header.Set("X-Shopify-Topic", "orders/create")
	d.Header.Set("X-Shopify-Shop-Domain", "acme.myshopify.com")
	d.Header.Set("X-Shopify-Event-Id", fmt.Sprintf("event-%d", order))
	if err := s.source.Sign(d, secret, "", time.Now()); err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, *s.url.Load(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header = d.Header
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
