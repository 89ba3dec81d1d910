package semel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of the ledger of one call.
const (
	maxEffects = 1000
	// MaxLedger bounds the results of one call's effects together, in bytes: the
	// record is written whole at every step. The first result may have more, if
	// Operation.MaxResult lets it. What comes beyond is not kept: the effect is
	// confirmed, and leaves a tombstone.
	MaxLedger = 4 << 20
)

// Effect makes one external call at most once, as far as anyone can: the intent
// is durable before fn is called, its result is durable before Effect returns. A
// further attempt of the same call gets the recorded result without calling fn.
//
// The name is unique within the call; in a loop, number it ("mail/1"). The
// effectKey that fn gets is the same in all attempts of this call: pass it to
// the provider as its idempotency key.
//
// What fn's error says decides what is recorded:
//
//   - [Aborted]: it is proved that the effect did not happen. It may be tried
//     again, by this attempt or the next.
//   - [Rejected]: the provider refused for good. The refusal is recorded and
//     replayed, without its cause.
//   - anything else: unknown. The effect stays started, is never called again,
//     and an attempt that ends with this error is held until it is settled.
//
// T is kept as JSON. A result larger than Operation.MaxResult, or beyond [MaxLedger]
// together with those before, is returned now but not kept; a further attempt gets
// [CodeResultNotKept].
func Effect[T any](ctx context.Context, x Execution, name string, fn func(ctx context.Context, effectKey string) (T, error)) (T, error) {
	var v T
	ef, err := x.StartEffect(ctx, name)
	if err != nil {
		return v, err
	}
	if ef.State == EffectConfirmed {
		if err := json.Unmarshal(ef.Result.Data, &v); err != nil {
			return v, &Error{Code: CodeUnknown, Message: "the recorded result of effect " + name + " does not fit its type", Err: err}
		}
		return v, nil
	}
	v, err = fn(ctx, ef.Key)
	finding := EffectFinding{Name: name, State: EffectConfirmed}
	if err == nil {
		data, jerr := json.Marshal(v)
		if jerr != nil {
			// The effect happened; what it returned can't be kept.
			return v, Unknown(fmt.Errorf("the result of effect %s has no JSON form: %w", name, jerr))
		}
		finding.Result.Data = data
	} else {
		verdict, ok := verdictOf(err)
		if !ok || verdict.disposition == unended {
			return v, err // stays started
		}
		finding.State = EffectRefuted
		if verdict.disposition == DispositionRejected {
			finding.Failure = &Failure{Code: verdict.code, Message: verdict.Error()}
		}
	}
	if serr := x.SettleEffect(ctx, finding); serr != nil {
		// What the provider said is known here but is not durable, so the
		// attempt may not go on as if it were.
		return v, Unknown(errors.Join(err, serr))
	}
	return v, err
}

// StartEffect is the first half of [Effect]: it makes the intent durable, or finds
// the recorded result. The effect that it returns is started, and then the caller
// makes the call with its Key and tells the result by SettleEffect; or it is
// confirmed, and the caller uses its Result instead.
//
// An error marked [Unknown] with [CodeEffectUnknown] means that it was started
// before and nobody knows what became of it; one marked [Rejected] that the
// provider has refused it for good. After any other error the call may not be
// made either.
//
// Where the store was the reason, nothing is known against the work. A handler that
// returns the error to [Engine.Do] gives its attempt up, as by [Attempt.Abandon], if
// the ledger or the policy allows another one, which goes on where this one stopped.
// That takes Operation.Effects or [RetryAbandoned]: otherwise nobody knows what the
// handler did beside the ledger, and the attempt fails.
func (a *Attempt) StartEffect(ctx context.Context, name string) (EffectRecord, error) {
	ef, err := a.startEffect(ctx, name, false)
	if errors.Is(err, &Error{Code: CodeStoreUnavailable}) || errors.Is(err, ErrUnknown) {
		err = &notStarted{err}
	}
	return ef, err
}

// notStarted marks an error of the store which kept an effect from being called.
type notStarted struct{ error }

func (e *notStarted) Unwrap() error { return e.error }

// RestartEffect is StartEffect by a holder that asked before, did not get the
// answer, and has not made the call: an effect that this attempt has started
// already is returned as started. Telling the holder so is a write, as the first
// start was: one whose record was held meanwhile gets [CodeLeaseLost].
func (a *Attempt) RestartEffect(ctx context.Context, name string) (EffectRecord, error) {
	return a.startEffect(ctx, name, true)
}

func (a *Attempt) startEffect(ctx context.Context, name string, uncalled bool) (ef EffectRecord, err error) {
	if name == "" || len(name) > maxNameLen || !validText(name) {
		return ef, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the name of an effect has 1 to %d bytes of UTF-8 without NUL", maxNameLen)}
	}
	if !a.op.declares(name) {
		return ef, &Error{Code: CodeInvalidCall, Message: "operation " + a.op.Name + " does not declare effect " + name}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != evNone {
		return ef, &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := a.handler.lost(); err != nil {
		return ef, err
	}
	if a.overdue() {
		err := &Error{Code: CodeLeaseLost, Message: "the lease could not be renewed in time"}
		a.lose(err)
		return ef, err
	}
	if err := a.settlePending(ctx, a.op.engine.patiently()); err != nil {
		return ef, err
	}
	if i := a.rec.effectIndex(name); i >= 0 {
		switch old := a.rec.Effects[i]; {
		case old.uncalledBy(a.rec, uncalled): // is granted again, below
		case old.State == EffectStarted:
			return old, Unknown(&Error{Code: CodeEffectUnknown, Message: "effect " + name + " was started and its result is not known"})
		case old.State == EffectConfirmed && old.Result.Tombstone:
			return old, &Error{Code: CodeResultNotKept, Message: "effect " + name + " happened, but its result was not kept"}
		case old.State == EffectConfirmed:
			return old, nil
		case old.Failure != nil:
			return old, Rejected(old.Failure.Code, errors.New(old.Failure.Message))
		}
	}
	var since time.Duration
	// A crash before this write leaves no trace of the effect, and it was not
	// called. A crash after it leaves it started: whether it was called is not
	// known, so the attempt is held, and a reconciler or an operator settles it.
	err = a.write(ctx, ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		switch {
		case cur.Held != "":
			return nil, &Error{Code: CodeLeaseLost, Message: "the record was declared held"}
		case a.op.engine.restored(cur, at.now):
			return nil, &Error{Code: CodeLeaseLost, Message: "the store was restored from a backup: what was done since is not known"}
		}
		// The record may be newer than the one looked at above: a holder that is
		// elsewhere may ask twice at once, and only one of the two may call.
		i := cur.effectIndex(name)
		again := i >= 0 && cur.Effects[i].uncalledBy(cur, uncalled)
		if i >= 0 && !again && (cur.Effects[i].State != EffectRefuted || cur.Effects[i].Failure != nil) {
			return nil, Unknown(&Error{Code: CodeEffectUnknown, Message: "effect " + name + " is being started by another"})
		}
		if i < 0 && len(cur.Effects) >= maxEffects {
			return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the call has %d effects already", maxEffects)}
		}
		ef = EffectRecord{
			Name: name, Key: effectKey(cur.ID, cur.Origin, name), State: EffectStarted, Fence: cur.Fence, StartedAt: at.now,
		}
		if again {
			ef.StartedAt = cur.Effects[i].StartedAt
		}
		next, err := changeEffect(cur, name, at.now, func(slot *EffectRecord) { *slot = ef })
		if err == nil && !a.unrecorded {
			// The call has a whole lease before it.
			next.LeaseUntil = at.now.Add(cur.Policy.Lease)
			next.NextAt = next.LeaseUntil
			since = at.elapsed
		}
		return next, err
	})
	if err != nil && a.doubt != nil {
		// The intent may be durable, but the effect will not be called.
		a.doubt.uncalled = name
	}
	if err != nil {
		return ef, err
	}
	a.leased(since)
	lost := a.handler.lost()
	if lost == nil && a.overdue() {
		lost = &Error{Code: CodeLeaseLost, Message: "the store took longer than the lease"}
		a.lose(lost)
	}
	if lost != nil {
		// The write took longer than the lease had left. Another may have been
		// given the right meanwhile, and been told that nothing was called. Where
		// it was not, the ledger says so; otherwise it is the other's by now.
		_ = a.uncall(ctx, a.op.engine.patiently(), name)
		return ef, lost
	}
	return ef, nil
}

// uncalledBy reports whether the effect was started by the attempt that holds the
// record now, which says that it has not made the call.
func (ef *EffectRecord) uncalledBy(rec *Record, uncalled bool) bool {
	return uncalled && ef.State == EffectStarted && ef.Fence == rec.Fence
}

// SettleEffect is the second half of [Effect]: it makes what became of a started
// effect durable. Refuted without a Failure means that it is proved not to have
// happened and may be started again. Telling the same twice is harmless; telling
// another thing afterwards is [CodeAlreadyEnded].
func (a *Attempt) SettleEffect(ctx context.Context, f EffectFinding) error {
	if f.State != EffectConfirmed && f.State != EffectRefuted {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("an effect is settled as confirmed or refuted, not as %q", f.State)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(f.Result.Data) > a.claim.Policy.MaxResult {
		f.Result = Result{Tombstone: true}
	}
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt ended while effect " + f.Name + " was running"}
	}
	if err := a.settlePending(ctx, a.op.engine.patiently()); err != nil {
		return err
	}
	i := a.rec.effectIndex(f.Name)
	if i < 0 {
		return &Error{Code: CodeInvalidCall, Message: "effect " + f.Name + " was not started"}
	}
	if old := &a.rec.Effects[i]; old.State != EffectStarted {
		return settledAlready(old, &f)
	}
	// A crash before this write leaves the effect started, see startEffect. A
	// crash after it leaves a result that a further attempt replays.
	return a.write(ctx, ChangeEffect, func(cur *Record, at reading) (*Record, error) {
		// The record may be newer than the one looked at above.
		if i := cur.effectIndex(f.Name); i >= 0 && cur.Effects[i].State != EffectStarted {
			if err := settledAlready(&cur.Effects[i], &f); err != nil {
				return nil, err
			}
		}
		return changeEffect(cur, f.Name, at.now, f.settle(&cur.Policy, at.now))
	})
}

// settledAlready compares what is told of an effect with what was told before.
func settledAlready(old *EffectRecord, f *EffectFinding) error {
	same := old.Result.Tombstone || bytes.Equal(old.Result.Data, f.Result.Data)
	if same && old.State == f.State && sameFailure(old.Failure, f.Failure) {
		return nil
	}
	return &Error{Code: CodeAlreadyEnded, Message: "effect " + f.Name + " was settled already, in another way"}
}

// sameFailure reports whether b would be kept as a.
func sameFailure(a, b *Failure) bool {
	return (a == nil) == (b == nil) && (a == nil || *b.kept() == *a)
}

// Effects is the ledger of the call as last known to be stored.
func (a *Attempt) Effects() []EffectRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rec.Effects)
}

// EffectKey is the key that the provider gets for an effect of this call: the same
// in all attempts, and the same as [EffectRecord].Key once the effect is in the
// ledger.
func (r *Record) EffectKey(name string) string { return effectKey(r.ID, r.Origin, name) }

// effectIndex finds an effect by name; -1 if there is none.
func (r *Record) effectIndex(name string) int {
	return slices.IndexFunc(r.Effects, func(ef EffectRecord) bool { return ef.Name == name })
}

// changeEffect makes the successor of cur with one effect changed, which is added
// if the ledger does not have it.
func changeEffect(cur *Record, name string, now Instant, change func(*EffectRecord)) (*Record, error) {
	next, err := successor(cur, evEffect, now)
	if err != nil {
		return nil, err
	}
	next.Effects = slices.Grow(slices.Clone(next.Effects), 1)
	i := next.effectIndex(name)
	if i < 0 {
		i = len(next.Effects)
		next.Effects = append(next.Effects, EffectRecord{Name: name})
	}
	change(&next.Effects[i])
	if ef := &next.Effects[i]; !next.ledgerHolds(ef) {
		ef.Result = Result{Tombstone: true}
	}
	return next, nil
}

// ledgerHolds reports whether there is room for the effect's result beside the others.
func (r *Record) ledgerHolds(ef *EffectRecord) bool {
	others := 0
	for i := range r.Effects {
		if other := &r.Effects[i]; other != ef {
			others += len(other.Result.Data)
		}
	}
	size := len(ef.Result.Data)
	return size == 0 || others == 0 || others+size <= MaxLedger
}
