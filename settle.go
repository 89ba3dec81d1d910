package semel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/engine/guard"
	"github.com/semelhq/semel/store"
)

// Reconciler finds out what happened to a held record, usually by asking the provider
// with the effect's key. It must not repeat the effect. Several engines may call it at
// once. An error, or the zero Settlement, leaves the record held; the reconciler is
// called again later.
type Reconciler func(ctx context.Context, held Record) (Settlement, error)

// Settlement says what happened to a held record (IDS-XI.S4).
type Settlement struct {
	// Outcome ends the attempt: completed, rejected or failed with Result and
	// Failure; aborted if nothing happened, so that the next delivery runs
	// again; abandoned to let it run again although its outcome is unknown, which may
	// repeat effects of the attempt. Zero: only Effects are settled.
	Outcome store.Disposition
	Result  Result
	Failure *store.Failure
	// Messages are sent by the call, for the outcome completed only. Messages that its
	// holder gave to [Attempt.Send] were in its memory and are lost; a message with the
	// same name gets the same ID here.
	Messages []Message
	// Effects settles effects that were started and have no result. When the ledger has none
	// left and Outcome is empty, the attempt is abandoned: the next delivery runs again and
	// replays the recorded effects.
	Effects []store.EffectFinding
	// RetryAfter is when to ask the reconciler again if the record stays held. Defaults to
	// Operation.ReconcileEvery. If an operator's settlement has nothing else, it only changes
	// this time.
	RetryAfter time.Duration
	// Who is the operator who settles, or whom the reconciler asked. The record holds it, for
	// people. Optional.
	Who string
	// Fence, if set, must be the fence of the record's newest attempt: what you know of one
	// attempt says nothing about the next. Otherwise nothing is changed, and the error is
	// [CodeIllegalTransition]. Zero: whatever attempt is held.
	Fence int64
	// Force settles a record of an operation that isn't registered with the engine. The policy
	// in the record sets the outcome's window. Only for [Engine.Settle].
	Force bool
}

// Settle ends or changes a held record, for an operator. The reason, and who gave it, go into
// the record, see [store.Settled], and to Events. Settle refuses a record that isn't held, or
// that has changed meanwhile, with [CodeIllegalTransition], and one of an operation that isn't
// registered here with [CodeUnknownOperation], unless it is forced.
func (e *Engine) Settle(ctx context.Context, id ID, s Settlement, reason string) (Record, error) {
	op, err := e.operationFor(id.Operation, s.Force)
	if err != nil {
		return Record{}, err
	}
	rec, err := e.get(ctx, id)
	if err != nil {
		return Record{}, err
	}
	if !rec.Held {
		return *rec, &Error{Code: CodeIllegalTransition, Message: "the record is not held"}
	}
	next, err := e.settle(ctx, op, rec, s, store.Settled{By: store.ByOperator, Who: s.Who, Reason: reason})
	return *next, err
}

// operationFor returns the operation for settling or purging a record. An operator has to
// force it if the operation isn't registered, since this program may not know its policy.
func (e *Engine) operationFor(name string, force bool) (*operation, error) {
	op, known := e.handles(name)
	switch {
	case known:
		return op, nil
	case force:
		return e.policyOf(name), nil
	}
	return nil, &Error{Code: CodeUnknownOperation, Message: "operation " + name + " is not registered here: ask a program that knows it, or force it"}
}

// policyOf returns the registered operation, or the defaults for one that isn't registered with
// this engine. The policy of its attempts is in their records.
func (e *Engine) policyOf(name string) *operation {
	if op, ok := (*e.ops.Load())[name]; ok {
		return op
	}
	op := Operation{Name: name}
	if e.extras.Evidence != nil && e.opts.Witness != nil {
		op.Evidence = EvidenceChanges // it may demand evidence where it is registered
	}
	return e.newOperation(op)
}

// settle applies a settlement to a held record. It returns the stored record, as far as it
// knows.
func (e *Engine) settle(ctx context.Context, op *operation, rec *Record, s Settlement, by store.Settled) (*Record, error) {
	now, err := e.now(ctx)
	if err != nil {
		return rec, err
	}
	by = store.Settled{By: by.By, Who: keptText(by.Who), Reason: keptText(by.Reason), At: now}
	next, err := settled(rec, s, &by, op.ReconcileEvery)
	if err != nil {
		return rec, err
	}
	change, ended := store.ChangePostponed, (*store.Settled)(nil) // nobody knows yet: ask again
	switch {
	case next.State.Terminal():
		change, ended = store.ChangeSettled, &by
	case len(s.Effects) > 0:
		change = store.ChangeEffect
	}
	// A crash before this write leaves the record held as it was, and the reconciler is
	// called again. A crash after it leaves nothing to do.
	cur, applied, err := e.replace(ctx, op, rec, next, change, ended)
	switch {
	case err != nil:
		return rec, err
	case !applied:
		return cur, &Error{Code: CodeIllegalTransition, Message: "the record was changed by another"}
	}
	return next, nil
}

// settled is the pure part of settle: it returns cur's successor, which names by. If the
// record stays held, its reconciler is called again after a pause.
func settled(cur *Record, s Settlement, by *store.Settled, pause time.Duration) (*Record, error) {
	next, err := settledRecord(cur, s, by, pause)
	if err == nil && next.State.Terminal() {
		next.Settled = by
	}
	return next, err
}

func settledRecord(cur *Record, s Settlement, by *store.Settled, pause time.Duration) (*Record, error) {
	now := by.At
	if err := seen(cur, s.Fence); err != nil {
		return nil, err
	}
	if len(s.Messages) > 0 && s.Outcome != DispositionCompleted {
		return nil, &Error{Code: CodeInvalidCall, Message: "only a call that was completed sends messages"}
	}
	_, wasOpen := openEffect(cur)
	cur, err := settledEffects(cur, s, by)
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
			addOutbox(next, outbox, now)
		}
		return next, err
	case DispositionRejected:
		return end(cur, evReject, now, s.Result, s.Failure)
	case DispositionFailed:
		return end(cur, evFail, now, s.Result, s.Failure)
	case DispositionAborted:
		return end(cur, evAbort, now, Result{}, s.Failure)
	case DispositionAbandoned:
		if ef, open := openEffect(cur); open {
			return nil, &Error{Code: CodeIllegalTransition, Message: "effect " + ef.Name + " has no result: say what became of it first"}
		}
		return end(cur, evAbandon, now, Result{}, s.Failure)
	case unended:
		if _, open := openEffect(cur); wasOpen && !open {
			return end(cur, evAbandon, now, Result{}, nil)
		}
		next, err := hold(cur, cur.HeldReason, now)
		if err != nil {
			return nil, err
		}
		if next.NextAt = cur.NextAt; cur.Policy.Reconcile || s.RetryAfter > 0 {
			next.NextAt = now.Add(cmp.Or(s.RetryAfter, pause))
		}
		return next, err
	}
	return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("a held record can't be settled as %q", s.Outcome)}
}

// seen refuses an operator's word about another attempt than the record's newest. The operator
// saw the attempt with this fence; zero stands for any.
func seen(cur *Record, fence int64) error {
	switch {
	case fence == 0 || fence == cur.Fence:
		return nil
	case cur.State == absent:
		return ErrNotFound
	}
	return &Error{Code: CodeIllegalTransition, Message: "the call has a later attempt than the one you saw"}
}

// settledEffects applies the findings to the ledger. If the outcome is aborted, it refutes
// all open effects.
func settledEffects(cur *Record, s Settlement, by *store.Settled) (*Record, error) {
	findings := s.Effects
	for _, f := range findings {
		i := effectIndex(cur, f.Name)
		if i < 0 || cur.Effects[i].State != store.EffectStarted {
			return nil, &Error{Code: CodeIllegalTransition, Message: fmt.Sprintf("effect %q is not open", f.Name)}
		}
		if f.State != store.EffectConfirmed && f.State != store.EffectRefuted {
			return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("effect %q can be confirmed or refuted, not %q", f.Name, f.State)}
		}
	}
	if s.Outcome == DispositionAborted {
		for _, ef := range cur.Effects {
			if ef.State == store.EffectStarted && !slices.ContainsFunc(findings, func(f store.EffectFinding) bool { return f.Name == ef.Name }) {
				findings = append(slices.Clip(findings), store.EffectFinding{Name: ef.Name, State: store.EffectRefuted})
			}
		}
	}
	for _, f := range findings {
		settle := settling(&f, &cur.Policy, by.At)
		next, err := changeEffect(cur, f.Name, by.At, func(ef *store.EffectRecord) {
			settle(ef)
			ef.Settled = by
		})
		if err != nil {
			return nil, err
		}
		cur = next
	}
	return cur, nil
}

func (s *Settlement) isZero() bool {
	return s.Outcome == unended && len(s.Effects) == 0 && len(s.Messages) == 0 && s.RetryAfter == 0
}

// settling returns the function that applies a finding to its effect.
func settling(f *store.EffectFinding, p *store.Policy, now store.Instant) func(*store.EffectRecord) {
	res := f.Result
	if len(res.Data) > p.MaxResult {
		res = Result{Tombstone: true, Attributes: res.Attributes}
	}
	return func(ef *store.EffectRecord) {
		ef.State, ef.Result, ef.Failure, ef.SettledAt = f.State, res, kept(f.Failure), now
	}
}

// Bounds of what reconcilers of one operation do at a time in one engine.
const (
	// ReconcileLimit is how long a reconciler may take for one question: then its
	// context ends, and a later answer is ignored.
	ReconcileLimit = 30 * time.Second
	// maxReconciling is how many questions may be open at a time. Further held records
	// stay due.
	maxReconciling = 16
)

// reconcile asks the operation's reconciler about a held record, in the background. Of
// all engines that find the record due, only one asks.
func (e *Engine) reconcile(ctx context.Context, op *operation, rec *Record, now store.Instant, n *Swept) error {
	mine, err := op.hold(rec, rec.HeldReason, now)
	if err != nil {
		return err
	}
	mine.NextAt = now.Add(max(op.ReconcileEvery, ReconcileLimit)) // nobody else asks meanwhile
	// A crash before this write leaves the record due. A crash after it leaves
	// it held, to be asked about again after the usual pause.
	asked, err := e.goOn(ctx, n, op.asking, op, rec, mine, func(ctx context.Context) {
		began := time.Now()
		err := guard.Call("the reconciler", func() error { return e.ask(ctx, op, mine) })
		if e.events.Reconciled != nil {
			e.events.Reconciled(Reconciled{ID: mine.ID, Took: time.Since(began), Err: err})
		}
	})
	if asked {
		n.Reconciled++
	}
	return err
}

// ask calls the reconciler and records its answer, but only if nobody has said anything about
// the record since the call: that is newer information. That somebody wants it to be asked about
// at once is none.
func (e *Engine) ask(ctx context.Context, op *operation, held *Record) error {
	limited, cancel := context.WithTimeout(ctx, ReconcileLimit)
	defer cancel()
	s, err := op.Reconcile(limited, *held)
	if limited.Err() != nil {
		// Another engine may have asked again already, and have a newer answer.
		return errors.Join(fmt.Errorf("semel: the reconciler took more than %v", ReconcileLimit), err)
	}
	if err != nil || s.isZero() {
		if op.ReconcileEvery >= ReconcileLimit {
			return err // it stays held; ask again later
		}
		s = Settlement{RetryAfter: op.ReconcileEvery}
	}
	by := store.Settled{By: store.ByReconciler, Who: s.Who}
	cur, serr := e.settle(ctx, op, held, s, by)
	if serr != nil && cur.Revision != held.Revision && (s.Outcome != unended || len(s.Effects) > 0) && asHeld(cur, held) {
		_, serr = e.settle(ctx, op, cur, s, by)
	}
	if errors.Is(serr, &Error{Code: CodeIllegalTransition}) {
		serr = nil // settled by another in the meantime
	}
	return errors.Join(err, serr)
}

// asHeld reports whether a record is held as it was: by the same loss of its holder, and with the
// same known of its effects.
func asHeld(cur, was *Record) bool {
	return cur.Held && cur.HeldFrom == was.HeldFrom &&
		slices.EqualFunc(cur.Effects, was.Effects, func(a, b store.EffectRecord) bool { return a.State == b.State })
}
