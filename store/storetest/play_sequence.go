package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

// The numbers that the histories of sequences deliver, and how long their outcomes last: the
// operation's window, or less.
const (
	maxNumber    = 10
	numberWindow = 6 * time.Hour
	shortWindow  = time.Hour
	numberLease  = 30 * time.Minute
)

// sequencePlayer plays a random history of one sequence on two engines that share a store, and
// knows what each delivery must get. The history has its own clock.
type sequencePlayer struct {
	ctx     context.Context
	rng     *rand.Rand
	clock   *clock
	store   *timed
	opts    semel.Options
	engines []*semel.Engine
	faults  []*faultstore.Control
	id      semel.ID
	op      semel.Operation
	callers []string
	kinds   map[string]int // of what happened
	log     []string

	numbers [maxNumber + 1]number
	highest uint64 // of those that were ever begun
	runs    int

	mu     sync.Mutex
	undone map[string]int // how often an outcome was compensated
}

// number is what the player knows about one number.
type number struct {
	running *semel.Attempt // nobody else may begin it, or another number, until its lease is over
	began   store.Instant
	lease   store.Instant
	caller  string // of the attempt
	window  time.Duration

	outcome *outcome           // the outcome of a completed call
	refused map[string]outcome // by the refused caller
	// former are refusals that were purged with the number. If others have had the key since,
	// they are in records of their own, and may be found again.
	former map[string]outcome
	// Until happened, the record proves that the number had an effect.
	happened store.Instant
	// ended: it had an outcome once, or may have had one, such as that of an abandoned attempt.
	ended bool
	// crashed: it may have a claim without a holder.
	crashed bool
}

func (n *number) mayHaveEnded(now store.Instant) bool {
	return n.ended || n.running != nil && n.lease <= now
}

// outcome is the result that its caller must get.
type outcome struct {
	text, caller string
	until        store.Instant
	kept         store.Instant // until when the text is; then the call is just remembered
}

// newSequencePlayer begins a history under a policy that the seed decides.
func newSequencePlayer(ctx context.Context, s semel.Store, seed uint64, kinds map[string]int) (*sequencePlayer, error) {
	p := &sequencePlayer{
		ctx: ctx, rng: rand.New(rand.NewPCG(seed, 2)), clock: &clock{epoch}, kinds: kinds, callers: []string{""}, undone: map[string]int{},
		id: semel.ID{Tenant: fmt.Sprint("sequence-", seed), Principal: "p", Operation: "numbers", Key: "k"},
	}
	p.store = &timed{s, p.clock, s.Extras()}
	p.op = semel.Operation{
		Name: p.id.Operation, Sequenced: true, Gapless: seed%4 == 1, Window: numberWindow, Lease: numberLease,
		OnFailure: semel.RetryFailure, OnAbandoned: []semel.AfterAbandon{semel.HoldAbandoned, semel.RetryAbandoned}[seed%2],
		Compensation: "undo", Compensate: p.undo,
	}
	if seed%3 == 0 {
		p.callers = []string{"a", "b"} // whom nobody verified
	}
	if seed%5 < 2 {
		p.op.Remember = 4 * numberWindow
	}
	p.opts = semel.Options{Operations: []semel.Operation{p.op, {Name: "undo", Window: numberWindow}}, StoreTimeout: time.Minute}
	for range 2 {
		wrapped, control := faultstore.New(p.store, nil)
		e, err := semel.New(wrapped, &p.opts)
		if err != nil {
			return nil, err
		}
		p.engines, p.faults = append(p.engines, e), append(p.faults, control)
	}
	return p, nil
}

func (p *sequencePlayer) close() error {
	return errors.Join(p.engines[0].Close(context.WithoutCancel(p.ctx)), p.engines[1].Close(context.WithoutCancel(p.ctx)))
}

// undo compensates a number.
func (p *sequencePlayer) undo(_ context.Context, _ semel.Execution, original semel.Record) (semel.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undone[string(original.Result.Data)]++
	return semel.Result{}, nil
}

func (p *sequencePlayer) engine() *semel.Engine { return p.engines[p.rng.IntN(len(p.engines))] }

func (p *sequencePlayer) anyNumber() uint64 { return 1 + p.rng.Uint64N(maxNumber) }

// play plays a history, and then everything that must still be possible.
func (p *sequencePlayer) play() error {
	for range 60 {
		p.clock.advance(time.Millisecond)
		if err := p.step(); err != nil {
			return err
		}
	}
	return p.end()
}

// did notes what happened.
func (p *sequencePlayer) did(kind, about string, args ...any) {
	p.kinds[kind]++
	p.log = append(p.log, fmt.Sprintf("  %v: "+about+" %s", append(append([]any{p.clock.at.Sub(epoch)}, args...), kind)...))
}

func (p *sequencePlayer) step() error {
	switch n := p.rng.IntN(40); {
	case n < 2:
		p.faults[p.rng.IntN(2)].Next(faultstore.Apply, []faultstore.Form{faultstore.Applied, faultstore.NotApplied}[p.rng.IntN(2)], 1)
	case n < 6:
		p.pass(time.Duration(1+p.rng.IntN(3)) * 20 * time.Minute)
	case n < 9:
		_, err := p.engine().Sweep(p.ctx)
		return err
	case n < 18:
		return p.finish()
	case n < 19:
		return p.settle()
	case n < 20:
		return p.compensate()
	case n < 21:
		return p.purgeOne()
	case n == 21 && p.rng.IntN(3) == 0:
		return p.purgeAll()
	case n < 25:
		return p.interrupted()
	default:
		return p.deliver(p.engine(), p.call())
	}
	return nil
}

// pass lets time pass: leases end, and outcomes are forgotten.
func (p *sequencePlayer) pass(d time.Duration) {
	p.clock.advance(d)
	now := p.clock.at
	for i := range p.numbers {
		n := &p.numbers[i]
		if n.outcome != nil && n.outcome.until <= now {
			n.outcome = nil
		}
		maps.DeleteFunc(n.refused, func(_ string, o outcome) bool { return o.until <= now })
	}
}

// alive returns the numbers with an attempt that has a lease.
func (p *sequencePlayer) alive() (all []uint64) {
	for i := range p.numbers {
		if n := &p.numbers[i]; n.running != nil && n.lease > p.clock.at {
			all = append(all, uint64(i))
		}
	}
	return all
}

// passed returns the highest number that certainly had an effect.
func (p *sequencePlayer) passed() (n uint64) {
	for i := range p.numbers {
		if p.numbers[i].happened > p.clock.at {
			n = uint64(i)
		}
	}
	return n
}

// call returns a delivery, most often of a number that may come next.
func (p *sequencePlayer) call() semel.Call {
	number := p.anyNumber()
	if near := p.passed() + p.rng.Uint64N(3); p.rng.IntN(3) > 0 {
		number = min(max(near, 1), maxNumber)
	}
	c := p.delivery(number, p.callers[p.rng.IntN(len(p.callers))])
	if p.rng.IntN(4) == 0 {
		c.Window = shortWindow
	}
	return c
}

func (p *sequencePlayer) delivery(number uint64, caller string) semel.Call {
	return semel.Call{
		Tenant: p.id.Tenant, Principal: p.id.Principal, Operation: p.id.Operation, Key: p.id.Key, Sequence: number, BoundTo: caller,
		Fingerprint: payload(fmt.Sprint(number)),
	}
}

func (p *sequencePlayer) deliver(e *semel.Engine, c semel.Call) error {
	ans, err := e.Begin(p.ctx, c)
	if err != nil {
		return fmt.Errorf("number %d: %w", c.Sequence, err)
	}
	return p.judge(&c, &ans)
}

// judge reports whether a delivery got the right answer.
func (p *sequencePlayer) judge(c *semel.Call, ans *semel.Answer) error {
	n := &p.numbers[c.Sequence]
	p.did(string(ans.Decision), "number %d by %q gets (number %d)", c.Sequence, c.BoundTo, ans.Record.Sequence)
	want := n.outcome
	if o, ok := n.refused[c.BoundTo]; ok {
		want = &o
	}
	mine := want != nil && want.caller == c.BoundTo
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("number %d gets %s: "+format, append([]any{c.Sequence, ans.Decision}, args...)...)
	}
	former := n.former[c.BoundTo]
	switch {
	case ans.Decision == semel.Replay && former.until > p.clock.at && string(ans.Record.Result.Data) == former.text:
		return nil
	case ans.Decision == semel.Replay && mine && want.kept <= p.clock.at:
		if p.did("remembered", "number %d", c.Sequence); !errors.Is(ans.Err(), &semel.Error{Code: semel.CodeResultNotKept}) || ans.Record.Result.Data != nil {
			return wrong("%q, and %v, after the window of %+v", ans.Record.Result.Data, ans.Err(), want)
		}
		return nil
	case ans.Decision == semel.Replay && (!mine || string(ans.Record.Result.Data) != want.text):
		return wrong("%q, and not %+v", ans.Record.Result.Data, want)
	case ans.Decision == semel.Replay:
		return nil
	case mine:
		return wrong("its outcome is kept, %+v", want)
	case ans.Decision == semel.Superseded && (ans.Record.Sequence <= c.Sequence || ans.Record.Sequence > p.highest):
		return wrong("because of number %d, and %d is the highest", ans.Record.Sequence, p.highest)
	case ans.Decision == semel.SequenceGap && (!p.op.Gapless || ans.Record.Sequence >= c.Sequence):
		return wrong("because of number %d", ans.Record.Sequence)
	case ans.Decision != semel.Execute:
		if !slices.Contains([]semel.Decision{semel.InFlight, semel.Held, semel.Superseded, semel.SequenceGap, semel.OtherCaller}, ans.Decision) {
			return wrong("nothing leads to that")
		}
		return nil
	case n.outcome != nil:
		return wrong("it was completed for another caller, %+v", n.outcome)
	case c.Sequence < p.passed():
		return wrong("number %d had an effect", p.passed())
	case len(p.alive()) > 0:
		return wrong("number %d runs", p.alive())
	case p.op.Gapless && c.Sequence > 1 && !p.numbers[c.Sequence-1].mayHaveEnded(p.clock.at):
		return wrong("the one below it had no outcome")
	}
	n.ended = n.mayHaveEnded(p.clock.at)
	ans.Attempt.Detach() // the clock jumps for the store, but not for a holder in this process
	n.running, n.began, n.lease = ans.Attempt, p.clock.at, p.clock.at.Add(numberLease)
	n.crashed, n.caller, n.window = false, c.BoundTo, cmp.Or(c.Window, numberWindow)
	p.highest = max(p.highest, c.Sequence)
	return nil
}
