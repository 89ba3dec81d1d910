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

type operation struct {
	Name           string   `json:"name"`
	Class          string   `json:"class" enum:"I0,I1,I2,I3"`
	Financial      bool     `json:"financial"`
	Window         int64    `json:"window_ms" doc:"How long an outcome is kept."`
	Lease          int64    `json:"lease_ms" doc:"How long a silent holder keeps the right to execute."`
	OnFailure      string   `json:"on_failure" enum:"replay,retry"`
	OnAbandoned    string   `json:"on_abandoned" enum:"hold,retry"`
	InFlight       string   `json:"in_flight" enum:"refuse,wait"`
	MaxWait        int64    `json:"max_wait_ms"`
	Share          string   `json:"share" enum:"principal,tenant"`
	MaxResult      int      `json:"max_result" doc:"The largest result that is kept, in bytes."`
	Shields        []string `json:"shields" nullable:"false"`
	Effects        []string `json:"effects,omitempty" nullable:"false" doc:"The declared effects. Absent: none are declared and any may be used."`
	Reconciles     bool     `json:"reconciles" doc:"Held records are settled by asking the provider."`
	ReconcileEvery int64    `json:"reconcile_every_ms"`
	RefuseLate     bool     `json:"refuse_late"`
	Sequenced      bool     `json:"sequenced"`
	Gapless        bool     `json:"gapless"`
	Archive        bool     `json:"archive"`
	Evidence       string   `json:"evidence" enum:"none,changes,decisions,durable"`
	Confirms       bool     `json:"confirms" doc:"A call must be confirmed before it runs."`
	Compensation   string   `json:"compensation,omitempty" doc:"The operation that undoes this one."`
	Duplicates
	Command *Declaration `json:"command,omitempty" doc:"How a registry declares the command. Absent: the operation isn't a command's."`
}

// Duplicates are the limits of duplicates.
type Duplicates struct {
	PerRecord    *rate `json:"per_record,omitempty"`
	PerPrincipal *rate `json:"per_principal,omitempty"`
}

// Declaration is what a registry says of a command beyond the policy of its operation.
type Declaration struct {
	Entity        string      `json:"entity"`
	Action        string      `json:"action"`
	Description   string      `json:"description,omitempty"`
	Justification string      `json:"justification,omitempty" doc:"Why it may be weaker, or have a shorter window, than the rules ask for."`
	Critical      bool        `json:"critical"`
	CommandKind   string      `json:"command_kind,omitempty"`
	Binding       Binding     `json:"binding"`
	Redact        []Redaction `json:"redact" nullable:"false" doc:"Parts of the outcome that not every reader sees."`
}

// Binding is to whom a command belongs.
type Binding struct {
	Principal string   `json:"principal" enum:"actor,effective_actor"`
	Acting    []string `json:"acting,omitempty" nullable:"false" doc:"Rights that let a caller act for another."`
}

// Redaction is a part of an outcome, and the right that shows it.
type Redaction struct {
	Path   string `json:"path"`
	Unless string `json:"unless,omitempty"`
}

type rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
}

func (a *API) operationOf(op semel.Operation) operation {
	v := operation{
		Name: op.Name, Class: string(op.Class), Financial: op.Financial, Window: op.Window.Milliseconds(), Lease: op.Lease.Milliseconds(),
		OnFailure: string(op.OnFailure), OnAbandoned: string(op.OnAbandoned), InFlight: string(op.InFlight), MaxWait: op.MaxWait.Milliseconds(),
		Share: string(op.Share), MaxResult: op.MaxResult, Shields: make([]string, 0, len(op.Shields)), Effects: op.Effects,
		Reconciles: op.Reconcile != nil, ReconcileEvery: op.ReconcileEvery.Milliseconds(), RefuseLate: op.RefuseLate, Sequenced: op.Sequenced, Gapless: op.Gapless, Archive: op.OnExpiry == semel.ArchiveExpired,
		Evidence: string(op.Evidence), Confirms: op.Confirmation != nil, Compensation: op.Compensation,
		Duplicates: Duplicates{rateOf(op.PerRecord), rateOf(op.PerPrincipal)},
	}
	if a.opts.Declared != nil {
		v.Command = a.opts.Declared(op.Name)
	}
	for _, s := range op.Shields {
		v.Shields = append(v.Shields, string(s))
	}
	return v
}

func rateOf(r semel.Rate) *rate {
	if r.Burst == 0 {
		return nil
	}
	return &rate{r.PerSecond, r.Burst}
}

type operationList struct {
	Operations []operation `json:"operations" nullable:"false"`
}

type operationInput struct {
	Operation string `path:"operation" maxLength:"256"`
}

func (b *builder) operations() {
	route(b, about("listOperations", "operations", "GET /v1/operations", "List the declared operations",
		""), NoRole, nil, func(x *exchange, _ *struct{}) (*reply[operationList], error) {
		out := &reply[operationList]{operationList{Operations: []operation{}}}
		for _, op := range x.api.engine.Internal().Operations() {
			out.Body.Operations = append(out.Body.Operations, x.api.operationOf(op))
		}
		return out, nil
	})
	route(b, about("getOperation", "operations", "GET /v1/operations/{operation}", "Read the policy of an operation",
		""), NoRole, []semel.Code{semel.CodeUnknownOperation}, func(x *exchange, in *operationInput) (*reply[operation], error) {
		op, ok := x.api.engine.Internal().Operation(in.Operation)
		if !ok {
			return nil, x.api.newProblem(semel.CodeUnknownOperation, "")
		}
		return &reply[operation]{x.api.operationOf(op)}, nil
	})
}
