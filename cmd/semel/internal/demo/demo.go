// Package demo shows Semel with real traffic: a toy payment service and 'semel serve' in
// front of it, each in a separate process, and a client that delivers the same orders
// many times, loses answers, and kills Semel in the middle of a charge. Charges are
// counted in the payment service's ledger.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service/auth"
)

// The size of the two bursts.
const (
	orders = 20
	copies = 25
)

// Options says how the demo is run.
type Options struct {
	// Seed chooses amounts, delays and the order of the copies.
	Seed uint64
	// Unguarded switches the guard off, to see that the demo then fails.
	Unguarded bool
	// Stay leaves everything running after the demo has succeeded, until the context
	// is done.
	Stay bool
	// Screen shows the progress.
	Screen *Screen
	// Agents tells the story of agents instead. It ends by itself.
	Agents bool
	// Page is the file that gets the results as a page of HTML; empty for none.
	Page string
}

// Tell runs the demo that the options say, and reports whether everything was as it should be.
func Tell(ctx context.Context, opts Options) (report any, ok bool, err error) {
	if opts.Agents {
		r, err := RunAgents(ctx, opts)
		return r, r.OK, err
	}
	r, err := Run(ctx, opts)
	return r, r.OK, err
}

// story is one run of the demo.
type story struct {
	scene
	report Report
	token  string // of the worker that calls the execution API
}

// Run runs the demo. An error means that the demo couldn't be completed; its results are
// in the report. Processes and files are gone when it returns.
func Run(ctx context.Context, opts Options) (report Report, err error) {
	s := &story{scene: newScene(opts)}
	s.report.Seed = opts.Seed
	start := time.Now()
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.startProvider(ctx); err != nil {
		return report, err
	}
	token, digest := auth.NewToken()
	s.token = token
	if err := writeConfiguration(s.dir, s.provider.URL, digest, opts.Unguarded); err != nil {
		return report, err
	}
	if err := s.startGuard(ctx); err != nil {
		return report, err
	}
	s.screen.opening(s)
	for _, chapter := range []func(context.Context) error{s.control, s.protected, s.conflict, s.lostResponse, s.crash} {
		if err := chapter(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return report, err
		}
	}
	s.report.Seconds = time.Since(start).Seconds()
	s.report.judge()
	s.screen.closing(&s.report)
	if opts.Page != "" {
		if err := s.report.writePage(opts.Page); err != nil {
			return s.report, err
		}
		s.screen.line("all of it on a page: %s", opts.Page)
	}
	if opts.Stay && s.report.OK {
		if err = s.troubles(ctx); err == nil {
			err = s.stay(ctx)
		} else if ctx.Err() != nil {
			err = nil // the story itself is over
		}
	}
	return s.report, err
}

// stay shows what there is to try and returns when ctx is done. A server that
// ends before that is an error.
func (s *story) stay(ctx context.Context) error {
	s.screen.staying(s)
	select {
	case <-ctx.Done():
		return nil
	case <-s.provider.Exited():
		return fmt.Errorf("the payment service has ended%s", s.provider.Quote())
	case <-s.guard.Exited():
		return fmt.Errorf("semel serve has ended%s", s.guard.Quote())
	}
}

// keyOf is the idempotency key of an order.
func keyOf(o order) string { return "order:" + o.Order }

// effects counts the charges of the given orders in the ledger.
func (s *story) effects(ctx context.Context, names ...string) (int, error) {
	charges, err := s.client.ledger(ctx, s.provider.URL, nil)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		n += len(match(charges, name, ""))
	}
	return n, nil
}

// conflict sends an order again under its key, with another amount.
func (s *story) conflict(ctx context.Context) error {
	s.screen.chapter("Changed amount under a used key")
	o := s.newOrder("conflict-1")
	if _, err := s.client.chargeUntilDone(ctx, s.guard.URL, keyOf(o), o, func(answer) {}); err != nil {
		return err
	}
	changed := o
	changed.Amount *= 10
	a, err := s.client.charge(ctx, s.guard.URL, keyOf(o), changed)
	if err != nil {
		return err
	}
	r := &s.report.Conflict
	r.Status, r.Code, r.Detail = a.status, a.code, a.detail
	if r.Effects, err = s.effects(ctx, o.Order); err != nil {
		return err
	}
	s.screen.line("%s were charged, then %s asked for under the same key", money(o), money(changed))
	s.screen.line("the answer: %s", Seen{Status: a.status, Code: a.code, Replayed: a.replayed, Times: 1})
	if a.detail != "" {
		s.screen.quote(a.detail)
	}
	s.screen.verdict(r.Status == http.StatusUnprocessableEntity && r.Effects == 1, "%s in the ledger", plural(r.Effects, "charge"))
	return nil
}

// lostResponse hangs up before the answer comes, and asks again.
func (s *story) lostResponse(ctx context.Context) error {
	s.screen.chapter("Lost response")
	start := time.Now()
	o := s.newOrder("lost-1")
	r := &s.report.LostResponse
	r.Sent++
	if err := s.client.chargeAndHangUp(ctx, s.guard.URL, s.provider.URL, keyOf(o), o); err != nil {
		return err
	}
	s.screen.line("the order was charged; the connection broke before the answer was read")
	last, err := s.client.chargeUntilDone(ctx, s.guard.URL, keyOf(o), o, r.see)
	if err != nil {
		return err
	}
	r.Replayed = last.ok() && last.replayed
	if r.Effects, err = s.effects(ctx, o.Order); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	s.screen.seen("the retry got", r.Seen)
	s.screen.verdict(r.Replayed && r.Effects == 1, "%s in the ledger", plural(r.Effects, "charge"))
	return nil
}

// crash kills Semel after the payment service has charged and before it has
// answered, starts it again on the same store, and retries. The retries come
// faster than Retry-After asks for, to see every step of the recovery. The ledger shows
// that there was no second charge, and Semel's record that there was no second try.
func (s *story) crash(ctx context.Context) error {
	s.screen.chapter("kill -9 in the middle of a charge")
	start := time.Now()
	o := s.newOrder(crashPrefix + "1")
	r := &s.report.Crash
	r.Sent++
	lost := make(chan error, 1)
	go func() {
		_, err := s.client.charge(ctx, s.guard.URL, keyOf(o), o)
		lost <- err
	}()
	if err := s.client.awaitCharge(ctx, s.provider.URL, o.Order); err != nil {
		return err
	}
	r.KilledPID = s.guard.PID()
	s.guard.Kill()
	if err := <-lost; err == nil {
		return errors.New("semel serve answered before it was killed")
	}
	s.screen.line("the order was charged; semel serve, process %d, was killed before it heard of that", r.KilledPID)
	if err := s.startGuard(ctx); err != nil {
		return err
	}
	s.screen.line("process %d took over its store; the caller asks again and again", s.guard.PID())
	deadline := time.Now().Add(retryTimeout)
	for !r.Replayed && time.Now().Before(deadline) && ctx.Err() == nil {
		a, err := s.client.charge(ctx, s.guard.URL, keyOf(o), o)
		if err != nil {
			return err
		}
		r.see(a)
		r.Replayed = a.ok() && a.replayed
		s.screen.progress(func() string { return "the retry got " + r.Seen[len(r.Seen)-1].String() })
		if !a.retryable() && !a.ok() || s.opts.Unguarded {
			break
		}
		stage.Pause(ctx, 150*time.Millisecond)
	}
	var err error
	if r.Effects, err = s.effects(ctx, o.Order); err != nil {
		return err
	}
	if err = s.recall(ctx, r, keyOf(o)); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	s.screen.seen("the retries got", r.Seen)
	if r.Replayed && r.Attempts == 1 {
		s.screen.line("nobody charged again: the payment service was asked what it knows of the charge")
	}
	s.screen.verdict(r.Replayed && r.Effects == 1, "%s in the ledger", plural(r.Effects, "charge"))
	return nil
}

// recall asks Semel what it has of the order with a key.
func (s *story) recall(ctx context.Context, r *Recovery, key string) error {
	records, err := s.client.records(ctx, s.guard.AdminURL, key)
	for i := range records {
		r.Attempts += records[i].Attempt
		r.Record = &records[i]
	}
	return err
}

func money(o order) string {
	return fmt.Sprintf("%d.%02d %s", o.Amount/100, o.Amount%100, o.Currency)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
