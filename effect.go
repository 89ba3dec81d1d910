package semel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/semelhq/semel/store"
)

// Bounds of the ledger of one call.
const (
	maxEffects = 1000
	// MaxLedger bounds the combined size of the results of one call's effects, in bytes,
	// because every step writes the whole record. The first result may be larger, if
	// Operation.MaxResult allows it. If a result doesn't fit, the effect is confirmed and
	// leaves a tombstone.
	MaxLedger = 4 << 20
)

// Effect makes one external call at most once, as far as that is possible: the intent
// is durable before fn is called, its result is durable before Effect returns. A
// further attempt of the same call gets the recorded result without calling fn.
//
// Use a name that is unique within the call; in a loop, number it ("mail/1"). The
// effectKey that fn gets is the same in all attempts of this call: pass it to
// the provider as its idempotency key.
//
// fn's error decides what Semel records:
//
//   - [Aborted]: the effect certainly didn't happen. It may be tried again, by this
//     attempt or the next.
//   - [Rejected]: the provider refused for good. The refusal is recorded and
//     replayed, without its cause.
//   - [Failure]: the provider itself says that the effect failed. A further attempt, if
//     Operation.OnFailure allows one, may try it again.
//   - anything else: unknown. The effect stays started, is never called again,
//     and an attempt that ends with this error is held until it is settled.
//
// T is stored as JSON, and read as by [Do]. If a result is larger than Operation.MaxResult, or
// takes the ledger beyond [MaxLedger], Effect returns it now but the record doesn't hold it; a
// further attempt gets [CodeResultNotKept].
func Effect[T any](ctx context.Context, x Execution, name string, fn func(ctx context.Context, effectKey string) (T, error)) (T, error) {
	var v T
	ef, err := x.StartEffect(ctx, name)
	if err != nil {
		return v, err
	}
	if ef.State == store.EffectConfirmed {
		if err := readResult(ef.Result.Data, &v); err != nil {
			return v, &Error{Code: CodeUnknown, Message: "the recorded result of effect " + name + " does not fit its type", Err: err}
		}
		return v, nil
	}
	v, err = fn(ctx, ef.Key)
	finding := store.EffectFinding{Name: name, State: store.EffectConfirmed}
	if err == nil {
		data, jerr := json.Marshal(v)
		if jerr != nil {
			// The effect happened, but its result can't be stored.
			return v, Unknown(fmt.Errorf("the result of effect %s has no JSON form: %w", name, jerr))
		}
		finding.Result.Data = data
	} else {
		verdict, ok := verdictOf(err)
		if !ok || verdict.disposition == unended || verdict.disposition == DispositionAbandoned {
			return v, err // stays started
		}
		finding.State = store.EffectRefuted
		if verdict.disposition == DispositionRejected {
			finding.Failure = &store.Failure{Code: verdict.code, Message: verdict.Error()}
		}
	}
	if serr := x.SettleEffect(ctx, finding); serr != nil {
		// We have the provider's answer, but it isn't durable, so the attempt may not go on as
		// if it were.
		return v, Unknown(errors.Join(err, serr))
	}
	return v, err
}

// StartEffect is the first half of [Effect]: it makes the intent durable, or finds
// the recorded result. If the effect that it returns is started, make the call with its
// Key and pass the result to SettleEffect. If it is confirmed, use its Result instead.
//
// An error marked [Unknown] with [CodeEffectUnknown] means that the effect was started
// before and may have happened; one marked [Rejected] that the provider has refused it
// for good. After any other error you may not make the call either.
//
// If the store failed, that doesn't mean that the work failed. A handler that returns
// the error to [Engine.Do] abandons its attempt, as by [Attempt.Abandon], if the ledger
// or the policy allows another one, which continues where this one stopped. That needs
// Operation.Effects or [RetryAbandoned]: without them the handler may have had effects
// beside the ledger, and the error counts as any other.
func (a *Attempt) StartEffect(ctx context.Context, name string) (store.EffectRecord, error) {
	ef, err := a.startEffect(ctx, name, false)
	if errors.Is(err, &Error{Code: CodeStoreUnavailable}) || errors.Is(err, ErrUnknown) {
		err = &notStarted{err}
	}
	return ef, err
}

// notStarted marks an error of the store that prevented an effect from being called.
type notStarted struct{ error }

func (e *notStarted) Unwrap() error { return e.error }

// RestartEffect is StartEffect for a holder that called it before, lost the answer, and
// hasn't made the call: an effect that this attempt has already started is returned as
// started. It writes, as the first start did, so a holder gets [CodeLeaseLost] if the record
// was held meanwhile.
func (a *Attempt) RestartEffect(ctx context.Context, name string) (store.EffectRecord, error) {
	return a.startEffect(ctx, name, true)
}

func (a *Attempt) startEffect(ctx context.Context, name string, notCalled bool) (ef store.EffectRecord, err error) {
	if name == "" || len(name) > store.MaxNameLen || !store.ValidText(name) {
		return ef, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the name of an effect has 1 to %d bytes of UTF-8 without NUL", store.MaxNameLen)}
	}
	if !a.op.declares(name) {
		return ef, &Error{Code: CodeInvalidCall, Message: "operation " + a.op.Name + " does not declare effect " + name}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.mayStart(); err != nil {
		return ef, err
	}
	if a.pending != nil {
		if err := a.settlePending(ctx, a.op.engine.retrying()); err != nil {
			return ef, err
		}
	}
	if ef, err, found := recordedEffect(a.rec, name, notCalled); found {
		return ef, err
	}
	var since time.Duration
	// A crash before this write leaves no trace of the effect, and it was not
	// called. A crash after it leaves it started: whether it was called is not
	// known, so the attempt is held, and a reconciler or an operator settles it.
	err = a.write(ctx, store.ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		if err := a.interrupted(cur, at); err != nil {
			return nil, err
		}
		next, err := startedEffect(cur, name, at.now, notCalled)
		if err == nil {
			ef, since = next.Effects[effectIndex(next, name)], at.elapsed
		}
		if err == nil && !a.unrecorded {
			// The external call gets a whole lease.
			next.LeaseUntil = at.now.Add(cur.Policy.Lease)
			next.NextAt = next.LeaseUntil
		}
		return next, err
	})
	if err != nil && a.pending != nil {
		// The intent may be durable, but the effect will not be called.
		a.pending.notCalled = name
	}
	if err != nil {
		return ef, err
	}
	a.leased(since)
	if lost := a.mayGoOn("the store took longer than the lease"); lost != nil {
		// The write took longer than the lease had left. If there is a newer attempt, it began
		// from a ledger without this effect, and owns the ledger now. If there isn't, the
		// ledger must say that nothing was called.
		_ = a.revertEffect(ctx, a.op.engine.retrying(), name)
		return ef, lost
	}
	return ef, nil
}

// mayStart reports why the attempt may start no effect, or nil. The caller holds a.mu.
func (a *Attempt) mayStart() error {
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	return a.mayGoOn("the lease could not be renewed in time")
}

// mayGoOn reports why the handler must stop, or nil. late is the reason to give if it finds
// that the lease is already over.
func (a *Attempt) mayGoOn(late string) error {
	lost := a.handler.Lost()
	if lost == nil && a.overdue() {
		lost = &Error{Code: CodeLeaseLost, Message: late}
		a.lose(lost)
	}
	return lost
}

// interrupted reports why the holder may not continue with the stored record, or nil.
func (a *Attempt) interrupted(cur *Record, at reading) error {
	switch {
	case cur.Held:
		return &Error{Code: CodeLeaseLost, Message: "the record was declared held"}
	case a.fromBackup(cur, at):
		return errRestored
	}
	return nil
}

// recordedEffect returns what the ledger says about an effect that may not be started now.
func recordedEffect(rec *Record, name string, notCalled bool) (ef store.EffectRecord, err error, found bool) {
	i := effectIndex(rec, name)
	if i < 0 {
		return ef, nil, false
	}
	switch ef = rec.Effects[i]; {
	case notCalledBy(&ef, rec, notCalled):
		return ef, nil, false
	case ef.State == store.EffectStarted:
		err = Unknown(&Error{Code: CodeEffectUnknown, Message: "effect " + name + " was started and its result is not known"})
	case ef.State == store.EffectConfirmed && ef.Result.Tombstone:
		err = &Error{Code: CodeResultNotKept, Message: "effect " + name + " happened, but its result was not kept"}
	case ef.State == store.EffectConfirmed:
	case ef.Failure != nil:
		err = Rejected(ef.Failure.Code, errors.New(ef.Failure.Message))
	default: // refuted
		return ef, nil, false
	}
	return ef, err, true
}

// startedEffect makes the successor of cur with the effect started. cur may be newer than the
// record that was checked before: a holder in another process may ask twice at once, and only
// one of the two may call.
func startedEffect(cur *Record, name string, now store.Instant, notCalled bool) (*Record, error) {
	ef := store.EffectRecord{Name: name, Key: EffectKey(cur, name), State: store.EffectStarted, Fence: cur.Fence, StartedAt: now}
	switch i := effectIndex(cur, name); {
	case i >= 0 && notCalledBy(&cur.Effects[i], cur, notCalled):
		ef.StartedAt = cur.Effects[i].StartedAt
	case i >= 0 && (cur.Effects[i].State != store.EffectRefuted || cur.Effects[i].Failure != nil):
		return nil, Unknown(&Error{Code: CodeEffectUnknown, Message: "effect " + name + " is being started by another"})
	case i < 0 && len(cur.Effects) >= maxEffects:
		return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the call has %d effects already", maxEffects)}
	}
	return changeEffect(cur, name, now, func(slot *store.EffectRecord) { *slot = ef })
}

// notCalledBy reports whether the record's newest attempt started the effect and says,
// by notCalled, that it hasn't made the call.
func notCalledBy(ef *store.EffectRecord, rec *Record, notCalled bool) bool {
	return notCalled && ef.State == store.EffectStarted && ef.Fence == rec.Fence
}

// SettleEffect is the second half of [Effect]: it makes the result of a started
// effect durable. Refuted without a Failure means that it certainly didn't happen and
// may be started again. Settling it twice in the same way is harmless; settling it in
// another way afterwards is [CodeAlreadyEnded].
func (a *Attempt) SettleEffect(ctx context.Context, f store.EffectFinding) error {
	if f.State != store.EffectConfirmed && f.State != store.EffectRefuted {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("an effect is settled as confirmed or refuted, not as %q", f.State)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(f.Result.Data) > a.claim.Policy.MaxResult {
		f.Result = Result{Tombstone: true, Attributes: f.Result.Attributes}
	}
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt ended while effect " + f.Name + " was running"}
	}
	if a.pending != nil {
		if err := a.settlePending(ctx, a.op.engine.retrying()); err != nil {
			return err
		}
	}
	i := effectIndex(a.rec, f.Name)
	if i < 0 {
		return &Error{Code: CodeInvalidCall, Message: "effect " + f.Name + " was not started"}
	}
	if old := &a.rec.Effects[i]; old.State != store.EffectStarted {
		return settledAlready(old, &f)
	}
	// A crash before this write leaves the effect started, see startEffect. A
	// crash after it leaves a result that a further attempt replays.
	return a.write(ctx, store.ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		if a.fromBackup(cur, at) {
			return nil, errRestored
		}
		// The record may be newer than the one checked above.
		if i := effectIndex(cur, f.Name); i >= 0 && cur.Effects[i].State != store.EffectStarted {
			if err := settledAlready(&cur.Effects[i], &f); err != nil {
				return nil, err
			}
		}
		return changeEffect(cur, f.Name, at.now, settling(&f, &cur.Policy, at.now))
	})
}

// settledAlready compares a repeated settlement of an effect with the first.
func settledAlready(old *store.EffectRecord, f *store.EffectFinding) error {
	same := old.Result.Tombstone || bytes.Equal(old.Result.Data, f.Result.Data)
	if same && old.State == f.State && sameFailure(old.Failure, f.Failure) {
		return nil
	}
	return &Error{Code: CodeAlreadyEnded, Message: "effect " + f.Name + " was settled already, in another way"}
}

// sameFailure reports whether a is the stored form of b.
func sameFailure(a, b *store.Failure) bool {
	return (a == nil) == (b == nil) && (a == nil || *kept(b) == *a)
}

// Effects returns the ledger of the call as last known to be stored.
func (a *Attempt) Effects() []store.EffectRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rec.Effects)
}

// EffectKey returns the key that the provider gets for an effect of this call: the same in all
// attempts, and the same as [store.EffectRecord].Key once the effect is in the ledger.
func EffectKey(r *Record, name string) string { return effectKey(r.ID, r.Origin, name) }

// effectIndex finds an effect by name; -1 if there is none.
func effectIndex(r *Record, name string) int {
	return slices.IndexFunc(r.Effects, func(ef store.EffectRecord) bool { return ef.Name == name })
}

// changeEffect makes the successor of cur with one effect changed, which is added
// if the ledger does not have it.
func changeEffect(cur *Record, name string, now store.Instant, change func(*store.EffectRecord)) (*Record, error) {
	next, err := successor(cur, evEffect, now)
	if err != nil {
		return nil, err
	}
	next.Effects = slices.Grow(slices.Clone(next.Effects), 1)
	i := effectIndex(next, name)
	if i < 0 {
		i = len(next.Effects)
		next.Effects = append(next.Effects, store.EffectRecord{Name: name})
	}
	change(&next.Effects[i])
	next.Attributes, next.Effects[i].Result.Attributes = next.Attributes.With(next.Effects[i].Result.Attributes), nil
	if ef := &next.Effects[i]; !ledgerHolds(next, ef) {
		ef.Result = Result{Tombstone: true}
	}
	return next, nil
}

// ledgerHolds reports whether there is room for the effect's result beside the others.
func ledgerHolds(r *Record, ef *store.EffectRecord) bool {
	others := 0
	for i := range r.Effects {
		if other := &r.Effects[i]; other != ef {
			others += len(other.Result.Data)
		}
	}
	size := len(ef.Result.Data)
	return size == 0 || others == 0 || others+size <= MaxLedger
}
