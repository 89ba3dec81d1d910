package main

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/evidence"
)

// runTimeout is how long the whole run may take.
const runTimeout = 4 * time.Minute

// play is the whole run.
func play(ctx context.Context, o *options) (_ *summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "semel-refunds-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pay := &provider{work: 20 * time.Millisecond, byKey: map[string]payment{}, paid: map[string][]payment{}}
	paying := httptest.NewServer(pay)
	defer paying.Close()
	c := &customers{
		node: &process{file: filepath.Join(dir, "node.json")}, copies: o.copies, secret: crand.Text(), client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		orders: map[string]*order{}, messages: map[string]*order{}, news: make(chan struct{}, 1), presses: make(chan press, 1000),
	}
	phone := httptest.NewServer(c)
	defer phone.Close()
	set := &settings{
		Store: filepath.Join(dir, "store"), Keys: filepath.Join(dir, "evidence.key"), Checkpoints: filepath.Join(dir, "checkpoints"),
		Provider: paying.URL, Phone: phone.URL, Secret: c.secret,
	}
	public := filepath.Join(dir, "evidence.pub")
	if err := prepare(set, c.node.file, public); err != nil {
		return nil, err
	}
	if err := c.node.start(); err != nil {
		return nil, err
	}
	defer c.node.kill() // if it is not stopped by then
	s := &summary{Refunds: o.refunds}
	if err := c.run(ctx, o, s); err != nil {
		return nil, err
	}
	if err := c.node.stop(); err != nil {
		return nil, fmt.Errorf("the node did not stop in order: %w", err)
	}
	pay.summary(c, s)
	c.summary(s)
	file := filepath.Join(dir, "log.jsonl")
	if err := export(ctx, set, file); err != nil {
		return nil, err
	}
	a, err := verify(file, public, set.Checkpoints)
	if err != nil {
		return nil, err
	}
	s.Audit = *a
	return s, nil
}

// prepare writes the files of a node.
func prepare(set *settings, file, public string) error {
	keys, err := evidence.GenerateKeys("example.com/refunds")
	if err != nil {
		return err
	}
	text, err := json.Marshal(set)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(set.Keys, keys.Text(), 0o600), os.WriteFile(public, keys.Trust().Text(), 0o600), os.WriteFile(file, text, 0o600))
}

// run lets customers ask while the node is killed.
func (c *customers) run(ctx context.Context, o *options, s *summary) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var asking, pressing sync.WaitGroup
	asks := make(chan int)
	for range 16 {
		asking.Go(func() {
			for i := range asks {
				c.refund(ctx, c.order(i), i)
			}
		})
		pressing.Go(func() {
			for {
				select {
				case p := <-c.presses:
					c.deliver(ctx, c.button(p))
				case <-ctx.Done():
					return
				}
			}
		})
	}
	asking.Go(func() {
		defer close(asks)
		for i := range o.refunds {
			select {
			case asks <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	err := c.killed(ctx, o, s)
	if err == nil {
		err = c.until(ctx, o.refunds)
	}
	if err == nil {
		asking.Wait()
	}
	// Pressed buttons that aren't delivered yet are for refunds that were paid.
	cancel(nil)
	asking.Wait()
	pressing.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(err, c.failed)
}

// order is the order with this number.
func (c *customers) order(i int) *order {
	o := &order{
		name: fmt.Sprintf("R-%04d", i), buyer: fmt.Sprintf("35191%07d", i),
		amount: fmt.Sprintf("%d.%d0", 1+rand.IntN(500), rand.IntN(10)), outcomes: map[string]int{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders[o.name] = o
	return o
}

// killed kills the node at even distances, each time at a random moment.
func (c *customers) killed(ctx context.Context, o *options, s *summary) error {
	for ; s.Kills < o.kills; s.Kills++ {
		if err := c.until(ctx, s.Kills*o.refunds/(o.kills+1)); err != nil {
			return err
		}
		timer := time.NewTimer(rand.N(200 * time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		c.node.kill()
		if err := c.node.start(); err != nil {
			return err
		}
	}
	return nil
}

// summary is what the customers saw.
func (c *customers) summary(s *summary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Messages, s.Pressed, s.Deliveries, s.Again = len(c.messages), c.pressed, c.deliveries, c.again
	s.Conflicts, s.Forged, s.Admitted = c.conflicts, c.forged, c.admitted
	for _, o := range c.orders {
		if len(o.outcomes) > 0 {
			s.Answered++
		}
		if len(o.outcomes) > 1 {
			s.Differing++
		}
	}
}

// summary is what the payment service counted.
func (p *provider) summary(c *customers, s *summary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Requests, s.Known = p.requests, p.again
	for name, made := range p.paid {
		s.Paid += len(made)
		if len(made) > 1 {
			s.Twice++
		}
		// Amounts are normalised: 12.50 is paid as 12.5.
		if o := c.orders[name]; o == nil || strings.TrimRight(strings.TrimRight(o.amount, "0"), ".") != made[0].Amount {
			s.Wrong++
		}
	}
}
