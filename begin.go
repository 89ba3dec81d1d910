package semel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Call is one delivery.
type Call struct {
	// Tenant, Operation and Key, with the principal scope, are the identity.
	// Key and Operation are required; see [Call.ID].
	Tenant    string
	Operation string
	Key       string
	// Principal is the verified identity of who acts. It is part of the
	// identity of the call unless the operation shares its keys.
	Principal string
	// Scope narrows the principal scope of the identity, up to 128 bytes: calls with
	// different scopes are independent, also where the operation shares its keys. It
	// is for what a caller says beside its key, such as the account it acts for.
	Scope string
	// BoundTo binds the call to what its caller has shown where nobody verified who
	// the caller is, such as a digest of a credential, up to 256 bytes. It is kept in
	// the record and is no part of the identity: a delivery that brings another value,
	// or none, is not executed, and gets [OtherCaller] and nothing else.
	//
	// It is for keys that nobody else can know. A caller whose credential was renewed
	// between two tries then makes no second call, and one who got hold of the key
	// gets no answer. Leave it empty where Principal is verified.
	BoundTo string
	// Door names the way by which the call came in, such as "http", up to 32 bytes;
	// a program that calls the engine itself leaves it empty. A call belongs to the
	// door that it came through first: a delivery through another gets [OtherDoor]
	// and nothing else, since what one door records another may not be able to read,
	// or may have other rules for who writes it.
	Door string
	// Fingerprint is compared with that of the first delivery. The zero value
	// compares nothing but with itself.
	Fingerprint Fingerprint
	// Holder names who executes the call if this delivery does, up to 256 bytes.
	// It is kept as [Record].Holder and is no part of the identity. Defaults to
	// Options.Node. A door gives each delivery another, so as to know the right
	// to execute again whose answer was lost.
	Holder string
	// Attributes are kept with the record of a call that is new. At most
	// [MaxAttributes].
	Attributes Attributes
	// Confirm is the confirmation token, where the caller has one, and StepUp the
	// further proof that Operation.Confirmation may ask for.
	Confirm string
	StepUp  string
	// FirstSent is when the caller first sent this call, if it says so.
	FirstSent time.Time
	// Wait is how long to wait for the outcome if the call is in flight. It is
	// bounded by Operation.MaxWait. Zero: as the operation says.
	Wait time.Duration
}

// Answer is what a delivery got.
type Answer struct {
	Decision Decision
	// Record is what is stored about the call. For Execute it is the claim, or
	// in the answer of Do the outcome. For Expired, OtherCaller and OtherDoor it
	// has the identity only; where there is no decision it is nil. It may be shared with
	// the store, and may not be changed.
	Record *Record
	// Attempt is the right to execute. It is set by Begin for Execute only.
	Attempt *Attempt
	// Challenge is what the caller needs to confirm the call, where the error is
	// [CodeConfirmationRequired] and a new token was made.
	Challenge *Challenge
	// RetryAfter is when asking again makes sense, for InFlight, Held and
	// Throttled.
	RetryAfter time.Duration
}

// Err is the answer as an error: nil for Execute and for the replay of a kept,
// completed result; otherwise an [Error] with the code that says why there is no
// result.
func (a *Answer) Err() error {
	switch a.Decision {
	case Conflict:
		return &Error{Code: CodeConflict, Message: "the key was used with another payload"}
	case InFlight:
		return &Error{Code: CodeInFlight, Message: "the first delivery is still running", RetryAfter: a.RetryAfter}
	case Held:
		return &Error{Code: CodeHeld, Message: a.Record.Held, RetryAfter: a.RetryAfter}
	case Expired:
		return &Error{Code: CodeExpired, Message: "the call was first sent before the window that is kept"}
	case OtherCaller:
		return &Error{Code: CodeOtherCaller, Message: "the key was used by a caller with another credential"}
	case OtherDoor:
		return &Error{Code: CodeOtherDoor, Message: "the key was used through another door of this service"}
	case Throttled:
		return &Error{Code: CodeThrottled, Message: "too many duplicates", RetryAfter: a.RetryAfter}
	}
	if a.Record == nil {
		return nil
	}
	return outcomeError(a.Record, nil)
}

// outcomeError is the error that a record's outcome stands for. cause is the
// handler's own error, where this process ran it.
func outcomeError(rec *Record, cause error) error {
	switch rec.State {
	case Failed:
		e := &Error{Code: Code(rec.Disposition.String()), Err: cause}
		if rec.Disposition == DispositionAbandoned {
			e.Code = CodeAborted
		}
		if rec.Failure != nil && cause == nil {
			e.Message = rec.Failure.Message
		}
		return e
	case Completed:
		if rec.Result.Tombstone {
			return &Error{Code: CodeResultNotKept, Message: "the call ran, but its result was not kept"}
		}
	}
	return nil
}

// maxClaims bounds how often one delivery tries to claim a record that changes
// under it.
const maxClaims = 16

// Begin decides what a delivery gets. For Execute the answer carries an
// [Attempt], whose claim is durable; the caller does the work with
// Attempt.Context and ends the attempt. For every other decision nothing may be
// executed.
//
// An error means that the call is invalid, that the caller may not see the
// answer, or that the store is unavailable; nothing may be executed then either.
func (e *Engine) Begin(ctx context.Context, call Call) (ans Answer, err error) {
	var id ID
	op, err := e.admit(ctx, &call, &id)
	if err != nil {
		return ans, err
	}
	if op.Class == ReadOnly {
		return ans, e.beginUnrecorded(ctx, op, &id, &call, &ans)
	}
	if late, err := e.refuseLate(ctx, op, id, &call, &ans); late || err != nil {
		return ans, err
	}
	return ans, e.claim(ctx, op, &id, &call, &ans)
}

// admit checks a call, and finds its operation and its identity, which it writes to
// id.
func (e *Engine) admit(ctx context.Context, call *Call, id *ID) (*operation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.done.Err() != nil {
		return nil, &Error{Code: CodeClosed}
	}
	op, ok := (*e.ops.Load())[call.Operation]
	if !ok {
		return nil, &Error{Code: CodeUnknownOperation, Message: "operation " + call.Operation + " is not registered"}
	}
	*id = call.ID(op.Share)
	if err := id.validate(); err != nil {
		return nil, err
	}
	if err := call.validateNames(); err != nil {
		return nil, err
	}
	if len(call.Holder) > maxNameLen || !validText(call.Holder) {
		return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the holder is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxNameLen)}
	}
	if call.Attributes != nil {
		if err := call.Attributes.validate(); err != nil {
			return nil, err
		}
		call.Attributes = maps.Clone(call.Attributes) // they are kept
	}
	e.missSweeps()
	return op, nil
}

// refuseLate answers a call that is older than what the store could remember.
func (e *Engine) refuseLate(ctx context.Context, op *operation, id ID, call *Call, ans *Answer) (late bool, err error) {
	if !op.RefuseLate && e.epoch.Load() == 0 {
		return false, nil
	}
	if late, err = e.tooLate(ctx, op, id, call); late {
		ans.Decision, ans.Record = Expired, &Record{ID: id}
		err = e.tell(ctx, &op.Operation, call, ans, 0, 0)
	}
	return late, err
}

// claim is the loop of Begin: try to write the claim, and where a record stands
// in the way do what decide says about it.
func (e *Engine) claim(ctx context.Context, op *operation, id *ID, call *Call, ans *Answer) error {
	var waited time.Duration
	var hash uint64
	var further confirming
	cur := &none // what the claim has to follow
	if e.local != nil {
		hash = e.local.Hash(*id)
		if found := e.local.Load(hash, *id); found != nil {
			cur = found
		}
	}
	calls := ctx
	if e.local == nil { // the clock and the claim, which usually is all, share a limit
		call, own := e.storeCall(ctx)
		if own {
			defer call.end()
		}
		calls = call
	}
	if op.Confirmation != nil && e.local == nil {
		// A token is compared with what the record knows, so that comes first.
		found, err := e.get(calls, *id)
		switch {
		case err == nil:
			cur = &found
		case !errors.Is(err, ErrNotFound):
			return e.storeError("get", *id, err)
		}
	}
	for range maxClaims {
		at, err := e.read(calls)
		if err != nil {
			return err
		}
		if cur.State != absent {
			settled, err := e.meet(ctx, op, call, &cur, ans, &at, &waited)
			if settled || err != nil {
				return err
			}
			calls = ctx // it may have waited for longer than the limit of a call
		}
		a := new(Attempt)
		next := &a.claim
		if err := open(&op.Operation, id, call, cur, at.now, e.node, next); err != nil {
			return err
		}
		if err := e.authorize(ctx, op, call, next); err != nil {
			return err
		}
		if op.Confirmation != nil {
			stored, err := e.confirm(ctx, op, call, &further, cur, next, ans, at.now)
			if err != nil {
				return err
			}
			if stored != nil {
				cur, calls = stored, ctx
				continue
			}
			if ans.Decision == Throttled {
				e.decided(ans, at.now, waited)
				return nil
			}
		}
		v := e.stamp(&op.Operation, cur, next, ChangeClaimed)
		v.hash = hash
		v.deadline = at.now.Add(min(op.Lease, 2*e.opts.StoreTimeout)) // nobody waits for longer
		// A crash before this write leaves nothing. A crash after it leaves a
		// claim without a holder: when its lease ends, the next delivery or
		// the reaper settles it as an abandoned attempt.
		stored, applied, err := e.applyClaim(calls, &v)
		switch {
		case err != nil && !errors.Is(err, ErrNotApplied):
			e.releaseClaim(op, &v)
		case err == nil && applied:
			stored, applied, err = e.freshen(ctx, op, &v, &at)
		}
		if err != nil {
			return err
		}
		if applied {
			a.start(ctx, op, stored, at.elapsed)
			ans.Decision, ans.Record, ans.Attempt = Execute, stored, a
			e.decided(ans, at.now, waited)
			return nil
		}
		cur, calls = stored, ctx
	}
	// The record changed under every try, so somebody is at work on it.
	ans.Decision, ans.Record, ans.RetryAfter = InFlight, cur, minRetryAfter
	if other := stranger(call, cur); other != "" {
		*ans = Answer{Decision: other, Record: &Record{ID: *id}}
	}
	return e.tell(ctx, &op.Operation, call, ans, 0, waited)
}

// freshen begins the lease of a claim that is stored anew if it took long to get
// there, so that no handler starts under a lease that is over or nearly so. at is when
// the claim was made, and then when the lease began last. After an error the claim is
// released.
func (e *Engine) freshen(ctx context.Context, op *operation, claim *version, at *reading) (*Record, bool, error) {
	rec := claim.rec
	renewals := []Revision{}
	giveUp := func(err error) (*Record, bool, error) {
		e.releaseClaim(op, claim, renewals...)
		return nil, false, err
	}
	for range maxClaims {
		if e.elapsed()-at.elapsed < op.Lease/3 { // later it would be renewed anyway
			return rec, true, nil
		}
		var err error
		if *at, err = e.read(ctx); err != nil {
			return giveUp(err)
		}
		next, err := extend(rec, evRenew, at.now)
		if err != nil {
			return giveUp(err)
		}
		v := e.stamp(&op.Operation, rec, next, ChangePostponed)
		v.deadline = next.LeaseUntil
		renewals = append(renewals, next.Revision)
		// A crash before or after this write leaves a claim without a holder.
		stored, applied, err := e.applyClaim(ctx, &v)
		if err != nil {
			return giveUp(err)
		}
		if !applied {
			return stored, false, nil // the reaper, or another node for the same holder
		}
		rec = next
	}
	return giveUp(&Error{Code: CodeStoreUnavailable, Message: "the store takes longer than a third of the lease for each write"})
}

// reading is one moment by two clocks: the engine's was read first.
type reading struct {
	elapsed time.Duration // by which a holder judges its own lease
	now     Instant       // by which the store's records are judged
}

func (e *Engine) read(ctx context.Context) (at reading, err error) {
	if e.local == nil {
		at.elapsed = e.elapsed()
	}
	at.now, err = e.now(ctx)
	if e.local != nil {
		at.elapsed = at.now.Sub(e.first)
	}
	return at, err
}

// none is the record that is not there. It is never changed.
var none Record

// meet deals with the record that stands in the way of a claim. It reports
// settled when the delivery has its answer; otherwise cur is what the next claim
// has to follow, and at when that was decided.
func (e *Engine) meet(ctx context.Context, op *operation, call *Call, cur **Record, ans *Answer, at *reading, waited *time.Duration) (settled bool, err error) {
	for range maxClaims {
		if (*cur).State == absent {
			return false, nil // gone since: claim again
		}
		r := decide(&op.Operation, call, *cur, at.now, e.restored(*cur, at.now))
		switch {
		case r.decision == Execute:
			return false, nil
		case r.hold != "":
			stored, applied, err := e.holdFor(ctx, op, call, *cur, r.hold, at.now)
			if err != nil {
				return false, err
			}
			*cur = stored
			if !applied { // somebody else was faster: look again
				if *at, err = e.read(ctx); err != nil {
					return false, err
				}
				continue
			}
		case r.decision == InFlight && waitTime(op, call) > *waited:
			start := e.elapsed()
			changed, err := e.await(ctx, *cur, waitTime(op, call)-*waited, false)
			*waited += e.elapsed() - start
			if err != nil {
				return false, err
			}
			if changed != nil {
				if *at, err = e.read(ctx); err != nil {
					return false, err
				}
				*cur = changed
				continue
			}
		}
		ans.Decision, ans.Record = r.decision, *cur
		return true, e.answer(ctx, op, call, ans, at.now, *waited)
	}
	return false, nil
}

// answer gives a duplicate what it gets, unless it is throttled or may not see it.
func (e *Engine) answer(ctx context.Context, op *operation, call *Call, ans *Answer, now Instant, waited time.Duration) error {
	cur := ans.Record
	limited := cur.ID
	if ans.Decision == OtherCaller || ans.Decision == OtherDoor {
		// Nothing of the record leaves the engine. And it has a limit of its own, or a
		// stranger could use up what the caller of the call may ask.
		ans.Record = &Record{ID: cur.ID}
		limited.Principal = "\x00" + call.Door + "\x00" + call.BoundTo
	}
	if delay := e.throttled(op, call, &limited, now); delay > 0 && !isOwn(ctx) {
		ans.Decision, ans.RetryAfter = Throttled, delay
		e.decided(ans, now, waited)
		return nil
	}
	switch ans.Decision {
	case Replay:
		if err := e.authorize(ctx, op, call, cur); err != nil {
			*ans = Answer{}
			return err
		}
	case InFlight:
		ans.RetryAfter = op.latency.retryAfter(now.Sub(cur.StartedAt), cur.LeaseUntil.Sub(now))
	case Held:
		ans.RetryAfter = op.ReconcileEvery
		if cur.NextAt != 0 {
			ans.RetryAfter = min(max(cur.NextAt.Sub(now), minHeldRetry), op.ReconcileEvery)
		}
	}
	return e.tell(ctx, &op.Operation, call, ans, now, waited)
}

// authorize asks whether the caller may have what the record says, or begin what it
// would say.
func (e *Engine) authorize(ctx context.Context, op *operation, call *Call, rec *Record) error {
	if op.Authorize == nil || isOwn(ctx) {
		return nil
	}
	if err := op.Authorize(ctx, *call, *rec); err != nil {
		return &Error{Code: CodeForbidden, Err: err}
	}
	return nil
}

// hold writes an abandoned attempt as held. It returns what is stored afterwards.
func (e *Engine) hold(ctx context.Context, op *operation, cur *Record, reason string, now Instant) (*Record, bool, error) {
	next, err := hold(cur, reason, now)
	if err != nil {
		return nil, false, err
	}
	v := e.stamp(&op.Operation, cur, next, ChangeHeld)
	// A crash before this write leaves the lease to be found ended again. A
	// crash after it leaves a held record, which the reaper offers to the
	// reconciler, or an operator settles.
	stored, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, "reaper", "")
	}
	return stored, applied, err
}

// holdFor is hold for a delivery that would have executed. Where the last attempt has
// ended, the one that the delivery would have made is held from its beginning.
func (e *Engine) holdFor(ctx context.Context, op *operation, call *Call, cur *Record, reason string, now Instant) (*Record, bool, error) {
	if !cur.State.Terminal() {
		return e.hold(ctx, op, cur, reason, now)
	}
	opened := new(Record)
	if err := open(&op.Operation, &cur.ID, call, cur, now, e.node, opened); err != nil {
		return nil, false, err
	}
	next, err := hold(opened, reason, now)
	if err != nil {
		return nil, false, err
	}
	v := e.stamp(&op.Operation, cur, next, ChangeHeld)
	// A crash before this write leaves the record as it was, to be met again. A crash
	// after it leaves a held record, as above.
	stored, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, "reaper", "")
	}
	return stored, applied, err
}

// tooLate reports whether a call that says when it was first sent, or whose key
// does, is older than what the store could still remember, and nothing is stored
// about it. Such a call may have been executed and forgotten.
func (e *Engine) tooLate(ctx context.Context, op *operation, id ID, call *Call) (bool, error) {
	first := call.FirstSent
	if first.IsZero() {
		var ok bool
		if first, ok = KeyTime(call.Key); !ok {
			return false, nil
		}
	}
	now, err := e.now(ctx)
	if err != nil {
		return false, err
	}
	// A client clock that is ahead makes the call look younger than it is.
	late := op.RefuseLate && now.Sub(InstantOf(first)) >= op.Window-min(e.opts.ClockSkew, op.Window/4)
	if !late && !e.beforeEpoch(op, InstantOf(first), now) {
		return false, nil
	}
	rec, err := e.get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, e.storeError("get", id, err)
	}
	return rec.Expired(now), nil
}

// tell tells of a decision that changed nothing, and keeps evidence of it. The error
// keeps the answer back.
func (e *Engine) tell(ctx context.Context, op *Operation, call *Call, ans *Answer, now Instant, waited time.Duration) error {
	if err := e.witness(ctx, op, call, ans); err != nil {
		*ans = Answer{}
		return err
	}
	e.decided(ans, now, waited)
	return nil
}

// decided tells of a decision.
func (e *Engine) decided(ans *Answer, now Instant, waited time.Duration) {
	if e.events.Decided == nil {
		return
	}
	rec := ans.Record
	e.events.Decided(DecidedEvent{
		ID: rec.ID, Decision: ans.Decision, State: rec.State, Attempt: rec.Attempt, Fence: rec.Fence,
		RetryAfter: ans.RetryAfter, Waited: waited, At: now.Time(),
	})
}

// waitTime is how long this delivery waits for an outcome.
func waitTime(op *operation, call *Call) time.Duration {
	if call.Wait > 0 {
		return min(call.Wait, op.MaxWait)
	}
	if op.InFlight == WaitInFlight {
		return op.MaxWait
	}
	return 0
}
