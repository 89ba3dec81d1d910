package api

import (
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/internal/verdict/facts"
	"github.com/semelhq/semel/internal/wire"
)

// views show records with the verdict on each, if the store gives its time. With read, a verdict has
// what the evidence log tells of earlier records, where the caller may read it.
func (x *exchange) views(records []semel.Record, read bool) []wire.Record {
	all, known := make([]wire.Record, len(records)), x.facts(records, read)
	for i := range records {
		all[i] = wire.RecordOf(&records[i])
		if known != nil {
			all[i].Verdict = new(verdict.Of(&known[i]))
		}
	}
	return all
}

func (x *exchange) facts(records []semel.Record, read bool) []verdict.Facts {
	all, _ := facts.Of(x.ctx(), x.api.engine, records) // without them the records can be shown all the same
	var readable []*verdict.Facts
	for i := range all {
		f := &all[i]
		if x.maySee(f.Record) {
			f.Payload = f.Record.Payload
		}
		if read && x.readsEvidence(f.Record.ID) {
			readable = append(readable, f)
		}
	}
	_ = facts.Earlier(x.ctx(), x.api.opts.Evidence, readable...) // without it the sentence says what nobody knows
	return all
}

// maySee reports whether the caller may see payloads of the record's call.
func (x *exchange) maySee(rec *semel.Record) bool {
	return x.oversees(rec.ID.Tenant) && x.caller.Role >= Operator
}

// view shows one record.
func (x *exchange) view(rec *semel.Record) wire.Record {
	return x.views([]semel.Record{*rec}, true)[0]
}

func (x *exchange) viewWithCounts(rec *semel.Record) (wire.Record, error) {
	v := x.view(rec)
	counts, err := x.api.observer.tally.Of(x.ctx(), rec)
	if errors.Is(err, form.ErrNewer) {
		return v, nil // without counts rather than with too few; the record itself can be shown
	}
	v.Decisions = counts
	if counts[semel.Conflict] > 0 && v.Verdict != nil && x.maySee(rec) {
		_ = facts.Refused(x.ctx(), x.api.observer.conflicts, rec, v.Verdict) // without it the record can be shown
	}
	return v, err
}

type operationInput struct {
	Operation string `path:"operation" maxLength:"256"`
}

func (b *builder) operations() {
	shown := func(x *exchange, op semel.Operation) wire.Operation {
		v := wire.OperationOf(&op)
		if x.api.opts.Declared != nil {
			v.Command = x.api.opts.Declared(op.Name)
		}
		return v
	}
	route(b, about("listOperations", "operations", "GET /v1/operations", "List the declared operations",
		""), NoRole, nil, func(x *exchange, _ *struct{}) (*reply[wire.OperationList], error) {
		out := &reply[wire.OperationList]{wire.OperationList{Operations: []wire.Operation{}}}
		for _, op := range x.api.engine.Internal().Operations() {
			out.Body.Operations = append(out.Body.Operations, shown(x, op))
		}
		return out, nil
	})
	route(b, about("getOperation", "operations", "GET /v1/operations/{operation}", "Read the policy of an operation",
		""), NoRole, []semel.Code{semel.CodeUnknownOperation}, func(x *exchange, in *operationInput) (*reply[wire.Operation], error) {
		op, ok := x.api.engine.Internal().Operation(in.Operation)
		if !ok {
			return nil, x.api.newProblem(semel.CodeUnknownOperation, "")
		}
		return &reply[wire.Operation]{shown(x, op)}, nil
	})
}
