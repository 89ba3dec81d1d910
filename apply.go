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
	hash     uint64 // what a [LocalStore] finds the identity by, if it is known
}

func (v *version) write() Write {
	return Write{Record: *v.rec, Expect: v.expect, Evidence: v.evidence}
}

// apply writes v if what it follows is stored, and returns what is stored afterwards:
// v.rec if applied, otherwise what stood in the way, which is the zero Record when
// v follows a record that is gone. Nothing it is given or returns may be changed.
//
// When the store's answer is an error, apply finds out whether the write arrived
// by sending the same write again: if its revision is stored, it did. The error
// it returns means that this is still unknown after Options.StoreTimeout. The
// caller's hanging up changes nothing: once a write may have arrived, it does not
// go away.
func (e *Engine) apply(ctx context.Context, v version) (*Record, bool, error) {
	return e.applyWhile(ctx, &v, func(error) bool { return true })
}

// applyClaim is apply for a claim: where it is sure that nothing was written, the
// caller is told so at once, for a store that is too busy is not helped by waiting.
func (e *Engine) applyClaim(ctx context.Context, v *version) (*Record, bool, error) {
	return e.applyWhile(ctx, v, func(err error) bool { return !errors.Is(err, ErrNotApplied) })
}

// applyWhile is apply that resolves only errors worth it.
func (e *Engine) applyWhile(ctx context.Context, v *version, worth func(error) bool) (*Record, bool, error) {
	if e.local != nil {
		return e.swap(v)
	}
	call, own := e.storeCall(ctx)
	if own {
		defer call.end()
	}
	cur, applied, err := e.applyOnce(call, v, 1)
	if err != nil && worth(err) {
		return e.resolve(call, v)
	}
	return cur, applied, err
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

// patientNow is now for what must not be given up because of one failed question: it
// asks again until Options.StoreTimeout.
func (e *Engine) patientNow(ctx context.Context) (Instant, error) {
	if e.local != nil {
		return e.now(ctx)
	}
	call, own := e.storeCall(ctx)
	if own {
		defer call.end()
	}
	ctx = call
	now, err := e.now(ctx)
	for b := newBackoff(); err != nil && b.wait(ctx); {
		now, err = e.now(ctx)
	}
	return now, err
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

// resolve sends a write whose result is unknown again until the store gives a
// definite answer or ctx is done. It is safe at any later time, because the write
// carries a revision of its own and names the one that it follows: a second
// arrival changes nothing.
func (e *Engine) resolve(ctx context.Context, v *version) (*Record, bool, error) {
	b := newBackoff()
	for try := 2; b.wait(ctx); try++ {
		if cur, applied, err := e.applyOnce(ctx, v, try); err == nil {
			return cur, applied, nil
		}
	}
	return nil, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: ctx.Err()}
}

// releaseClaim goes on resolving a claim whose caller was told that the store is
// unavailable. If the claim arrived after all it is aborted, for nothing was
// executed under it; otherwise it would hold the key until its lease ends, and
// then be taken for an abandoned attempt.
func (e *Engine) releaseClaim(op *operation, claim version) {
	e.goBackground(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 2*op.Lease)
		defer cancel()
		_, applied, err := e.resolve(ctx, &claim)
		if err != nil || !applied {
			return
		}
		now, err := e.now(ctx)
		if err != nil {
			return
		}
		next, err := end(&op.Operation, claim.rec, evAbort, now, Result{}, &Failure{Code: string(CodeStoreUnavailable)})
		if err != nil {
			return
		}
		v := e.stamp(&op.Operation, claim.rec, next, ChangeEnded)
		// A crash before this write leaves a claim that nobody runs: it
		// becomes an abandoned attempt and is settled as one. A crash after
		// it leaves nothing to do.
		if _, applied, err = e.apply(ctx, v); err == nil && applied {
			e.ended(next, "holder", "")
		}
	})
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
