package semel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Reconciler finds out what became of a held record, usually by asking the
// provider with the key of the effect. It is a question: it must not repeat the
// effect. It may be asked by several engines at once. An error, or the zero
// Settlement, leaves the record held; it is asked again later.
type Reconciler func(ctx context.Context, held Record) (Settlement, error)

// Settlement says what became of a held record (IDS-XI.S4).
type Settlement struct {
	// Outcome ends the attempt: completed, rejected or failed with Result and
	// Failure; aborted if nothing happened, so that the next delivery runs
	// again; abandoned to let it run again although nobody knows, which may
	// repeat what the attempt did. Zero: only Effects are settled.
	Outcome Disposition
	Result  Result
	Failure *Failure
	// Messages are what the call sends, for the outcome completed only. Those that
	// its holder gave to [Attempt.Send] were in its memory and are not known here;
	// one that is said again by the same name has the same ID.
	Messages []Message
	// Effects settles effects that were started and have no result. When the
	// ledger has none left and Outcome is empty, the attempt is abandoned: the
	// next delivery runs again and replays what is recorded.
	Effects []EffectFinding
	// RetryAfter is when to ask again if the record stays held. Defaults to
	// Operation.ReconcileEvery.
	RetryAfter time.Duration
	// Force settles a record of an operation that the engine does not know. The
	// policy in the record says how long the outcome is kept. Only for
	// [Engine.Settle].
	Force bool
}

// EffectFinding says what became of one effect.
type EffectFinding struct {
	Name string
	// State is [EffectConfirmed] or [EffectRefuted].
	State   EffectState
	Result  Result
	Failure *Failure
}

// Settle ends or changes a held record by an operator's word. The reason goes to
// Events. A record that is not held, or that was first changed by another, is
// refused with [CodeIllegalTransition], and one of an operation that is not
// registered here with [CodeUnknownOperation], unless it is forced.
func (e *Engine) Settle(ctx context.Context, id ID, s Settlement, reason string) (Record, error) {
	op, known := e.judge(id.Operation)
	if !known && !s.Force {
		return Record{}, errUnknownHere(id.Operation)
	}
	if !known {
		op = e.policyOf(id.Operation)
	}
	rec, err := e.get(ctx, id)
	if err != nil {
		return Record{}, e.storeError("get", id, err)
	}
	if rec.Held == "" {
		return rec, &Error{Code: CodeIllegalTransition, Message: "the record is not held"}
	}
	next, err := e.settle(ctx, op, &rec, s, "operator", reason)
	return *next, err
}

// policyOf is the registered operation, or the defaults for one that this engine
// does not know. What its attempts promised is in their records.
func (e *Engine) policyOf(name string) *operation {
	if op, ok := (*e.ops.Load())[name]; ok {
		return op
	}
	op := Operation{Name: name}
	if _, ok := e.store.(EvidenceStore); ok && evidenceRefused(e.store) == nil && e.opts.Witness != nil {
		op.Evidence = EvidenceChanges // it may demand evidence where it is known
	}
	return e.newOperation(op)
}

// settle applies a settlement to a held record. It returns what is stored
// afterwards, as far as that is known.
func (e *Engine) settle(ctx context.Context, op *operation, rec *Record, s Settlement, by, reason string) (*Record, error) {
	now, err := e.now(ctx)
	if err != nil {
		return rec, err
	}
	next, err := settled(rec, s, now, op.ReconcileEvery)
	if err != nil {
		return rec, err
	}
	change := ChangeHeld
	if next.State.Terminal() {
		change = ChangeEnded
	} else if len(s.Effects) > 0 {
		change = ChangeEffect
	}
	v := e.stamp(&op.Operation, rec, next, change)
	// A crash before this write leaves the record held as it was, to be asked
	// about again. A crash after it leaves nothing to do.
	cur, applied, err := e.apply(ctx, v)
	if err != nil {
		return rec, err
	}
	if !applied {
		return cur, &Error{Code: CodeIllegalTransition, Message: "the record was changed by another"}
	}
	if next.State.Terminal() {
		e.ended(next, by, reason)
	}
	return next, nil
}

// settled is the pure part of settle. A record that stays held is asked about again
// after a pause.
func settled(cur *Record, s Settlement, now Instant, pause time.Duration) (*Record, error) {
	if len(s.Messages) > 0 && s.Outcome != DispositionCompleted {
		return nil, &Error{Code: CodeInvalidCall, Message: "only a call that was completed sends messages"}
	}
	_, wasOpen := cur.openEffect()
	cur, err := settledEffects(cur, s, now)
	if err != nil {
		return nil, err
	}
	switch s.Outcome {
	case DispositionCompleted:
		var outbox []Message
		for _, m := range s.Messages {
			if outbox, err = addMessage(outbox, m, cur.ID, cur.Origin); err != nil {
				return nil, err
			}
		}
		next, err := end(cur, evComplete, now, s.Result, nil)
		if err == nil {
			next.send(outbox, now)
		}
		return next, err
	case DispositionRejected:
		return end(cur, evReject, now, s.Result, s.Failure)
	case DispositionFailed:
		return end(cur, evFail, now, s.Result, s.Failure)
	case DispositionAborted:
		return end(cur, evAbort, now, Result{}, s.Failure)
	case DispositionAbandoned:
		if ef, open := cur.openEffect(); open {
			return nil, &Error{Code: CodeIllegalTransition, Message: "effect " + ef.Name + " has no result: say what became of it first"}
		}
		return end(cur, evAbandon, now, Result{}, s.Failure)
	case unended:
		if _, open := cur.openEffect(); wasOpen && !open {
			return end(cur, evAbandon, now, Result{}, nil)
		}
		next, err := hold(cur, cur.Held, now)
		if err == nil && cur.NextAt != 0 { // or no reconciler is to be asked
			next.NextAt = now.Add(cmp.Or(s.RetryAfter, pause))
		}
		return next, err
	}
	return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("a held record can't be settled as %q", s.Outcome)}
}

// settledEffects applies the findings to the ledger. An attempt of which nothing
// happened leaves no effect open.
func settledEffects(cur *Record, s Settlement, now Instant) (*Record, error) {
	findings := s.Effects
	for _, f := range findings {
		i := cur.effectIndex(f.Name)
		if i < 0 || cur.Effects[i].State != EffectStarted {
			return nil, &Error{Code: CodeIllegalTransition, Message: fmt.Sprintf("effect %q is not open", f.Name)}
		}
		if f.State != EffectConfirmed && f.State != EffectRefuted {
			return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("effect %q can be confirmed or refuted, not %q", f.Name, f.State)}
		}
	}
	if s.Outcome == DispositionAborted {
		for _, ef := range cur.Effects {
			if ef.State == EffectStarted && !slices.ContainsFunc(findings, func(f EffectFinding) bool { return f.Name == ef.Name }) {
				findings = append(slices.Clip(findings), EffectFinding{Name: ef.Name, State: EffectRefuted})
			}
		}
	}
	for _, f := range findings {
		next, err := changeEffect(cur, f.Name, now, f.settle(&cur.Policy, now))
		if err != nil {
			return nil, err
		}
		cur = next
	}
	return cur, nil
}

// settle is how the finding changes its effect.
func (f EffectFinding) settle(p *Policy, now Instant) func(*EffectRecord) {
	if len(f.Result.Data) > p.MaxResult {
		f.Result = Result{Tombstone: true}
	}
	return func(ef *EffectRecord) {
		ef.State, ef.Result, ef.Failure, ef.SettledAt = f.State, f.Result, f.Failure.kept(), now
	}
}

func (s *Settlement) isZero() bool {
	return s.Outcome == unended && len(s.Effects) == 0 && len(s.Messages) == 0 && s.RetryAfter == 0
}
