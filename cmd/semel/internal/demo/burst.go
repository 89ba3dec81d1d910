package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// control sends the burst straight at the payment service.
func (s *story) control(ctx context.Context) error {
	s.screen.chapter("Without a guard: %d orders, each sent %d times at once", orders, copies)
	b := &s.report.Control
	if err := s.burst(ctx, b, s.provider.URL, "control"); err != nil {
		return err
	}
	s.screen.line("%d copies sent, %d answered", b.Sent, b.Sent-b.Failed)
	s.screen.figure(b.Effects == orders, "%s for %d orders", plural(b.Effects, "charge"), orders)
	return nil
}

// protected sends the same burst through Semel.
func (s *story) protected(ctx context.Context) error {
	s.screen.chapter("Behind Semel: the same burst")
	b := &s.report.Protected
	if err := s.burst(ctx, b, s.guard.URL, "protected"); err != nil {
		return err
	}
	s.screen.line("%d copies sent, %d executed, %d got the stored answer", b.Sent, b.Executed, b.Replayed)
	s.screen.line("%d times one was told that the first is still running, and asked again", b.InFlight)
	if b.Differing == 0 {
		s.screen.line("all copies of an order got the same answer")
	} else {
		s.screen.line("the copies of %s got different answers", plural(b.Differing, "order"))
	}
	s.screen.verdict(b.Effects == orders && b.Replayed == orders*(copies-1) && b.Differing == 0, "%s for %d orders", plural(b.Effects, "charge"), orders)
	return nil
}

// count is the running count of a burst.
type count struct {
	mu      sync.Mutex
	b       *Burst
	answers stage.Counts // by order
	err     error
}

func (c *count) seen(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b.Requests++
	if a.retryable() {
		c.b.InFlight++
	}
}

func (c *count) final(o order, a answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || !a.ok() {
		c.b.Failed++
		if c.err == nil {
			c.err = err
		}
		return
	}
	if a.replayed {
		c.b.Replayed++
	} else {
		c.b.Executed++
	}
	c.answers.Add(o.Order, fmt.Sprint(a.status, a.body))
}

// String is the progress of the burst.
func (c *count) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.b.Executed + c.b.Replayed + c.b.Failed
	const width = 30
	filled := done * width / c.b.Sent
	text := fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, c.b.Sent)
	if c.b.Replayed+c.b.InFlight > 0 {
		text += fmt.Sprintf("  executed %d, replayed %d, told to wait %d", c.b.Executed, c.b.Replayed, c.b.InFlight)
	}
	return text
}

// burst sends all copies of all orders at once, and each until it has a final
// answer.
func (s *story) burst(ctx context.Context, b *Burst, base, name string) error {
	var all []order
	var names []string
	for i := range orders {
		o := s.newOrder(fmt.Sprintf("%s-%02d", name, i+1))
		names = append(names, o.Order)
		for range copies {
			all = append(all, o)
		}
	}
	s.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	b.Orders, b.Sent = orders, len(all)
	c := &count{b: b}
	stop := s.screen.live(c.String)
	start := time.Now()
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for _, o := range all {
		wg.Go(func() {
			<-gate
			a, err := s.client.chargeUntilDone(ctx, base, keyOf(o), o, c.seen)
			c.final(o, a, err)
		})
	}
	close(gate)
	wg.Wait()
	stop()
	b.Seconds = time.Since(start).Seconds()
	b.Differing = len(c.answers.Differing())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.err != nil {
		s.screen.line("%v", c.err)
	}
	var err error
	b.Effects, err = s.effects(ctx, names...)
	return err
}
