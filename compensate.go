package semel

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Compensator undoes what the completed call of original did. It runs as an attempt
// of Operation.Compensation, whose policy holds for it, and its key is the same for
// every try, so it happens once.
type Compensator func(ctx context.Context, x Execution, original Record) (Result, error)

// Compensation links a completed call to the one that undoes it.
type Compensation struct {
	// Operation and Key name the compensating call, in the same tenant. Principal
	// is who makes it.
	Operation string `json:"operation"`
	Principal string `json:"principal,omitempty"`
	Key       string `json:"key"`
	// Shared says that the operation shares its keys within the tenant, so that
	// Principal is no part of the identity.
	Shared bool `json:"shared,omitempty"`
	// State is where it stands, as far as this record knows.
	State CompensationState `json:"state"`
	// Reason is why it was asked for, for people.
	Reason    string  `json:"reason,omitempty"`
	StartedAt Instant `json:"started_at"`
	SettledAt Instant `json:"settled_at,omitzero"`
	// NextAt is when somebody looks after it if nobody has finished it.
	NextAt Instant `json:"next_at,omitzero"`
	// Failure is why it did not succeed.
	Failure *Failure `json:"failure,omitempty"`
}

// ID is the identity of the compensating call of a record. The way back is the
// attribute [AttributeCompensates] of the compensating record.
func (c *Compensation) ID(tenant string) ID {
	id := ID{Tenant: tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key}
	if c.Shared {
		id.Principal = ""
	}
	return id
}

// CompensationState is where a compensation stands.
type CompensationState string

// The states of a compensation.
const (
	CompensationStarted CompensationState = "started" // it is to happen, or is happening
	CompensationDone    CompensationState = "done"    // the original shows as compensated
	CompensationFailed  CompensationState = "failed"  // it was refused, or failed for good
)

// Compensate undoes a completed call, exactly once, by the operation that its own
// names: as a call of that operation, linked to this one. It returns the record of
// the original as it is then, and the error of the compensating call. A crash at any
// point is made good by [Engine.Run] of any engine that knows the operation. Asked
// for again it answers with what there is.
//
// One that failed starts again when it is asked for again: where the compensating
// operation retries failures, as a further attempt, which replays the effects that
// are in its ledger; otherwise as another call, which is refused with
// [CodeIllegalTransition] if an effect of the one that failed happened or may have,
// for it would happen twice; that is known as long as its record is kept.
//
// A call that did not complete is refused with [CodeIllegalTransition]. The
// compensating operation must be registered here, be recorded, and ask for no
// confirmation.
func (e *Engine) Compensate(ctx context.Context, id ID, principal, reason string) (Record, error) {
	op := e.policyOf(id.Operation)
	if op.Compensate == nil {
		return Record{}, &Error{Code: CodeUnsupported, Message: "operation " + id.Operation + " declares no compensation"}
	}
	by, err := e.compensating(op)
	if err != nil {
		return Record{}, err
	}
	for range maxClaims {
		rec, err := e.Lookup(ctx, id)
		if err != nil {
			return Record{}, err
		}
		if c := rec.Compensation; c != nil && c.State != CompensationFailed {
			if c.State == CompensationDone {
				return rec, nil
			}
			return e.compensate(ctx, op, &rec)
		}
		now, err := e.now(ctx)
		if err != nil {
			return rec, err
		}
		started := Compensation{
			Operation: op.Compensation, Principal: principal, State: CompensationStarted, Reason: keptText(reason), StartedAt: now,
			NextAt: now.Add(compensationPause),
		}
		if err := e.nameCompensation(ctx, by, &rec, &started); err != nil {
			return rec, err
		}
		next, err := compensated(&rec, started, now)
		if err != nil {
			return rec, err
		}
		// A crash before this write leaves nothing started. A crash after it leaves
		// a compensation that a sweep finds due and runs.
		applied, err := e.link(ctx, op, &rec, next)
		if err != nil {
			return rec, err
		}
		if applied {
			return e.compensate(ctx, op, next)
		}
	}
	return Record{}, &Error{Code: CodeUnknown, Message: "the record changes too fast"}
}

// compensating is the operation that compensates op, if it can.
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
func (e *Engine) nameCompensation(ctx context.Context, by *operation, rec *Record, started *Compensation) error {
	last := rec.Compensation
	started.Shared = by.Share == ShareTenant
	if last == nil {
		started.Key = derivedKey("semel-compensation-1", rec.ID, rec.Origin, by.Name)
		return nil
	}
	failed, err := e.Lookup(ctx, last.ID(rec.ID.Tenant))
	switch {
	case errors.Is(err, ErrNotFound): // its window is over, and what is asked for now is a new call
	case err != nil:
		return err
	case failed.Disposition == DispositionFailed && by.OnFailure == RetryFailure && last.Operation == by.Name && last.Shared == started.Shared:
		started.Key, started.Principal = last.Key, last.Principal
		return nil
	case slices.ContainsFunc(failed.Effects, func(ef EffectRecord) bool { return ef.State != EffectRefuted }):
		return &Error{Code: CodeIllegalTransition, Message: "the compensation that failed had effects, which another one would repeat"}
	}
	started.Key = derivedKey("semel-compensation-1", rec.ID, rec.Origin+int64(last.StartedAt), by.Name)
	return nil
}

// compensationPause is when a compensation that nobody has finished is looked after.
const compensationPause = 30 * time.Second

// compensate runs the compensation that rec has started, and records how it ended.
func (e *Engine) compensate(ctx context.Context, op *operation, rec *Record) (Record, error) {
	c := rec.Compensation
	call := Call{
		Tenant: rec.ID.Tenant, Principal: c.Principal, Operation: c.Operation, Key: c.Key, Fingerprint: rec.Fingerprint,
		Attributes: Attributes{AttributeCompensates: rec.ID.Encode()},
	}
	if id := rec.Attributes[AttributeCommandID]; id != "" {
		call.Attributes["compensates_command_id"] = id
	}
	// The engine asks for its own sake: nobody is shown what it learns.
	ans, cerr := e.Do(context.WithValue(ctx, ownCall{}, true), call, func(ctx context.Context, x Execution) (Result, error) {
		return op.Compensate(ctx, x, *rec)
	})
	done := *c
	switch {
	case cerr == nil || errors.Is(cerr, &Error{Code: CodeResultNotKept}):
		done.State, done.Failure, cerr = CompensationDone, nil, nil
	case ans.Record != nil && ans.Record.State == Failed && ans.Record.Disposition != DispositionAborted:
		done.State, done.Failure = CompensationFailed, ans.Record.Failure
		if done.Failure == nil {
			done.Failure = &Failure{Code: string(CodeFailed)}
		}
	default: // in flight, held or unknown: it is looked after later
		return *rec, cerr
	}
	for range maxClaims {
		now, err := e.now(ctx)
		if err != nil {
			return *rec, errors.Join(cerr, err)
		}
		done.SettledAt, done.NextAt = now, 0
		next, err := compensated(rec, done, now)
		if err != nil {
			return *rec, errors.Join(cerr, err)
		}
		// A crash before this write leaves the compensation started: it is looked
		// after again, finds its own outcome, and ends up here. A crash after it
		// leaves nothing to do.
		applied, err := e.link(ctx, op, rec, next)
		if err != nil {
			return *rec, errors.Join(cerr, err)
		}
		if applied {
			return *next, cerr
		}
		cur, err := e.get(ctx, rec.ID)
		if err != nil {
			return *rec, errors.Join(cerr, e.storeError("get", rec.ID, err))
		}
		if cur.Compensation == nil || cur.Compensation.Key != c.Key || cur.Compensation.State != CompensationStarted {
			return cur, cerr // another has recorded it
		}
		rec = &cur
	}
	return *rec, &Error{Code: CodeUnknown, Message: "the record changes too fast"}
}

// ownCall marks calls that the engine makes for itself.
type ownCall struct{}

func isOwn(ctx context.Context) bool { return ctx.Value(ownCall{}) != nil }

// compensated makes the successor of a completed record with another compensation.
func compensated(cur *Record, c Compensation, now Instant) (*Record, error) {
	next, err := successor(cur, evCompensate, now)
	if err != nil {
		return nil, err
	}
	next.Compensation = &c
	next.NextAt = next.nextLook()
	return next, nil
}

func (e *Engine) link(ctx context.Context, op *operation, cur, next *Record) (bool, error) {
	v := e.stamp(&op.Operation, cur, next, ChangeCompensation)
	_, applied, err := e.apply(ctx, v)
	return applied, err
}

// resumeCompensation attends to a compensation that nobody has finished.
func (e *Engine) resumeCompensation(ctx context.Context, op *operation, rec *Record, now Instant) error {
	later := *rec.Compensation
	later.NextAt = now.Add(compensationPause)
	next, err := compensated(rec, later, now)
	if err != nil {
		return err
	}
	v := e.stamp(&op.Operation, rec, next, ChangePostponed)
	// A crash before this write leaves the compensation due. A crash after it leaves
	// it to be looked after when the pause is over. Of all engines, one goes on.
	if _, applied, err := e.apply(ctx, v); err != nil || !applied || op.Compensate == nil {
		return err
	}
	e.goBackground(func(ctx context.Context) {
		// How it ended is in the records; whatever kept it from ending is met again.
		_, _ = e.compensate(ctx, op, next)
	})
	return nil
}
