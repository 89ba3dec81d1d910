package semel

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/engine/backlog"
	"github.com/semelhq/semel/store"
)

// Renew extends the lease to its full time from now. The lease renews itself at a third
// of its time; call Renew before your handler blocks the whole process. [ErrLeaseLost]
// means that the right to execute is gone.
func (a *Attempt) Renew(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.renew(ctx, a.op.engine.retrying())
}

// tryRenew is Renew without waiting for another write of the attempt, and without
// retrying if the store fails.
func (a *Attempt) tryRenew(ctx context.Context) error {
	if !a.mu.TryLock() {
		return errBusy
	}
	defer a.mu.Unlock()
	return a.renew(ctx, a.op.engine.once())
}

var errBusy = errors.New("semel: another write of the attempt is under way")

// renew is Renew for callers that hold a.mu.
func (a *Attempt) renew(ctx context.Context, by sending) error {
	if a.ended != evNone {
		return &Error{Code: CodeAlreadyEnded, Message: "the attempt has ended"}
	}
	if err := a.handler.Lost(); err != nil {
		return err
	}
	var since time.Duration
	// A crash before or after this write leaves a lease that ends by itself;
	// it only ends later in the second case.
	err := a.writeBy(ctx, by, store.ChangePostponed, func(cur *Record, at reading) (*Record, error) {
		if err := a.interrupted(cur, at); err != nil {
			return nil, err
		}
		since = at.elapsed
		return extend(cur, evRenew, at.now)
	})
	if errors.Is(err, ErrLeaseLost) {
		a.lose(err)
	}
	if err == nil {
		a.leased(since)
	}
	return err
}

// renewOrStop renews the lease, which began at the local time since. While the store
// doesn't answer it tries again, and shortly before the lease may be over it tells the
// handler to stop, because there may be another attempt afterwards.
func (a *Attempt) renewOrStop(since time.Duration) {
	// The lease began after since by the store's clock, so it is not over
	// before this.
	left := since + handlerTime(a.op.Lease) - a.op.engine.elapsed()
	guard := time.AfterFunc(left, func() {
		a.lose(&Error{Code: CodeLeaseLost, Message: "the lease could not be renewed in time"})
	})
	defer guard.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.handler.Parent), left)
	defer cancel()
	for {
		err := a.tryRenew(ctx)
		if err == nil || a.handler.Stopped() {
			return
		}
		select {
		case <-time.After(max(a.op.Lease/30, time.Millisecond)):
		case <-a.Context().Done():
			return
		case <-ctx.Done():
			return // the guard tells the handler to stop
		}
	}
}

// maxReleases bounds the claims that wait to be released. Each has the size of its identity.
const maxReleases = 4096

// releases are claims that don't run, because the store was unavailable and the callers got an
// error. If such a claim was written after all, it is aborted, because nothing was executed
// under it. Otherwise it would hold the key until its lease ends, and then count as an
// abandoned attempt.
//
// Another engine may have declared it held by then. It is aborted all the same, because the
// record's HeldFrom names the claim.
//
// One goroutine checks all of them, one at a time, so that a recovering store isn't
// flooded. The claims are only read, never sent again.
type releases = backlog.Backlog[release]

// release is a claim that waits for its release.
type release struct {
	op     *operation
	id     ID
	claims []store.Revision // of the claim, and of versions of it with a later lease
	after  store.Revision   // the version that the claim replaces
	// until is the time after which it can't arrive any more.
	until store.Instant
}

// releaseClaim queues a claim for release after its write, and perhaps renewals of it, got no
// answer in time.
func (e *Engine) releaseClaim(op *operation, claim *version, renewals ...store.Revision) {
	claims := append([]store.Revision{claim.Record.Revision}, renewals...)
	e.releaseLater(release{op, claim.Record.ID, claims, claim.Expect, claim.Deadline})
}

func (e *Engine) releaseLater(x release) {
	taken, first := e.releases.Add(x, maxReleases)
	if !taken && e.events.ReleaseDropped != nil {
		e.events.ReleaseDropped(ReleaseDropped{ID: x.id})
	}
	if first {
		e.goBackground(e.releaseClaims)
	}
}

// releaseClaims checks all claims again and again until it has dealt with each. Its backoff
// grows while it gets nowhere.
func (e *Engine) releaseClaims(ctx context.Context) {
	b := firstPause
	for {
		all := e.releases.Take()
		if len(all) == 0 {
			return
		}
		var left []release
		for i := range all {
			done, err := e.tryRelease(ctx, &all[i])
			if err != nil { // the others would fail as well
				left = append(left, all[i:]...)
				break
			}
			if !done {
				left = append(left, all[i])
			}
		}
		if len(left) < len(all) {
			b = firstPause
		}
		e.releases.PutBack(left)
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
	defer own.End()
	rec, err := e.getIfAny(call, x.id)
	if err != nil {
		return false, err
	}
	if unused(rec, x.claims) {
		// If another write was faster, it may have declared the claim held: look again later.
		_, released, err := e.release(call, x.op, rec)
		return released, err
	}
	// It can still arrive as long as the version that it follows is stored and its
	// deadline hasn't passed.
	return rec.Revision != x.after || now >= x.until, nil
}

// unused reports whether a record is as one of the claims left it, or was declared held from
// that state. Handing the claim to a holder, through whatever door, is another write, so no
// holder ever got an unused one.
func unused(rec *Record, claims []store.Revision) bool {
	return slices.Contains(claims, rec.Revision) || rec.Held && slices.Contains(claims, rec.HeldFrom)
}

// release aborts a claim that is unused, if the record is still as it was read. It
// returns the record that is stored then, and reports whether it aborted the claim.
func (e *Engine) release(ctx context.Context, op *operation, rec *Record) (*Record, bool, error) {
	now, err := e.now(ctx)
	if err != nil {
		return rec, false, err
	}
	next, err := end(rec, evAbort, now, Result{}, &store.Failure{Code: string(CodeStoreUnavailable)})
	if err != nil {
		return rec, false, err
	}
	next = buried(next)
	// A crash before this write leaves a claim that doesn't run: it becomes an
	// abandoned attempt and is settled as one. A crash after it leaves nothing to do.
	return e.replace(ctx, op, rec, next, store.ChangeReleased, byHolder)
}
