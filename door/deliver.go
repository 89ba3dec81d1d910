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
	Name   string              // the door's name, as in [semel.Call].Door
	Header map[string][]string // the request's headers; nil if the protocol has none
	// Call makes the call that the request delivers. The code of its error says why the request
	// is refused. It may also set up Work, which begins later.
	Call func(ctx context.Context) (semel.Call, error)
	Work Work
	// Answer, which is optional, makes the answer to the caller, and adds to the reply's Event.
	Answer func(ctx context.Context, r *Reply)
}

// Reply is the answer of the engine to a delivery.
type Reply struct {
	semel.Answer // the engine's; without a Decision if it made none
	// Result is the recorded result, if Err is nil. For Execute there is none, because the
	// handler has kept the caller's answer.
	Result semel.Result
	// Err is why the caller gets no outcome; [CodeOf] returns its code.
	Err error
	// Event goes to Answered of [semel.Events]; by default it has that code.
	Event semel.Delivered
}

// Deliver takes a request from its arrival to its reply, inside [Tell]: it makes the call, runs
// it by [Runner.Do], and finds the outcome.
func (r *Runner) Deliver(ctx context.Context, d Delivery) (reply Reply) {
	Tell(ctx, r.engine.Internal(), d.Name, d.Header, func(ctx context.Context) (semel.Delivered, bool) {
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
		return reply.Event, !errors.Is(reply.Err, body.ErrRefused)
	})
	return reply
}

// Tell runs answer between Arrived and Answered of the engine's Events, for a delivery that
// isn't one [Runner.Do]. If answer panics, the event has [CodeInternal], and the panic
// continues. If it reports false, somebody else sends the event.
func Tell(ctx context.Context, tap semel.Internal, name string, header map[string][]string, answer func(ctx context.Context) (semel.Delivered, bool)) {
	ctx = tap.Arrived(ctx, name, header)
	e, ours := semel.Delivered{Code: CodeInternal}, true
	defer func() {
		if ours {
			tap.Answered(ctx, e)
		}
	}()
	e, ours = answer(ctx)
}

// CodeOfEnding says why a call that ended like this didn't succeed; empty if it did. It is
// [semel.CodeHeld] if nobody knows how it ended, which isn't a failure.
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
