package api

import (
	"errors"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

var attached = []semel.Code{semel.CodeNotFound, semel.CodeForbidden, semel.CodeLeaseLost, semel.CodeAlreadyEnded, semel.CodeUnknown}

// onExecution is a request about an execution; it may have no body if B is a pointer.
type onExecution[B any] struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The name of the execution, from the answer to begin."`
	Body      B
}

type executionInput struct {
	Execution string `path:"execution" maxLength:"8192" doc:"The name of the execution, from the answer to begin."`
}

// attach returns the attempt of an execution. For all but whoever began it, it doesn't exist.
func (x *exchange) attach(execution string) (*semel.Attempt, error) {
	missing := x.api.newProblem(semel.CodeNotFound, "there is no such execution, or it is not yours")
	dot := strings.LastIndexByte(execution, '.')
	if dot < 0 {
		return nil, missing
	}
	id, err := store.DecodeID(execution[:dot])
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
	at, err := x.api.engine.Internal().Attach(x.ctx(), id, fence)
	switch {
	case errors.Is(err, semel.ErrNotFound):
		return nil, missing
	case err != nil:
		return nil, err
	}
	// Only the door that began a call may end it, because only that door knows the form
	// of its answers.
	if op, ok := x.api.engine.Internal().Operation(id.Operation); at.Record().Door != Name && (!ok || op.Class != semel.ReadOnly) {
		return nil, missing
	}
	// If keys are shared, or calls bound to a credential, the attempt still belongs to
	// whoever began it. The attempt of a read-only call isn't recorded, and belongs to
	// anyone.
	call := semel.Call{Operation: id.Operation, Key: id.Key}
	x.name(&call)
	if rec := at.Record(); rec.Principal != call.Principal || rec.BoundTo != call.BoundTo {
		if op, ok := x.api.engine.Internal().Operation(id.Operation); !ok || op.Class != semel.ReadOnly {
			return nil, missing
		}
	}
	return at, nil
}

// onAttempt runs f with the attempt. The holder may send two requests at once, or one
// twice. The slower one then finds the record changed, and looks again whether the other
// one did the same.
func (x *exchange) onAttempt(execution string, f ending) (*semel.Attempt, error) {
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

func (b *builder) execution() {
	route(b, about("renew", "executions", "POST /v1/executions/{execution}/renew", "Extend the lease to its full time from now",
		"If you get lease_lost, stop at once: another holder may be executing."), NoRole, attached, func(x *exchange, in *executionInput) (*reply[wire.Renewed], error) {
		at, err := x.onAttempt(in.Execution, func(at *semel.Attempt) error { return at.Renew(x.ctx()) })
		if err != nil {
			return nil, err
		}
		rec := at.Record()
		return &reply[wire.Renewed]{wire.Renewed{LeaseMS: rec.LeaseUntil.Sub(rec.UpdatedAt).Milliseconds(), LeaseUntil: rec.LeaseUntil}}, nil
	})
}
