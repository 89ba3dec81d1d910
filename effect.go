package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxEffects bounds the ledger of one call.
const maxEffects = 1000

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
// T is kept as JSON. A result larger than Operation.MaxResult is returned now
// but not kept; a further attempt gets [CodeResultNotKept].
func Effect[T any](ctx context.Context, a *Attempt, name string, fn func(ctx context.Context, effectKey string) (T, error)) (T, error) {
	var fresh *T
	data, err := a.effect(ctx, name, func(ctx context.Context, key string) ([]byte, error) {
		v, err := fn(ctx, key)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(v)
		if err != nil {
			// The effect happened; what it returned can't be kept.
			return nil, Unknown(fmt.Errorf("the result of effect %s has no JSON form: %w", name, err))
		}
		fresh = &v
		return data, nil
	})
	if err != nil {
		var zero T
		return zero, err
	}
	if fresh != nil {
		return *fresh, nil
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return v, &Error{Code: CodeUnknown, Message: "the recorded result of effect " + name + " does not fit its type", Err: err}
	}
	return v, nil
}

// effect is Effect without the type.
func (a *Attempt) effect(ctx context.Context, name string, fn func(ctx context.Context, key string) ([]byte, error)) ([]byte, error) {
	ef, replayed, err := a.startEffect(ctx, name)
	if err != nil || replayed {
		return ef.Result.Data, err
	}
	data, err := fn(ctx, ef.Key)
	settle := func(ef *EffectRecord) {
		ef.State, ef.Result = EffectConfirmed, Result{Data: data}
		if len(data) > a.op.MaxResult {
			ef.Result = Result{Tombstone: true}
		}
	}
	if err != nil {
		v, ok := verdictOf(err)
		if !ok || v.disposition == "" {
			return nil, err // stays started
		}
		settle = func(ef *EffectRecord) {
			ef.State = EffectRefuted
			if v.disposition == DispositionRejected {
				ef.Failure = &Failure{Code: v.code, Message: v.Error()}
			}
		}
	}
	if werr := a.settleEffect(ctx, name, settle); werr != nil {
		// What the provider said is known here but is not durable, so the
		// attempt may not go on as if it were.
		return nil, Unknown(errors.Join(err, werr))
	}
	return data, err
}

// startEffect makes the intent durable, or finds the recorded result.
func (a *Attempt) startEffect(ctx context.Context, name string) (ef EffectRecord, replayed bool, err error) {
	if name == "" || len(name) > maxNameLen || !validText(name) {
		return ef, false, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the name of an effect has 1 to %d bytes of UTF-8 without NUL", maxNameLen)}
	}
	if !a.op.declares(name) {
		return ef, false, &Error{Code: CodeInvalidCall, Message: "operation " + a.op.Name + " does not declare effect " + name}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != evNone {
		return ef, false, &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := a.handler.lost(); err != nil {
		return ef, false, err
	}
	if err := a.settlePending(ctx, a.engine.apply); err != nil {
		return ef, false, err
	}
	if i := a.rec.effectIndex(name); i >= 0 {
		switch old := a.rec.Effects[i]; {
		case old.State == EffectStarted:
			return old, false, Unknown(&Error{Code: CodeEffectUnknown, Message: "effect " + name + " was started and its result is not known"})
		case old.State == EffectConfirmed && old.Result.Tombstone:
			return old, true, &Error{Code: CodeResultNotKept, Message: "effect " + name + " happened, but its result was not kept"}
		case old.State == EffectConfirmed:
			return old, true, nil
		case old.Failure != nil:
			return old, true, Rejected(old.Failure.Code, errors.New(old.Failure.Message))
		}
	}
	now, err := a.engine.now(ctx)
	if err != nil {
		return ef, false, err
	}
	ef = EffectRecord{
		Name: name, Key: effectKey(a.rec.ID, a.rec.Origin, name), State: EffectStarted, Fence: a.rec.Fence, StartedAt: now,
	}
	// A crash before this write leaves no trace of the effect, and it was not
	// called. A crash after it leaves it started: whether it was called is not
	// known, so the attempt is held, and a reconciler or an operator settles it.
	err = a.write(ctx, func(cur *Record) (*Record, error) {
		if cur.Held != "" {
			return nil, &Error{Code: CodeLeaseLost, Message: "the record was declared held"}
		}
		if cur.effectIndex(name) < 0 && len(cur.Effects) >= maxEffects {
			return nil, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the call has %d effects already", maxEffects)}
		}
		return changeEffect(cur, name, now, func(slot *EffectRecord) { *slot = ef })
	})
	if err != nil && a.pending != nil {
		// The intent may be durable, but the effect will not be called.
		a.uncalled = name
	}
	return ef, false, err
}

// settleEffect makes what became of a started effect durable.
func (a *Attempt) settleEffect(ctx context.Context, name string, settle func(*EffectRecord)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt ended while effect " + name + " was running"}
	}
	now, err := a.engine.now(ctx)
	if err != nil {
		return err
	}
	// A crash before this write leaves the effect started, see startEffect. A
	// crash after it leaves a result that a further attempt replays.
	return a.write(ctx, func(cur *Record) (*Record, error) {
		return changeEffect(cur, name, now, func(ef *EffectRecord) {
			settle(ef)
			ef.SettledAt = now
		})
	})
}

// Effects is the ledger of the call as last known to be stored.
func (a *Attempt) Effects() []EffectRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.rec.Effects)
}

// effectIndex finds an effect by name; -1 if there is none.
func (r *Record) effectIndex(name string) int {
	return slices.IndexFunc(r.Effects, func(ef EffectRecord) bool { return ef.Name == name })
}

// changeEffect makes the successor of cur with one effect changed, which is added
// if the ledger does not have it.
func changeEffect(cur *Record, name string, now time.Time, change func(*EffectRecord)) (*Record, error) {
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
	return next, nil
}
