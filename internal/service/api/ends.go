package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

type recordOutput struct{ Body wire.RecordBody }

// end registers one way to end an execution.
func end[B any](b *builder, name, summary, description string, f func(x *exchange, in *onExecution[B]) (*wire.RecordBody, error)) {
	route(b, huma.Operation{
		OperationID: name, Method: http.MethodPost, Path: "/v1/executions/{execution}/" + name, Tags: []string{"executions"},
		Summary: summary, Description: description + " Repeating it is harmless; another end afterwards is already_ended.",
	}, NoRole, attached, func(x *exchange, in *onExecution[B]) (*recordOutput, error) {
		body, err := f(x, in)
		if err != nil {
			return nil, err
		}
		return &recordOutput{*body}, nil
	})
}

func (b *builder) ends() {
	end(b, "complete", "End the execution with its result", "Every duplicate gets the result.",
		func(x *exchange, in *onExecution[*wire.Completing]) (*wire.RecordBody, error) {
			if in.Body == nil {
				in.Body = &wire.Completing{}
			}
			return x.completeWith(in.Execution, in.Body)
		})
	end(b, "reject", "End the execution as refused for good", "Every duplicate gets the refusal, whatever the operation's on_failure.",
		func(x *exchange, in *onExecution[wire.Refusing]) (*wire.RecordBody, error) {
			return x.refuse(in, (*semel.Attempt).Reject)
		})
	end(b, "fail", "End the execution as failed", "The operation's on_failure says whether a duplicate gets the failure or runs again. If an effect may have happened, hold instead.",
		func(x *exchange, in *onExecution[wire.Refusing]) (*wire.RecordBody, error) {
			return x.refuse(in, (*semel.Attempt).Fail)
		})
	end(b, "abort", "End the execution with proof that nothing happened", "The next delivery runs again.",
		func(x *exchange, in *onExecution[*wire.Aborting]) (*wire.RecordBody, error) {
			var f store.Failure
			if in.Body != nil && in.Body.Error != nil {
				f = store.Failure(*in.Body.Error)
			}
			return x.end(in.Execution, func(at *semel.Attempt) error { return at.Abort(x.ctx(), f) })
		})
	end(b, "hold", "Give the execution up with an unknown outcome", "Nobody runs the call until it is settled.",
		func(x *exchange, in *onExecution[wire.Reasoned]) (*wire.RecordBody, error) {
			return x.end(in.Execution, func(at *semel.Attempt) error { return at.Hold(x.ctx(), in.Body.Reason) })
		})
	end(b, "abandon", "Give the execution up as if its holder had died", "The next delivery runs again, without waiting for the lease to end, where on_abandoned of the answer to begin is retry and no effect was started that has no result. Otherwise the call is held.",
		func(x *exchange, in *onExecution[wire.Reasoned]) (*wire.RecordBody, error) {
			return x.end(in.Execution, func(at *semel.Attempt) error { return at.Abandon(x.ctx(), in.Body.Reason) })
		})
}

func (x *exchange) complete(execution string, given wire.Result, path string) (*wire.RecordBody, error) {
	res, err := x.api.result(given, path)
	if err != nil {
		return nil, err
	}
	return x.end(execution, func(at *semel.Attempt) error { return at.Complete(x.ctx(), res) })
}

func (x *exchange) refuse(in *onExecution[wire.Refusing], f func(*semel.Attempt, context.Context, store.Failure, semel.Result) error) (*wire.RecordBody, error) {
	res, err := x.api.result(in.Body.Result, "body")
	if err != nil {
		return nil, err
	}
	return x.end(in.Execution, func(at *semel.Attempt) error { return f(at, x.ctx(), store.Failure(in.Body.Error), res) })
}

// end ends the attempt. The end is durable before anyone gets an answer; see
// [semel.Attempt.Complete] for what a crash leaves behind.
func (x *exchange) end(execution string, f func(at *semel.Attempt) error) (*wire.RecordBody, error) {
	at, err := x.onAttempt(execution, f)
	if err != nil {
		return nil, err
	}
	return &wire.RecordBody{Record: wire.RecordOf(at.Record())}, nil
}
