package semel

import (
	"context"
	"errors"
	"time"
)

// version is a new version of a record on its way to the store. It is sent as it is
// as often as it takes.
type version struct {
	rec      *Record
	expect   Revision // of the version that it follows; zero for none
	evidence []Entry
	deadline Instant // until when it may be made; zero: whenever
	hash     uint64  // what a [LocalStore] finds the identity by, if it is known
}

func (v *version) write() Write {
	return Write{Record: *v.rec, Expect: v.expect, Evidence: v.evidence, Deadline: v.deadline}
}

// apply writes v if what it follows is stored, and returns what is stored afterwards:
// v.rec if applied, otherwise what stood in the way, which is the zero Record when
// v follows a record that is gone. Nothing it is given or returns may be changed.
//
// When the store's answer is an error, apply finds out whether the write arrived
// by sending the same write again: if its revision is stored, it did. An error that
// wraps [ErrNotApplied] means that it did not and never will; after any other that
// is still unknown after Options.StoreTimeout. The caller's hanging up changes
// nothing: once a write may have arrived, it does not go away.
func (e *Engine) apply(ctx context.Context, v version) (*Record, bool, error) {
	return e.send(ctx, &v, true)
}

// applyClaim is apply for a claim: where it is sure that nothing was written, the
// caller is told so at once, for a store that is too busy is not helped by waiting.
func (e *Engine) applyClaim(ctx context.Context, v *version) (*Record, bool, error) {
	return e.send(ctx, v, false)
}

// send sends a write until its result is known. patient: also where the store was
// sure that a try was in vain.
func (e *Engine) send(ctx context.Context, v *version, patient bool) (*Record, bool, error) {
	if e.local != nil {
		return e.swap(v)
	}
	call, own := e.storeCall(ctx)
	if own {
		defer call.end()
	}
	b := newBackoff()
	unknown := false // whether one of the tries may have arrived
	for try := 1; ; try++ {
		cur, applied, err := e.applyOnce(call, v, try)
		switch {
		case err == nil, errors.Is(err, ErrTooLate):
			// A try that arrived before would have been found, and one that arrives
			// later is late as well.
			return cur, applied, err
		case !errors.Is(err, ErrNotApplied):
			unknown = true
		case !patient && !unknown:
			return nil, false, err
		}
		if b.wait(call) {
			continue
		}
		if unknown && errors.Is(err, ErrNotApplied) {
			err = &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: call.Err()}
		}
		return nil, false, err
	}
}

// swap is apply on a local store.
func (e *Engine) swap(v *version) (*Record, bool, error) {
	if v.hash == 0 {
		v.hash = e.local.Hash(v.rec.ID)
	}
	cur, applied := e.local.Swap(v.hash, v.rec, v.expect, v.evidence)
	if cur == nil {
		cur = &none
	}
	return cur, applied, nil
}

// applyOnce sends a write. After an error its result is unknown.
func (e *Engine) applyOnce(ctx context.Context, v *version, try int) (*Record, bool, error) {
	if e.local != nil {
		return e.swap(v)
	}
	cur, applied, err := e.store.Apply(ctx, v.write())
	switch {
	case err != nil:
		if e.events.StoreFailed != nil {
			e.events.StoreFailed(StoreFailedEvent{ID: v.rec.ID, Call: "apply", Err: err, Try: try})
		}
		if errors.Is(err, ErrNotApplied) {
			return nil, false, &Error{Code: CodeStoreUnavailable, RetryAfter: minRetryAfter, Err: err}
		}
		return nil, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: err}
	case applied || cur.Revision == v.rec.Revision:
		return v.rec, true, nil
	}
	stored := new(Record) // not &cur, which would then be on the heap in any case
	*stored = cur
	return stored, false, nil
}

// patientRead is read for what must not be given up because of one failed question:
// it asks again until Options.StoreTimeout.
func (e *Engine) patientRead(ctx context.Context) (reading, error) {
	if e.local != nil {
		return e.read(ctx)
	}
	call, own := e.storeCall(ctx)
	if own {
		defer call.end()
	}
	at, err := e.read(call)
	for b := newBackoff(); err != nil && b.wait(call); {
		at, err = e.read(call)
	}
	return at, err
}

// backoff is the pause before a store that has failed is asked again.
type backoff time.Duration

func newBackoff() backoff { return backoff(2 * time.Millisecond) }

// wait pauses, longer each time, and reports false if ctx ends before.
func (b *backoff) wait(ctx context.Context) bool {
	d := time.Duration(*b)
	*b = min(*b*2, backoff(500*time.Millisecond))
	return pause(ctx, d)
}

// pause waits for d, and reports false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ended tells of the end of an attempt and wakes those who wait for it.
func (e *Engine) ended(rec *Record, by, reason string) {
	e.waiters.wake(rec.ID)
	if len(rec.Outbox) != 0 {
		e.dispatch(rec)
	}
	if e.events.Ended != nil {
		e.events.Ended(EndedEvent{
			ID: rec.ID, Disposition: rec.Disposition, Held: rec.Held, Attempt: rec.Attempt, Fence: rec.Fence,
			Took: rec.UpdatedAt.Sub(rec.StartedAt), By: by, Reason: reason, At: rec.UpdatedAt.Time(),
		})
	}
}
