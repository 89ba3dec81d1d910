package demo

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// The size of a storm. There are more senders at once than copies of an order, so that the
// copies of the order that waits for the kill don't keep the others out. Semel is killed
// when a part of the senders are done, while some orders have not come yet.
const (
	stormOrders  = 32
	stormCopies  = 8
	stormSenders = 40
	stormRipe    = stormOrders * stormCopies / 6
	// hangUpAfter is how long a sender that hangs up waits at most.
	hangUpAfter = 60 * time.Millisecond
	// resendAfter is the pause of a sender that was told to come again. It is shorter than
	// Retry-After asks for, so that all are there when Semel is back.
	resendAfter = 100 * time.Millisecond
)

// delivery is one sender of a storm.
type delivery struct {
	order order
	copy  int
	// hangUp is when the sender is gone; zero: it stays until it has an answer.
	hangUp time.Duration
}

// storm is everything that is sent to one door.
type storm struct {
	*tour
	door   door
	orders []order
	all    []delivery
	killed chan struct{} // closed when Semel has been killed
	ripe   chan struct{} // closed when stormRipe senders are done

	mu      sync.Mutex
	report  doorReport
	done    int
	answers stage.Counts // by order
	start   time.Time
}

// newStorm chooses orders, copies, and who hangs up.
func (t *tour) newStorm(d door) *storm {
	s := &storm{tour: t, door: d, killed: make(chan struct{}), ripe: make(chan struct{}), start: time.Now()}
	s.report = doorReport{Door: d.name(), Orders: stormOrders, Sent: stormOrders * stormCopies}
	for i := range stormOrders {
		name := fmt.Sprintf("%s-%02d", d.slug(), i+1)
		if i == 0 {
			name = crashPrefix + name
		}
		o := t.newOrder(name)
		s.orders = append(s.orders, o)
		for copy := range stormCopies {
			x := delivery{order: o, copy: copy}
			if !o.lingers() && copy > 0 && t.rng.IntN(4) == 0 {
				x.hangUp = time.Duration(1 + t.rng.Int64N(int64(hangUpAfter)))
				s.report.HungUp++
			}
			s.all = append(s.all, x)
		}
	}
	t.rng.Shuffle(len(s.all), func(i, j int) { s.all[i], s.all[j] = s.all[j], s.all[i] })
	return s
}

// play sends everything. In between Semel is killed and started again, and an operator
// settles the calls of which it doesn't know the outcome.
func (s *storm) play(ctx context.Context) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	over := make(chan struct{})
	disturbed := make(chan error, 1)
	go func() {
		err := s.disturb(ctx, over)
		if err != nil {
			giveUp()
		}
		disturbed <- err
	}()
	load := stage.Load{Senders: stormSenders, Try: func(ctx context.Context, n int) (bool, error) {
		s.send(ctx, s.all[n])
		return true, nil
	}}
	for n := range s.all {
		load.Calls = append(load.Calls, n)
	}
	_ = load.Run(ctx) // it ends early only with ctx, and disturb knows why
	close(over)
	return <-disturbed
}

// disturb kills Semel while it waits for the answer to an order, and then settles what is
// held until the storm is over.
func (s *storm) disturb(ctx context.Context, over <-chan struct{}) error {
	if err := s.client.awaitCharge(ctx, s.provider.URL, s.orders[0].Order); err != nil {
		return err
	}
	select {
	case <-s.ripe:
	case <-ctx.Done():
		return ctx.Err()
	}
	pid, err := s.kill(ctx)
	if err != nil {
		return err
	}
	close(s.killed)
	s.note(func(r *doorReport) { r.KilledPID = pid })
	if s.opts.Unguarded {
		return nil
	}
	return s.operate(ctx, over)
}

// send delivers until there is a final reply, or once if the sender hangs up.
func (s *storm) send(ctx context.Context, x delivery) {
	defer s.finished()
	if x.hangUp > 0 {
		s.leave(ctx, x)
		return
	}
	var got reply
	var err error
	for begin := time.Now(); time.Since(begin) < retryTimeout && ctx.Err() == nil; {
		s.note(func(r *doorReport) { r.Requests++ })
		if got, err = s.door.deliver(ctx, s.target(), x.order, x.copy); err == nil && got.final {
			break
		}
		stage.Pause(ctx, resendAfter)
	}
	s.answered(x.order, got, err)
}

// leave delivers once, and doesn't wait for the answer.
func (s *storm) leave(ctx context.Context, x delivery) {
	s.note(func(r *doorReport) { r.Requests++ })
	if w, ok := s.door.(workplace); ok && !s.opts.Unguarded {
		_ = w.leave(ctx, s.target(), x.order, x.copy) // nobody is there to see it
		return
	}
	ctx, hangUp := context.WithTimeout(ctx, x.hangUp)
	defer hangUp()
	_, _ = s.door.deliver(ctx, s.target(), x.order, x.copy)
}

func (s *storm) target() *target {
	at, _ := s.current()
	return &target{client: s.client, guard: at.URL, provider: s.provider.URL, token: s.token, unguarded: s.opts.Unguarded, killed: s.killed}
}

// note changes the report.
func (s *storm) note(change func(r *doorReport)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

func (s *storm) finished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done++; s.done == stormRipe {
		close(s.ripe)
	}
}

func (s *storm) answered(o order, got reply, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !got.final || !got.good {
		s.report.Failed++
		if err != nil {
			got.same = err.Error()
		}
		s.report.Trouble = cmp.Or(s.report.Trouble, got.same)
		return
	}
	s.report.Answers++
	s.answers.Add(o.Order, got.same)
}

// snapshot is the report so far.
func (s *storm) snapshot() doorReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Seconds = time.Since(s.start).Seconds()
	return r
}

// count reads the effects from the ledger.
func (s *storm) count(ledger []Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.report
	for _, o := range s.orders {
		n := len(match(ledger, o.Order, ""))
		r.Effects += n
		if n == 1 {
			r.Once++
		}
	}
	r.Differing = len(s.answers.Differing())
}
