package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
)

type completeInput struct {
	Execution string      `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      *completing `required:"false"`
}

// refusing is how an attempt ends that failed.
type refusing struct {
	Error       failure         `json:"error"`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultBytes *string         `json:"result_base64,omitempty"`
}

type refuseInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      refusing
}

// aborting is how an attempt ends of which nothing happened.
type aborting struct {
	Error *failure `json:"error,omitempty"`
}

type abortInput struct {
	Execution string    `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      *aborting `required:"false"`
}

// reasoned is what is done for a reason.
type reasoned struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"For people."`
}

type holdInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
	Body      reasoned
}

// recordBody is an answer that is a record.
type recordBody struct {
	Record record `json:"record"`
}

type recordOutput struct{ Body recordBody }

// end registers one way to end an execution.
func end[I any](b *builder, name, summary, description string, f func(x *exchange, in *I) (*recordBody, error)) {
	route(b, huma.Operation{
		OperationID: name, Method: http.MethodPost, Path: "/v1/executions/{execution}/" + name, Tags: []string{"executions"},
		Summary: summary, Description: description + " Repeating it is harmless; another end afterwards is already_ended.",
	}, NoRole, attached, func(x *exchange, in *I) (*recordOutput, error) {
		body, err := f(x, in)
		if err != nil {
			return nil, err
		}
		return &recordOutput{*body}, nil
	})
}

func (b *builder) ends() {
	end(b, "complete", "End the execution with its result", "Every duplicate gets the result.",
		func(x *exchange, in *completeInput) (*recordBody, error) {
			if in.Body == nil {
				in.Body = &completing{}
			}
			return x.completeWith(in.Execution, *in.Body)
		})
	end(b, "reject", "End the execution as refused for good", "Every duplicate gets the refusal, whatever the operation's on_failure.",
		func(x *exchange, in *refuseInput) (*recordBody, error) {
			return x.refuse(in, (*semel.Attempt).Reject)
		})
	end(b, "fail", "End the execution as failed", "The operation's on_failure says whether a duplicate gets the failure or runs again. Where an effect may have happened, hold instead.",
		func(x *exchange, in *refuseInput) (*recordBody, error) {
			return x.refuse(in, (*semel.Attempt).Fail)
		})
	end(b, "abort", "End the execution with proof that nothing happened", "The next delivery runs again.",
		func(x *exchange, in *abortInput) (*recordBody, error) {
			var f semel.Failure
			if in.Body != nil && in.Body.Error != nil {
				f = *in.Body.Error.kept()
			}
			return x.end(in.Execution, func(at *semel.Attempt) error { return at.Abort(x.ctx(), f) })
		})
	end(b, "hold", "Give the execution up with an unknown outcome", "Nobody runs the call until it is settled.",
		func(x *exchange, in *holdInput) (*recordBody, error) {
			return x.end(in.Execution, func(at *semel.Attempt) error { return at.Hold(x.ctx(), in.Body.Reason) })
		})
}

func (x *exchange) complete(execution string, g given, path string) (*recordBody, error) {
	res, err := x.api.result(g, path)
	if err != nil {
		return nil, err
	}
	return x.end(execution, func(at *semel.Attempt) error { return at.Complete(x.ctx(), res) })
}

func (x *exchange) refuse(in *refuseInput, f func(*semel.Attempt, context.Context, semel.Failure, semel.Result) error) (*recordBody, error) {
	res, err := x.api.result(given{in.Body.Result, in.Body.ResultBytes}, "body")
	if err != nil {
		return nil, err
	}
	return x.end(in.Execution, func(at *semel.Attempt) error { return f(at, x.ctx(), *in.Body.Error.kept(), res) })
}

// end ends the attempt. What it writes is durable before anyone is answered; see
// [semel.Attempt.Complete] for what a crash leaves behind.
func (x *exchange) end(execution string, f func(at *semel.Attempt) error) (*recordBody, error) {
	at, err := x.onAttempt(execution, f)
	if err != nil {
		return nil, err
	}
	return &recordBody{x.api.viewOf(at.Record())}, nil
}
