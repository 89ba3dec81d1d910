package semel

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// maxReleases bounds the claims that wait to be released, each of which has the
// size of its identity.
const maxReleases = 4096

// releases are claims that nobody runs: their callers were told that the store is
// unavailable. One that arrived after all is aborted, for nothing was executed under
// it; otherwise it would hold the key until its lease ends, and then be taken for
// an abandoned attempt.
//
// One goroutine looks after all of them, with one question at a time: a store that
// comes back meets no crowd. They are only looked at, never sent again.
type releases struct {
	mu      sync.Mutex
	queue   []release
	running bool
}

// release is a claim that is to be released.
type release struct {
	op     *operation
	id     ID
	claims []Revision // the claim, and versions of it with a lease that begins later
	after  Revision   // what the claim follows
	// until is when it can't arrive any more.
	until Instant
}

// add takes a claim. It reports false where there are too many.
func (r *releases) add(x release) (taken, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxReleases {
		return false, false
	}
	r.queue = append(r.queue, x)
	first = !r.running
	r.running = true
	return true, first
}

// take takes all of them; none ends the work.
func (r *releases) take() []release {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.queue
	r.queue, r.running = nil, len(all) > 0
	return all
}

// again puts back those that have to be looked at once more.
func (r *releases) again(left []release) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(left, r.queue...)
}

// releaseClaim has a claim released that was not answered in time, or not renewed.
func (e *Engine) releaseClaim(op *operation, claim *version, renewals ...Revision) {
	claims := append([]Revision{claim.rec.Revision}, renewals...)
	taken, first := e.releases.add(release{op, claim.rec.ID, claims, claim.expect, claim.deadline})
	if !taken && e.events.ReleaseDropped != nil {
		e.events.ReleaseDropped(claim.rec.ID)
	}
	if first {
		e.goBackground(e.releaseClaims)
	}
}

// releaseClaims goes through all claims again and again, with a pause that grows while
// nothing can be done, until there are none left.
func (e *Engine) releaseClaims(ctx context.Context) {
	b := newBackoff()
	for {
		all := e.releases.take()
		if len(all) == 0 {
			return
		}
		var left []release
		for i := range all {
			done, err := e.tryRelease(ctx, &all[i])
			if err != nil { // and so it would be for the others
				left = append(left, all[i:]...)
				break
			}
			if !done {
				left = append(left, all[i])
			}
		}
		if len(left) < len(all) {
			b = newBackoff()
		}
		e.releases.again(left)
		if len(left) > 0 && !b.wait(ctx) {
			return
		}
	}
}

// tryRelease reports whether there is nothing more to do for a claim.
func (e *Engine) tryRelease(ctx context.Context, x *release) (done bool, err error) {
	now, err := e.now(ctx)
	if err != nil {
		return false, err
	}
	call, own := e.storeCall(ctx)
	if own {
		defer call.end()
	}
	rec, err := e.get(call, x.id)
	switch {
	case errors.Is(err, ErrNotFound):
		rec = Record{}
	case err != nil:
		return false, e.storeError("get", x.id, err)
	}
	if slices.Contains(x.claims, rec.Revision) {
		_, err := e.release(call, x.op, &rec)
		return err == nil, err
	}
	// It can still arrive where what it follows is stored, and in time.
	return rec.Revision != x.after || now >= x.until, nil
}

// release aborts a claim under which nothing was executed, if the record is still as
// the claim has left it. Whoever was given the claim, its own holder too, has changed
// the record, and then the release is in vain. It reports whether it was made.
func (e *Engine) release(ctx context.Context, op *operation, claim *Record) (bool, error) {
	now, err := e.now(ctx)
	if err != nil {
		return false, err
	}
	next, err := end(claim, evAbort, now, Result{}, &Failure{Code: string(CodeStoreUnavailable)})
	if err != nil {
		return false, err
	}
	v := e.stamp(&op.Operation, claim, next, ChangeEnded)
	// A crash before this write leaves a claim that nobody runs: it becomes an
	// abandoned attempt and is settled as one. A crash after it leaves nothing to do.
	_, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, "holder", "")
	}
	return applied, err
}
