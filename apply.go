package semel

import (
	"context"
	"time"
)

// apply writes next if expect is stored, and returns what is stored afterwards:
// next if applied, otherwise what stood in the way, which is the zero Record when
// expect names a record that is gone. Nothing it is given or returns may be
// changed.
//
// When the store's answer is an error, apply finds out whether the write arrived
// by sending the same write again: if its revision is stored, it did. The error
// it returns means that this is still unknown after Options.StoreTimeout. The
// caller's context bounds the first try only: once a write may have arrived,
// hanging up does not make it go away.
func (e *Engine) apply(ctx context.Context, next *Record, expect Revision) (*Record, bool, error) {
	if e.local != nil {
		if cur, applied := e.local.Swap(next, expect); applied || cur != nil {
			return cur, applied, nil
		}
		return &Record{}, false, nil
	}
	cur, applied, err := e.store.Apply(ctx, Write{Record: *next, Expect: expect})
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opts.StoreTimeout)
		defer cancel()
		return e.resolve(ctx, next, expect, err)
	}
	if applied {
		return next, true, nil
	}
	return &cur, false, nil
}

// resolve sends a write again until the store gives a definite answer or ctx is
// done. It is safe at any later time, because the write carries a revision of its
// own and names the one that it follows: a second arrival changes nothing.
func (e *Engine) resolve(ctx context.Context, next *Record, expect Revision, err error) (*Record, bool, error) {
	pause := 2 * time.Millisecond
	for try := 1; ; try++ {
		if e.events.StoreFailed != nil {
			e.events.StoreFailed(StoreFailedEvent{ID: next.ID, Call: "apply", Err: err, Try: try})
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: err}
		case <-timer.C:
		}
		pause = min(pause*2, 500*time.Millisecond)
		var cur Record
		var applied bool
		if cur, applied, err = e.store.Apply(ctx, Write{Record: *next, Expect: expect}); err != nil {
			continue
		}
		if applied || cur.Revision == next.Revision {
			return next, true, nil
		}
		return &cur, false, nil
	}
}

// releaseClaim goes on resolving a claim whose caller was told that the store is
// unavailable. If the claim arrived after all it is aborted, for nothing was
// executed under it; otherwise it would hold the key until its lease ends, and
// then be taken for an abandoned attempt.
func (e *Engine) releaseClaim(op *operation, claim *Record, expect Revision, err error) {
	e.goBackground(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 2*op.Lease)
		defer cancel()
		_, applied, err := e.resolve(ctx, claim, expect, err)
		if err != nil || !applied {
			return
		}
		now, err := e.now(ctx)
		if err != nil {
			return
		}
		next, err := end(&op.Operation, claim, evAbort, now, Result{}, &Failure{Code: string(CodeStoreUnavailable)})
		if err != nil {
			return
		}
		next.Revision = e.newRevision()
		// A crash before this write leaves a claim that nobody runs: it
		// becomes an abandoned attempt and is settled as one. A crash after
		// it leaves nothing to do.
		if _, applied, err = e.apply(ctx, next, claim.Revision); err == nil && applied {
			e.ended(next, "holder", "")
		}
	})
}

// ended tells of the end of an attempt and wakes those who wait for it.
func (e *Engine) ended(rec *Record, by, reason string) {
	e.waiters.wake(rec.ID)
	if e.events.Ended != nil {
		e.events.Ended(EndedEvent{
			ID: rec.ID, Disposition: rec.Disposition, Held: rec.Held, Attempt: rec.Attempt, Fence: rec.Fence,
			Took: rec.UpdatedAt.Sub(rec.StartedAt), By: by, Reason: reason, At: rec.UpdatedAt,
		})
	}
}
