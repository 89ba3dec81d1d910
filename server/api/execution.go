package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
)

// attached are the codes of endpoints that name an execution.
var attached = []semel.Code{semel.CodeNotFound, semel.CodeForbidden, semel.CodeLeaseLost, semel.CodeAlreadyEnded, semel.CodeUnknown}

type executionInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The execution, as the beginning named it."`
}

// attach is the attempt that an execution names. To anyone but who began it, it
// does not exist.
func (x *exchange) attach(execution string) (*semel.Attempt, error) {
	missing := x.api.newProblem(semel.CodeNotFound, "there is no such execution, or it is not yours")
	dot := strings.LastIndexByte(execution, '.')
	if dot < 0 {
		return nil, missing
	}
	id, err := semel.DecodeID(execution[:dot])
	if err != nil || !x.own(id) {
		return nil, missing
	}
	if a := x.api; a.opts.Reserved != nil && a.opts.Reserved(id.Operation) {
		return nil, missing
	}
	fence, err := strconv.ParseInt(execution[dot+1:], 10, 64)
	if err != nil || fence <= 0 || strconv.FormatInt(fence, 10) != execution[dot+1:] {
		return nil, missing
	}
	at, err := x.api.engine.Attach(x.ctx(), id, fence)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, missing
	case err != nil:
		return nil, err
	}
	// What another door has begun is for that door to end: only it knows how its
	// answers are written.
	if op, ok := x.api.engine.Operation(id.Operation); at.Record().Door != Door && (!ok || op.Class != semel.ReadOnly) {
		return nil, missing
	}
	// Where keys are shared, or calls bound to a credential, the attempt still
	// belongs to who began it. The attempt of a read-only call is not recorded and
	// belongs to anyone.
	call := semel.Call{Operation: id.Operation, Key: id.Key}
	x.name(&call)
	if rec := at.Record(); rec.Principal != call.Principal || rec.BoundTo != call.BoundTo {
		if op, ok := x.api.engine.Operation(id.Operation); !ok || op.Class != semel.ReadOnly {
			return nil, missing
		}
	}
	return at, nil
}

// onAttempt runs f with the attempt. The holder may send two requests at once, or
// one twice: the slower one then finds the record changed and looks again, which
// tells whether it said the same.
func (x *exchange) onAttempt(execution string, f func(at *semel.Attempt) error) (*semel.Attempt, error) {
	for first := true; ; first = false {
		at, err := x.attach(execution)
		if err != nil {
			return nil, err
		}
		if err = f(at); err == nil || !first || !errors.Is(err, semel.ErrLeaseLost) {
			return at, err
		}
	}
}

// renewed is the answer to a renewal.
type renewed struct {
	Lease      int64         `json:"lease_ms"`
	LeaseUntil semel.Instant `json:"lease_until" format:"date-time"`
}

type renewOutput struct{ Body renewed }

func (b *builder) execution() {
	route(b, huma.Operation{
		OperationID: "renew", Method: http.MethodPost, Path: "/v1/executions/{execution}/renew", Tags: []string{"executions"},
		Summary:     "Extend the lease to its full time from now",
		Description: "A holder that gets lease_lost stops at once: another may be executing.",
	}, NoRole, attached, func(x *exchange, in *executionInput) (*renewOutput, error) {
		at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.Renew(x.ctx()) })
		if err != nil {
			return nil, err
		}
		rec := at.Record()
		return &renewOutput{renewed{rec.LeaseUntil.Sub(rec.UpdatedAt).Milliseconds(), rec.LeaseUntil}}, nil
	})
}
