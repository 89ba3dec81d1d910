package door

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/store"
)

// Delivery is one request at a door that answers its callers.
type Delivery struct {
	// Name is the door's, as in [semel.Call].Door.
	Name string
	// Header has the request's headers. Nil if the protocol has none.
	Header map[string][]string
	// Call makes the call that the request delivers. The code of its error is why the
	// request is refused. Work begins only after it, so it may fill in what Work is to do.
	Call func(ctx context.Context) (semel.Call, error)
	Work Work
	// Answer makes the answer to the caller, and adds to the reply's Event what the engine
	// doesn't know of it. Optional: the answer can also be made when Deliver has returned.
	Answer func(ctx context.Context, r *Reply)
}

// Reply is what a delivery gets.
type Reply struct {
	// Answer is the engine's; without a Decision if it has decided nothing.
	semel.Answer
	// Result is the recorded one. If the Decision is Execute there is none, because the
	// handler has kept what its caller gets.
	Result semel.Result
	// Err is why the caller gets no outcome; [CodeOf] is its code. Never tell a success
	// beside it.
	Err error
	// Event is what Answered of [semel.Events] gets, by default with the code of Err.
	Event semel.Event
}

// Deliver takes a request from its arrival to its reply: it tells the engine's Events that
// the request has arrived, makes and runs its call by [Runner.Do], finds the outcome, and
// tells the Events of the reply. It also does if the handler panics, which goes on as it is.
func (r *Runner) Deliver(ctx context.Context, d Delivery) Reply {
	tap := r.engine.Internal()
	ctx = tap.Arrived(ctx, d.Name, d.Header)
	reply := Reply{Event: semel.Event{Code: CodeInternal}}
	defer func() {
		if !errors.Is(reply.Err, body.ErrRefused) { // who refuses the body tells of it
			tap.Answered(ctx, reply.Event)
		}
	}()
	call, err := d.Call(ctx)
	if err == nil {
		reply.Answer, err = r.Do(ctx, call, d.Work)
	}
	reply.Result, reply.Err = Outcome(&reply.Answer, err)
	reply.Event = EventOf(&reply.Answer)
	if reply.Err != nil {
		reply.Event.Code = CodeOf(reply.Err)
	}
	if d.Answer != nil {
		d.Answer(ctx, &reply)
	}
	return reply
}

// CodeOfEnding is why a call that has ended so has no success; empty if it has one. It is
// [semel.CodeHeld] if nobody knows how it ended, so that nobody is told of a failure.
func CodeOfEnding(d store.Disposition) semel.Code {
	switch d {
	case semel.DispositionCompleted:
		return ""
	case semel.DispositionRejected:
		return semel.CodeRejected
	case semel.DispositionFailed:
		return semel.CodeFailed
	case semel.DispositionAborted:
		return semel.CodeAborted
	}
	return semel.CodeHeld
}
