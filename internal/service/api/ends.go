package api

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

type ending = func(at *semel.Attempt) error

// end registers one way to end an execution, which read takes from a body.
func end[B any](b *builder, name, summary, description string, read func(x *exchange, body B) (ending, error)) {
	route(b, about(name, "executions", "POST /v1/executions/{execution}/"+name, summary,
		description+" Repeating it is harmless; another end afterwards is already_ended."), NoRole, attached, func(x *exchange, in *onExecution[B]) (*reply[wire.RecordBody], error) {
		f, err := read(x, in.Body)
		if err != nil {
			return nil, err
		}
		body, err := x.end(in.Execution, f)
		if err != nil {
			return nil, err
		}
		return &reply[wire.RecordBody]{*body}, nil
	})
}

func (b *builder) ends() {
	end(b, "complete", "End the execution with its result", "Every duplicate gets the result.",
		func(x *exchange, body *wire.Completing) (ending, error) {
			if body == nil {
				body = &wire.Completing{}
			}
			return x.complete(body, "body")
		})
	end(b, "reject", "End the execution as refused for good", "Every duplicate gets the refusal, whatever the operation's on_failure.",
		func(x *exchange, body wire.Refusing) (ending, error) { return x.refuse(&body, (*semel.Attempt).Reject) })
	end(b, "fail", "End the execution as failed", "The operation's on_failure says whether a duplicate gets the failure or runs again. If an effect may have happened, hold instead.",
		func(x *exchange, body wire.Refusing) (ending, error) { return x.refuse(&body, (*semel.Attempt).Fail) })
	end(b, "abort", "End the execution with proof that nothing happened", "The next delivery runs again.",
		func(x *exchange, body *wire.Aborting) (ending, error) {
			var f store.Failure
			if body != nil && body.Error != nil {
				f = store.Failure(*body.Error)
			}
			return func(at *semel.Attempt) error { return at.Abort(x.ctx(), f) }, nil
		})
	end(b, "hold", "Give the execution up with an unknown outcome", "Nobody runs the call until it is settled.",
		func(x *exchange, body wire.Reasoned) (ending, error) {
			return func(at *semel.Attempt) error { return at.Hold(x.ctx(), body.Reason) }, nil
		})
	end(b, "abandon", "Give the execution up as if its holder had died", "The next delivery runs again, without waiting for the lease to end, where on_abandoned of the answer to begin is retry and no effect was started that has no result. Otherwise the call is held.",
		func(x *exchange, body wire.Reasoned) (ending, error) {
			return func(at *semel.Attempt) error { return at.Abandon(x.ctx(), body.Reason) }, nil
		})
}

// complete reads a result, and the messages to send with it. path is where their members are.
func (x *exchange) complete(body *wire.Completing, path string) (ending, error) {
	res, err := x.api.result(body.Result, path)
	if err != nil {
		return nil, err
	}
	messages, err := x.api.messages(body.Messages, path)
	if err != nil {
		return nil, err
	}
	return func(at *semel.Attempt) error {
		for _, m := range messages {
			if err := x.api.maySend(at.ID(), m.Destination); err != nil {
				return err
			}
			// An attempt that has ended has its messages already, or Complete returns the
			// error.
			if err := at.Send(m); err != nil && !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
				return err
			}
		}
		return at.Complete(x.ctx(), res)
	}, nil
}

func (x *exchange) refuse(body *wire.Refusing, f func(*semel.Attempt, context.Context, store.Failure, semel.Result) error) (ending, error) {
	res, err := x.api.result(body.Result, "body")
	return func(at *semel.Attempt) error { return f(at, x.ctx(), store.Failure(body.Error), res) }, err
}

// end ends the attempt. The end is durable before anyone gets an answer; see
// [semel.Attempt.Complete] for what a crash leaves behind.
func (x *exchange) end(execution string, f ending) (*wire.RecordBody, error) {
	at, err := x.onAttempt(execution, f)
	if err != nil {
		return nil, err
	}
	return &wire.RecordBody{Record: wire.RecordOf(at.Record())}, nil
}
