package semelhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/transport/judge"
)

// endKind is one of the ways to end an attempt.
type endKind uint8

const (
	endComplete endKind = iota
	endReject
	endFail
	endAbort
	endHold
	endAbandon
)

// ending is how an attempt ends. You can apply it again if the store didn't say whether
// it was written.
type ending struct {
	kind    endKind
	result  semel.Result
	failure store.Failure
}

func (e *ending) apply(ctx context.Context, a *semel.Attempt) error {
	switch e.kind {
	case endComplete:
		return a.Complete(ctx, e.result)
	case endReject:
		return a.Reject(ctx, e.failure, e.result)
	case endFail:
		return a.Fail(ctx, e.failure, e.result)
	case endAbort:
		return a.Abort(ctx, e.failure)
	case endHold:
		return a.Hold(ctx, e.failure.Message)
	default:
		return a.Abandon(ctx, e.failure.Message)
	}
}

// keeps reports whether later callers get an answer with this verdict.
func (h *handler) keeps(v judge.Verdict) bool {
	return v == judge.Completed || v == judge.Rejected || v == judge.Failed && h.onFailure == semel.ReplayFailure
}

// ending decides how the attempt of an answered request ends.
func (h *handler) ending(c *capture) ending {
	if v := c.scope.concluded(); v != nil {
		e := ending{kind: v.kind, failure: store.Failure{Code: string(v.answer.code), Message: v.why}}
		if c.through && e.kind == endAbort {
			e.kind = endAbandon // part of an answer has left, so something happened
		}
		return e
	}
	found := c.found
	open := leftOpen(c.scope.attempt)
	if found.Verdict == judge.Completed && !open {
		return ending{kind: endComplete, result: c.result()}
	}
	failure := store.Failure{Code: strconv.Itoa(c.status)}
	switch {
	case open:
		failure.Message = "the handler answered " + failure.Code + " and left an effect without a result"
		return ending{kind: endHold, failure: failure}
	case c.status >= 500 && !found.Said && c.scope.stopped():
		// The handler was told to stop and says that it failed. That doesn't say what it
		// had done until then.
		failure.Message = "the handler was told to stop and answered " + failure.Code
		return ending{kind: endAbandon, failure: failure}
	}
	switch found.Verdict {
	case judge.Rejected:
		return ending{kind: endReject, failure: failure, result: c.result()}
	case judge.Failed:
		e := ending{kind: endFail, failure: failure}
		if h.keeps(found.Verdict) {
			e.result = c.result()
		}
		return e
	case judge.Aborted:
		if found.Said {
			failure.Message = found.Why()
		}
		return ending{kind: endAbort, failure: failure}
	}
	failure.Message = found.Why()
	return ending{kind: endAbandon, failure: failure}
}

// leftOpen reports whether an effect has no result. The effects of this module's doors
// don't count: the answer is their result.
func leftOpen(a *semel.Attempt) bool {
	if !a.EffectOpen() {
		return false
	}
	return slices.ContainsFunc(a.Effects(), func(ef store.EffectRecord) bool {
		return ef.State == store.EffectStarted && !strings.HasPrefix(ef.Name, doorEffects)
	})
}

// finish makes the outcome durable, and only then answers.
func (h *handler) finish(c *capture, r *http.Request) {
	a := c.scope.attempt
	e := h.ending(c)
	err := h.end(r.Context(), a, e)
	v := c.scope.concluded()
	if c.through {
		if v != nil {
			panic(http.ErrAbortHandler) // the part that was sent isn't the whole answer
		}
		return // it was sent already
	}
	var p problem
	switch {
	case err != nil && undecided(err):
		p = unrecorded()
	case err != nil:
		p = leaseLost()
	case v != nil:
		p = v.answer
	case c.status < 400 && (e.kind == endHold || e.kind == endAbandon):
		// Later callers won't get the handler's success.
		p = held(e.failure.Message, time.Second)
	case c.failed != nil:
		p = notKept(c.status)
	default:
		c.send()
		return
	}
	// The handler's headers belong to an answer that nobody gets.
	c.outer.restore(c.w.Header())
	p.reference = h.reference(a.ID())
	h.refuse(c.w, p)
}

// end makes the end of an attempt durable. If the store doesn't say whether it is, the
// caller gets the error, and a goroutine tries again until the store does say: otherwise
// the lease would be renewed for ever. A crash meanwhile leaves a lease that runs out.
func (h *handler) end(ctx context.Context, a *semel.Attempt, e ending) error {
	return h.guard.endBy(ctx, func(ctx context.Context) error { return e.apply(ctx, a) })
}

// End makes the end of an attempt durable, as the guard does for its own: for doors
// beside it, which [Guard.Close] then waits for. If the store doesn't say whether the
// end is kept, it goes on asking in the background.
func (g *Guard) End(ctx context.Context, a *semel.Attempt, end semel.Ending) error {
	return g.endBy(ctx, func(ctx context.Context) error { return a.End(ctx, end) })
}

func (g *Guard) endBy(ctx context.Context, apply func(context.Context) error) error {
	err := apply(ctx) // which the caller's hanging up does not stop
	if err != nil && undecided(err) {
		g.reportError(ctx, err)
		g.endLater(context.WithoutCancel(ctx), apply)
	}
	return err
}

// How long to pause before an end whose result is unknown is tried again.
const (
	minEndPause = 100 * time.Millisecond
	maxEndPause = 5 * time.Second
)

func (g *Guard) endLater(ctx context.Context, apply func(context.Context) error) {
	g.background.Go(func() {
		for pause := minEndPause; ; pause = min(pause*2, maxEndPause) {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-g.closing.Done():
				timer.Stop()
				return
			}
			if err := apply(ctx); err == nil || !undecided(err) {
				return
			}
		}
	})
}

// undecided reports whether trying again may show what happened.
func undecided(err error) bool {
	e, ok := errors.AsType[*semel.Error](err)
	return ok && (e.Code == semel.CodeUnknown || e.Code == semel.CodeStoreUnavailable)
}
