package ids

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/settle"
	"github.com/semelhq/semel/store"
)

// Operation returns the command's policy for an engine. b has the functions that the
// declaration names; a missing one is an error.
func (e *Entry) Operation(b *Bindings) (semel.Operation, error) {
	b = cmp.Or(b, &Bindings{})
	l := &linter{Report: newReport(LoadOptions{}), known: b, at: e.Name()}
	l.needs(e)
	if len(l.List) > 0 {
		return semel.Operation{}, l.Sorted()
	}
	op := e.operation(b, false)
	return op, op.Validate()
}

// Operations returns the policies of all commands; see [Entry.Operation].
func (r *Registry) Operations(b *Bindings) ([]semel.Operation, error) {
	var ops []semel.Operation
	var errs []error
	for i := range r.Commands {
		op, err := r.Commands[i].Operation(b)
		ops, errs = append(ops, op), append(errs, err)
	}
	return ops, errors.Join(errs...)
}

// operation converts a declaration. With blank, functions that do nothing replace those that b
// lacks, so that the rest can be checked.
func (e *Entry) operation(b *Bindings, blank bool) semel.Operation {
	op := semel.Operation{
		Name: e.Name(), Class: e.Class, Financial: e.Financial, Window: time.Duration(e.Window), Remember: time.Duration(b.remember),
		Lease: time.Duration(e.Lease), MaxWait: time.Duration(e.MaxWait),
		OnExpiry:   semel.DeleteExpired,
		RefuseLate: e.Late == LateRefused, OnFailure: e.OnFailure, OnAbandoned: e.OnAbandoned, Evidence: e.Evidence,
		PerRecord: semel.Rate(e.PerRecord), PerPrincipal: semel.Rate(e.PerPrincipal),
	}
	if *e.Archive {
		op.OnExpiry = semel.ArchiveExpired
	}
	if b.Authorize != nil {
		op.Authorize = func(ctx context.Context, call semel.Call, rec semel.Record) error {
			return b.Authorize(ctx, e, call, rec)
		}
	}
	if e.Binding.Principal == BindEffectiveActor {
		// Several callers act for one principal, and must find the same record. The
		// key includes that principal (IDS-VII.6), so they can't find anybody else's.
		op.Share = semel.ShareTenant
	}
	ask := cmp.Or(b.ask, &asker{})
	if c := e.Confirmation; c != nil {
		op.Confirmation = &semel.ConfirmationPolicy{TTL: time.Duration(c.TTL), MaxTries: c.MaxTries, StepUp: b.StepUps[c.StepUp]}
		if c.StepUpURL != "" {
			op.Confirmation.StepUp = ask.stepUp(c.StepUpURL)
		}
	}
	for i := range e.Shields {
		s := &e.Shields[i]
		op.Shields = append(op.Shields, s.Strategy)
		op.Effects = append(op.Effects, s.Effects...)
		if s.Strategy != semel.ShieldReconcile {
			continue
		}
		op.Reconcile = b.Reconcilers[s.Reconciler]
		op.ReconcileEvery, op.Compensation, op.Compensate = time.Duration(s.Every), s.Compensation, b.Compensators[s.Compensator]
		if s.ReconcileURL != "" {
			op.Reconcile = settle.By(ask.reconcile(s.ReconcileURL), e.found(""))
		}
		if asked, err := reconcile.New(s.Reconcile); err == nil { // it was checked
			op.Reconcile = settle.By(asked.Ask, e.found(asked.Name()))
		}
		if s.CompensateURL != "" {
			op.Compensate = ask.compensate(e, s)
		}
		if blank {
			op.Reconcile = func(context.Context, semel.Record) (semel.Settlement, error) { return semel.Settlement{}, nil }
			op.Compensate = func(context.Context, semel.Execution, semel.Record) (semel.Result, error) { return semel.Result{}, nil }
		}
	}
	return op
}

// Name marks the records of commands; see [semel.Call].Door.
const Name = "ids"

// Call returns the command's call for an engine, by a caller who was verified to be principal.
// The record keeps the command's ids as attributes.
func (d *Derivation) Call(principal string) semel.Call {
	c := &d.Command
	call := semel.Call{
		Tenant: c.TenantID, Operation: c.Intent.Name(), Key: d.RecordKey, Principal: principal, Fingerprint: d.Fingerprint, Door: Name,
		Confirm: c.ConfirmationToken, StepUp: c.StepUp,
	}
	if d.Entry != nil && d.Entry.Late == LateRefused {
		call.FirstSent = cmp.Or(c.SentAt, c.ReceivedAt)
	}
	call.Attributes = store.Attributes{
		semel.AttributeCommandID: c.CommandID, "correlation_id": c.CorrelationID, "idempotency_key": d.Key,
		"actor_id": c.ActorID, "effective_actor_id": c.EffectiveActorID, "command_kind": c.CommandKind,
		"trace." + TraceMessageID: c.Trace[TraceMessageID], "trace." + TracePhoneNumberID: c.Trace[TracePhoneNumberID],
	}
	maps.DeleteFunc(call.Attributes, func(_, value string) bool { return value == "" })
	return call
}
