package semel

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/engine/line"
	"github.com/semelhq/semel/internal/engine/waiting"
)

const (
	// turnWait is how long a delivery waits for its turn: a dozen others can be refused in
	// that time by an upstream that takes a third of a second, and a client that gives up
	// after ten seconds still gets an answer.
	turnWait = 5 * time.Second
	// turnRetry is when to ask again if there was no place, or no turn.
	turnRetry = time.Second
)

// turn is a delivery's place in the line of its key.
type turn struct {
	number uint64        // of the delivery; 0: it takes no turns
	until  time.Duration // when it stops waiting, by the engine's clock
	share  Share         // of its operation, which may be redeclared meanwhile
}

// turns are the lines of deliveries of callers whom nobody has verified.
type turns struct {
	line.Lines
	last  atomic.Uint64 // number
	seats waiting.Seats[[16]byte]
}

// inLine returns what a line needs to know about the call.
func (c *Call) inLine() line.Caller {
	return line.Caller{Key: c.ID(c.turn.share), Number: c.turn.number, BoundTo: c.BoundTo, Network: c.Network}
}

// Turn waits until it's the turn of a delivery that is bound to an unverified caller, and
// reports whether it is. Others don't wait. If it is, continue with the call, and call EndTurn
// when its attempt has ended, or when there is none. If it isn't, the delivery gets ans; ctx
// may have ended.
//
// A delivery waits while an attempt runs under another credential, for some seconds, in the
// order of arrival. Each [Call].Network has a place in the line before any has a second one,
// and a delivery that finds no place doesn't wait. Call Turn before you read the caller's
// payload, so that waiting deliveries have cost little. The runner of package door calls it for
// every call that has no turn yet.
func (in Internal) Turn(ctx context.Context, call *Call) (ans Answer, ok bool) {
	e := in.engine
	op, known := (*e.ops.Load())[call.Operation]
	if call.BoundTo == "" || call.turn.number != 0 || !known || op.Class == ReadOnly {
		return Answer{}, true
	}
	began := e.elapsed()
	call.turn = turn{e.turns.last.Add(1), began + turnWait, op.Share}
	mine := call.inLine()
	if e.turns.Free(&mine) {
		return Answer{}, true
	}
	d := delivery{engine: e, op: op, call: *call, id: call.ID(op.Share), began: began}
	if d.takeTurn(ctx) || e.turns.Free(&mine) {
		return Answer{}, true
	}
	d.ans = Answer{Decision: InFlight, Record: &Record{ID: d.id}, RetryAfter: turnRetry}
	var err error
	if d.at, err = e.read(ctx); err == nil {
		d.decided(ctx)
	}
	return d.ans, false
}

// EndTurn lets the next delivery have its turn, if it was this one's. It does nothing for
// a call that has taken none.
func (in Internal) EndTurn(call *Call) {
	if e := in.engine; call.turn.number != 0 {
		mine := call.inLine()
		e.turns.End(&mine, e.elapsed())
	}
}

// myTurn makes a delivery wait for its turn before it may claim. A delivery that takes no turns
// may always claim.
func (d *delivery) myTurn(ctx, calls context.Context) (next progress, err error) {
	turns, mine := &d.engine.turns, d.call.inLine()
	switch {
	case mine.Number == 0 || turns.Claim(&mine):
		return proceed, nil
	case !d.looked: // perhaps there is an outcome already
		return startOver, d.look(calls)
	case d.takeTurn(ctx) || turns.Over(&mine):
		return startOver, d.look(ctx)
	}
	d.foreign = true
	d.ans.Decision, d.ans.Record = InFlight, &Record{ID: d.id}
	return answered, nil
}

// takeTurn waits for the delivery's turn. It reports false if that hasn't come, or if
// there is nothing to wait for here: another engine runs the attempt.
func (d *delivery) takeTurn(ctx context.Context) bool {
	e := d.engine
	if d.call.turn.number == 0 || d.tx != nil { // don't keep a transaction open to wait
		return false
	}
	start := e.elapsed()
	wait := max(d.call.turn.until, d.began+d.waitTime()) - start
	if wait <= 0 || !e.turns.seats.Admit(d.call.Network) {
		return false
	}
	defer e.turns.seats.Dismiss(d.call.Network)
	me := d.call.inLine()
	over := e.turns.Join(&me, start)
	if over == nil {
		return false
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	mine := false
	select {
	case mine = <-over:
	case <-end.C:
		mine = e.turns.Leave(&me)
	case <-ctx.Done():
		mine = e.turns.Leave(&me)
	case <-e.done.Done():
		mine = e.turns.Leave(&me)
	}
	d.waited += e.elapsed() - start
	return mine
}
