package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/protocol/ids/whatsapp"
)

// phoneNumber is the id of the shop's number.
const phoneNumber = "770001"

// customers write to the shop, and play WhatsApp, too, which delivers each message several
// times at once, and repeats each delivery until it gets a 200.
type customers struct {
	node   *process
	secret string
	client *http.Client
	copies int

	mu         sync.Mutex
	orders     map[string]*order
	messages   map[string]*order // by the id of what they wrote
	deliveries int
	again      int // that were not answered with 200
	pressed    int
	conflicts  int // messages that came with different content
	forged     int // deliveries without a signature, or that were changed
	admitted   int // forged deliveries that were accepted
	settled    int // orders with an outcome
	news       chan struct{}
	presses    chan press
	failed     error
}

// press is a button that a customer sees.
type press struct {
	*order
	button string
}

// order is an order to be refunded.
type order struct {
	name, buyer, amount string
	outcomes            map[string]int // what its buyer was told, and how often
}

// refund is one customer from the first message on.
func (c *customers) refund(ctx context.Context, o *order, i int) {
	text := fmt.Sprintf("refund %s %s", o.name, o.amount)
	first := c.text(o, text)
	c.deliver(ctx, first)
	if i%4 == 0 { // without a quick answer, the customer writes again, not quite the same
		c.deliver(ctx, c.text(o, "  "+strings.TrimSuffix(text, "0")))
	}
	if i%20 == 7 {
		c.mu.Lock()
		c.conflicts++
		c.mu.Unlock()
		other := bytes.Replace(first, []byte(o.amount), []byte("9999.99"), 1)
		c.until200(ctx, other)
	}
	if i%20 == 13 {
		c.forge(ctx, first)
	}
}

// text is the webhook of a text message.
func (c *customers) text(o *order, text string) []byte {
	return c.webhook(o, map[string]any{"type": "text", "text": map[string]string{"body": text}})
}

// button is the webhook of a button that is pressed.
func (c *customers) button(p press) []byte {
	return c.webhook(p.order, map[string]any{"type": "interactive", "interactive": map[string]any{
		"type": "button_reply", "button_reply": map[string]string{"id": p.button, "title": "Yes, refund " + p.name + " " + p.amount},
	}})
}

// webhook is the body in which WhatsApp delivers a message.
func (c *customers) webhook(o *order, m map[string]any) []byte {
	c.mu.Lock()
	id := fmt.Sprintf("wamid.%d", len(c.messages)+1)
	c.messages[id] = o
	c.mu.Unlock()
	m["from"], m["id"], m["timestamp"] = o.buyer, id, fmt.Sprint(time.Now().Unix())
	type object map[string]any
	body, err := json.Marshal(object{"object": "whatsapp_business_account", "entry": []object{{"id": "880000000000001", "changes": []object{{
		"field": "messages", "value": object{
			"messaging_product": "whatsapp", "metadata": object{"phone_number_id": phoneNumber}, "messages": []object{m},
		},
	}}}}})
	c.fail(err)
	return body
}

// deliver delivers a body 3 to 10 times at once.
func (c *customers) deliver(ctx context.Context, body []byte) {
	var all sync.WaitGroup
	for range 3 + rand.IntN(c.copies-2) {
		all.Go(func() { c.until200(ctx, body) })
	}
	all.Wait()
}

// until200 delivers a body until it is accepted.
func (c *customers) until200(ctx context.Context, body []byte) {
	for pause := 20 * time.Millisecond; ; pause = min(pause*2, time.Second) {
		status, err := c.post(ctx, body, whatsapp.Sign(c.secret, body))
		c.mu.Lock()
		c.deliveries++
		if status != http.StatusOK {
			c.again++
		}
		c.mu.Unlock()
		if status == http.StatusOK || ctx.Err() != nil {
			return
		}
		if err == nil && status != http.StatusServiceUnavailable {
			c.fail(fmt.Errorf("a delivery was answered with %d", status))
			return
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// forge delivers messages that the shop must refuse.
func (c *customers) forge(ctx context.Context, body []byte) {
	changed := bytes.Replace(body, []byte("refund"), []byte("REFUND"), 1)
	for _, signature := range []string{"", whatsapp.Sign("another secret", changed), whatsapp.Sign(c.secret, body)} {
		status, err := c.post(ctx, changed, signature)
		if err != nil {
			continue // its node was killed
		}
		c.mu.Lock()
		c.forged++
		if status != http.StatusUnauthorized && status != http.StatusForbidden {
			c.admitted++
		}
		c.mu.Unlock()
	}
}

func (c *customers) post(ctx context.Context, body []byte, signature string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.node.address(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if signature != "" {
		req.Header.Set(whatsapp.SignatureHeader, signature)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// ServeHTTP is the phone: it receives the shop's messages.
func (c *customers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.messages[m.InReplyTo]
	switch {
	case o == nil:
		http.Error(w, "nobody wrote that", http.StatusNotFound)
	case m.Button != "":
		select {
		case c.presses <- press{o, m.Button}: // customers press every button that they see
			c.pressed++
		default:
			http.Error(w, "too many messages", http.StatusServiceUnavailable)
		}
	case strings.HasPrefix(m.Text, "Refunded"):
		if o.outcomes[m.Text]++; len(o.outcomes) == 1 && o.outcomes[m.Text] == 1 {
			c.settled++
			select {
			case c.news <- struct{}{}:
			default:
			}
		}
	}
}

func (c *customers) fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, err)
}

// until waits until so many orders have an outcome.
func (c *customers) until(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		settled, failed := c.settled, c.failed
		c.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case settled >= n:
			return nil
		}
		tick := time.NewTimer(100 * time.Millisecond)
		select {
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("%d orders have an outcome, not %d: %w", settled, n, context.Cause(ctx))
		case <-c.news:
		case <-tick.C:
		}
		tick.Stop()
	}
}
