package semel

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/engine/guard"
	"github.com/semelhq/semel/store"
)

// Compensator undoes the completed call of original. It runs as an attempt of
// Operation.Compensation, under that operation's policy, and its key is the same for
// every try, so it happens once.
type Compensator func(ctx context.Context, x Execution, original Record) (Result, error)

// Compensate undoes a completed call, exactly once: it runs a call of Operation.Compensation,
// linked to this one. It returns the original's record as it stands afterwards, and the error
// of the compensating call. After a crash at any point, [Engine.Run] of any engine that has the
// operation completes it. Calling Compensate again returns the recorded result.
//
// The record of the compensating call stays for 7 days at least, or for its operation's longer
// window: as long as the original doesn't say how that call ended, a missing record would mean
// that it hasn't run.
//
// Calling it again after the compensation failed starts it again. If the compensating operation
// retries failures, it runs a further attempt, which replays the effects in its ledger.
// Otherwise it runs another call. That is refused with [CodeIllegalTransition] if the failed
// one had, or may have had, an effect, which would happen twice; Semel knows this as long as it
// keeps the failed call's record.
//
// If the call didn't complete, Compensate returns [CodeIllegalTransition]. The compensating
// operation must be registered here, be recorded, and need no confirmation.
func (e *Engine) Compensate(ctx context.Context, id ID, principal, reason string) (Record, error) {
	op := e.policyOf(id.Operation)
	if op.Compensate == nil {
		return Record{}, &Error{Code: CodeUnsupported, Message: "operation " + id.Operation + " declares no compensation"}
	}
	by, err := e.compensating(op)
	if err != nil {
		return Record{}, err
	}
	// A crash before this write leaves nothing started. A crash after it leaves a
	// compensation that a sweep finds due and runs.
	rec, err := e.change(ctx, id, store.ChangeCompensation, func(cur *Record, now store.Instant) (*Record, error) {
		if cur.Expired(now) {
			return nil, ErrNotFound
		}
		if c := cur.Compensation; c != nil && c.State != store.CompensationFailed {
			return nil, nil
		}
		if is := asOf(cur, now); is.OnlyNamed() {
			return nil, outcomeError(is, nil) // what it did is gone
		}
		started := store.Compensation{
			Operation: op.Compensation, Principal: principal, State: store.CompensationStarted, Reason: keptText(reason), StartedAt: now,
			NextAt: now.Add(compensationPause),
		}
		if err := e.nameCompensation(ctx, by, cur, &started); err != nil {
			return nil, err
		}
		return compensated(cur, started, now)
	})
	if err != nil || rec.Compensation.State == store.CompensationDone {
		return *rec, err
	}
	return e.compensate(ctx, op, rec)
}

// compensating returns the operation that compensates op, or an error if that can't be run.
func (e *Engine) compensating(op *operation) (*operation, error) {
	by, ok := (*e.ops.Load())[op.Compensation]
	switch {
	case !ok:
		return nil, &Error{Code: CodeUnknownOperation, Message: "operation " + op.Compensation + " is not registered"}
	case by.Class == ReadOnly:
		return nil, &Error{Code: CodeInvalidOperation, Message: "operation " + op.Compensation + " is not recorded, so it would not happen once"}
	case by.Confirmation != nil:
		return nil, &Error{Code: CodeInvalidOperation, Message: "operation " + op.Compensation + " asks for confirmation, which nobody could give when it is resumed"}
	}
	return by, nil
}

// nameCompensation chooses the identity of the compensation that is about to start.
func (e *Engine) nameCompensation(ctx context.Context, by *operation, rec *Record, started *store.Compensation) error {
	last := rec.Compensation
	started.Shared = by.Share == ShareTenant
	if last == nil {
		started.Key = derivedKey("semel-compensation-1", rec.ID, rec.Origin, by.Name)
		return nil
	}
	failed, err := e.Lookup(ctx, last.ID(rec.ID.Tenant))
	switch {
	case errors.Is(err, ErrNotFound): // its window is over, so this is a new call
	case err != nil:
		return err
	case failed.Disposition == DispositionFailed && by.OnFailure == RetryFailure && last.Operation == by.Name && last.Shared == started.Shared:
		started.Key, started.Principal = last.Key, last.Principal
		return nil
	case slices.ContainsFunc(failed.Effects, func(ef store.EffectRecord) bool { return ef.State != store.EffectRefuted }):
		return &Error{Code: CodeIllegalTransition, Message: "the compensation that failed had effects, which another one would repeat"}
	}
	started.Key = derivedKey("semel-compensation-1", rec.ID, rec.Origin+int64(last.StartedAt), by.Name)
	return nil
}

// compensationPause is how long after its start an unfinished compensation is resumed.
const compensationPause = 30 * time.Second

// compensate runs the compensation that rec has started, and records how it ended.
func (e *Engine) compensate(ctx context.Context, op *operation, rec *Record) (Record, error) {
	c := rec.Compensation
	call := Call{
		Tenant: rec.ID.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key, Fingerprint: rec.Fingerprint,
		Window:     max(e.policyOf(c.Operation).Window, compensationStays),
		Attributes: store.Attributes{AttributeCompensates: rec.ID.Encode()},
	}
	if id := rec.Attributes[AttributeCommandID]; id != "" {
		call.Attributes["compensates_command_id"] = id
	}
	// This is the engine's own call: its answer isn't shown to a caller.
	ans, cerr := e.Do(context.WithValue(ctx, ownCall{}, true), call, func(ctx context.Context, x Execution) (Result, error) {
		res, err := op.Compensate(ctx, x, *rec)
		return res, Failure(err) // a failed compensation isn't retried by another delivery
	})
	done := *c
	switch {
	case cerr == nil || errors.Is(cerr, &Error{Code: CodeResultNotKept}):
		done.State, done.Failure, cerr = store.CompensationDone, nil, nil
	case ans.Record != nil && ans.Record.State == Failed && !mayFollow(ans.Record.Disposition):
		done.State, done.Failure = store.CompensationFailed, ans.Record.Failure
		if done.Failure == nil {
			done.Failure = &store.Failure{Code: string(CodeFailed)}
		}
	default: // it may run again, or is in flight, held or unknown: a sweep resumes it later
		return *rec, cerr
	}
	// A crash before this write leaves the compensation started: a sweep resumes it, finds
	// its own outcome, and gets here. A crash after it leaves nothing to do.
	next, err := e.change(ctx, rec.ID, store.ChangeCompensation, func(cur *Record, now store.Instant) (*Record, error) {
		if cur.Compensation == nil || cur.Compensation.Key != c.Key || cur.Compensation.State != store.CompensationStarted {
			return nil, nil // another engine has recorded it
		}
		done.SettledAt, done.NextAt = now, 0
		return compensated(cur, done, now)
	})
	if err != nil {
		return *rec, errors.Join(cerr, err)
	}
	return *next, cerr
}

// mayFollow reports whether another attempt follows one that failed like this, whatever the
// operation's policy.
func mayFollow(d store.Disposition) bool {
	return d == DispositionAborted || d == DispositionAbandoned
}

// ownCall marks calls that the engine makes for itself.
type ownCall struct{}

func isOwn(ctx context.Context) bool { return ctx.Value(ownCall{}) != nil }

// compensated makes the successor of a completed record with the compensation c.
func compensated(cur *Record, c store.Compensation, now store.Instant) (*Record, error) {
	next, err := successor(cur, evCompensate, now)
	if err != nil {
		return nil, err
	}
	next.Compensation = &c
	next.NextAt = nextLook(next)
	return next, nil
}

// Limits for resuming unfinished compensations.
const (
	// maxCompensationPause is the longest pause before one is resumed. Pauses grow with the
	// time since the compensation began.
	maxCompensationPause = time.Hour
	// compensationStays is how long the record of a compensation stays at least. A held one may be
	// settled at any time, and the original looks for that outcome when the pause is over, or after
	// an outage when an engine is back. If the record were gone by then, it would run again.
	compensationStays = 7 * 24 * time.Hour
	// maxCompensating is how many compensations of one operation an engine runs at a time. The rest
	// stay due. Otherwise a provider that comes back after an outage would get all of them at once.
	maxCompensating = 16
)

// compensationDue reports whether the record has an unfinished compensation that must be
// resumed.
func (e *Engine) compensationDue(rec *Record, now store.Instant) bool {
	c := rec.Compensation
	return c != nil && c.State == store.CompensationStarted && c.NextAt <= now && !e.restored(rec, now)
}

// canCompensate reports whether this engine can run the compensation that rec has started.
func (e *Engine) canCompensate(op *operation, rec *Record) bool {
	_, known := (*e.ops.Load())[rec.Compensation.Operation]
	return known && op.Compensate != nil
}

// resumeCompensation continues an unfinished compensation, in the background.
func (e *Engine) resumeCompensation(ctx context.Context, op *operation, rec *Record, now store.Instant, n *Swept) error {
	later := *rec.Compensation
	later.NextAt = now.Add(min(max(now.Sub(later.StartedAt), compensationPause), maxCompensationPause))
	next, err := compensated(rec, later, now)
	if err != nil {
		return err
	}
	// A crash before this write leaves the compensation due. A crash after it leaves
	// it to be resumed when the pause is over. Only the engine that writes continues.
	_, err = e.goOn(ctx, n, op.compensating, op, rec, next, func(ctx context.Context) {
		began := time.Now()
		// The records say how it ended. If it didn't end, a sweep resumes it again.
		err := guard.Call("the compensator", func() error {
			_, err := e.compensate(ctx, op, next)
			return err
		})
		if e.events.Compensated != nil {
			e.events.Compensated(Compensated{ID: next.ID, Took: time.Since(began), Err: err})
		}
	})
	return err
}
