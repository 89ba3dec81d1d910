package semel

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/engine/guard"
	"github.com/semelhq/semel/internal/engine/pacing"
	"github.com/semelhq/semel/internal/engine/remnant"
	"github.com/semelhq/semel/store"
)

// sweepPage is how many due records are read at a time, and sweepReach how many one
// sweep looks at; the next sweep continues after them.
const (
	sweepPage  = 256
	sweepReach = 8 * sweepPage
)

// Swept counts what one sweep did.
type Swept struct {
	// Due is how many due records the sweep looked at.
	Due int
	// Abandoned attempts may now run again; Held ones may not.
	Abandoned, Held int
	// Reconciled is how many held records reconcilers were called for. They answer in
	// the background.
	Reconciled int
	// Waiting is how many records stay due because the engine already runs as many
	// reconciliations, or compensations, of their operation as it may. Later sweeps take them.
	Waiting int
	// Purged is how many expired records were deleted, and Forgotten how many lost their answers
	// because their window was over; see Operation.Remember.
	Purged, Forgotten int
	// Left is how many records the sweep left to other engines, because their operation, or
	// its reconciler or compensation, isn't registered with this one. If no engine has it, the
	// records stay as they are until somebody settles or purges them by force.
	Left int
	// Unarchived is how many expired records stayed because the archive didn't take them.
	Unarchived int
	// Unreadable is how many records can't be read; see [store.DuePage].
	Unreadable int
	// Partial: the sweep skipped records that earlier sweeps could do nothing with, because the
	// next purge is not due yet; see Options.PurgeInterval.
	Partial bool
}

// Sweep attends to due records: attempts whose lease has ended are abandoned or
// held by the policy in their records, reconcilers are called for held records,
// messages go to the dispatcher, expired records are purged. Any number of engines
// may sweep one store. Problems with single records don't stop it; they are
// returned together.
//
// An engine leaves records alone if their operation isn't registered with it, and messages if
// it has no dispatcher. They stay due for other engines. So that they don't hide other
// records, a sweep that didn't reach the end is followed by one that continues from there.
//
// A store without [store.DueIndex] has nothing to sweep.
func (e *Engine) Sweep(ctx context.Context) (Swept, error) {
	var n Swept
	e.sweeps.ever.Store(true)
	if e.extras.Due == nil {
		return n, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return n, err
	}
	p := e.sweeps.Begin(e.elapsed(), e.opts.PurgeInterval)
	n.Partial = !p.Pass
	var errs []error
	ahead := func() {
		p.Low, p.Behind, err = e.lookAhead(ctx, now, p.Low, &n)
		errs = append(errs, err)
	}
	begins := p.Pass && p.After == ""
	if !begins {
		// Records that have just become due come first, however much the pass still has before
		// it.
		ahead()
	}
	if p.Pass {
		p.After, err = e.lookAtAll(ctx, now, p, &n)
		errs = append(errs, err)
		if begins && p.After != "" {
			ahead()
		}
	}
	e.sweeps.End(p, e.elapsed(), n.Purged+n.Forgotten, e.opts.PurgeRate)
	return n, errors.Join(errs...)
}

// lookAtAll continues a pass, and returns where the next sweep continues it.
func (e *Engine) lookAtAll(ctx context.Context, now store.Instant, p pacing.Plan, n *Swept) (after string, err error) {
	var errs []error
	after = p.After
	for seen := 0; seen < sweepReach && ctx.Err() == nil; seen += sweepPage {
		page, err := e.due(ctx, store.DueQuery{Until: now, After: after, Limit: sweepPage})
		if err != nil {
			return "", errors.Join(append(errs, err)...) // the cursor may be the cause
		}
		_, err = e.sweep(ctx, page, p.Purge, n)
		errs = append(errs, err)
		if after = page.Next; after == "" || e.opts.PurgeRate > 0 && n.Purged+n.Forgotten > 0 {
			break
		}
	}
	return after, errors.Join(errs...)
}

// lookAhead handles records due after the cursor low, but purges nothing. It returns the
// cursor for the next sweep's look ahead: up to there, this engine has nothing left to do but
// purge. So records that can't be purged yet are read once, except for part of a page.
func (e *Engine) lookAhead(ctx context.Context, now store.Instant, low string, n *Swept) (to string, more bool, err error) {
	var errs []error
	limit := sweepPage / 8 // the last page, which stays before low, has less
	after, idle := low, true
	for seen := 0; seen < sweepReach && ctx.Err() == nil; seen += limit {
		page, err := e.due(ctx, store.DueQuery{Until: now, After: after, Limit: limit})
		if err != nil {
			return "", false, errors.Join(append(errs, err)...)
		}
		nothing, err := e.sweep(ctx, page, false, n)
		errs = append(errs, err)
		if after = page.Next; after == "" {
			return low, false, errors.Join(errs...)
		}
		if idle = idle && nothing; idle {
			low = after
		}
	}
	return low, idle, errors.Join(errs...)
}

func (e *Engine) due(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
	ctx, cancel := e.limited(ctx)
	defer cancel()
	page, err := e.extras.Due.Due(ctx, q)
	if err != nil {
		return page, e.storeError(ctx, "due", ID{}, err)
	}
	return page, nil
}

// sweeps says where the next sweep begins.
type sweeps struct {
	pacing.Pace
	// ever: there was a sweep, or the engine has reported that there was none.
	ever atomic.Bool
}

// unsweptFor is how long the engine takes calls without a sweep before it calls
// Events.Unswept.
const unsweptFor = time.Minute

// reportUnswept calls Events.Unswept, once, if there was no sweep for unsweptFor.
func (e *Engine) reportUnswept() {
	if e.sweeps.ever.Load() {
		return
	}
	if d := e.elapsed(); d >= unsweptFor && !e.sweeps.ever.Swap(true) {
		e.events.Unswept(Unswept{Took: d})
	}
}

// warnUnswept is the default for Events.Unswept: a program that forgot [Engine.Run] hasn't set
// events, either. A store without [store.DueIndex] can't be swept.
func (e *Engine) warnUnswept(ev Unswept) {
	if e.extras.Due == nil {
		return
	}
	slog.Warn("semel: nothing sweeps the store: run Engine.Run, or expired records stay for ever and abandoned calls wait for their next delivery; set Events.Unswept if another process sweeps",
		slog.Duration("for", ev.Took))
}

// sweep attends to a page of due records, and reports whether there was nothing to do but
// to purge. It reads the clock for each, because the one before may have taken long.
func (e *Engine) sweep(ctx context.Context, page store.DuePage, purge bool, n *Swept) (idle bool, err error) {
	n.Due += len(page.Records)
	n.Unreadable += len(page.Unreadable)
	var expired, answered []*Record
	errs, now := slices.Clone(page.Unreadable), store.Instant(0)
	idle = true
	for i := range page.Records {
		rec := &page.Records[i]
		op, known := e.handles(rec.ID.Operation)
		if !known {
			n.Left++
			continue
		}
		if now, err = e.now(ctx); err != nil {
			return false, errors.Join(append(errs, err)...)
		}
		if remnant.Due(rec, now) {
			if !e.restored(rec, now) { // or it wouldn't be known for one from the backup any more
				answered = append(answered, rec)
			}
			continue
		}
		if rec.Expired(now) {
			if !purge || e.extras.Purge == nil {
				continue
			}
			gone, err := e.mayPurge(ctx, op, rec, now)
			errs = append(errs, err)
			if gone {
				expired = append(expired, rec)
			}
			continue
		}
		idle = false
		// The program's witness runs in here, too, and may panic.
		errs = append(errs, guard.Call("what observes the engine", func() error { return e.attend(ctx, op, rec, now, n) }))
	}
	if purge {
		purged, unarchived, err := e.purge(ctx, expired)
		n.Purged += purged
		n.Unarchived += unarchived
		errs = append(errs, err, e.forget(ctx, answered, now, n))
	}
	return idle, errors.Join(errs...)
}

// handles returns the operation that this engine handles a record under. It reports false if
// the record is for other engines. Every engine handles the records of this module's own
// operations, such as those of package dispatch, by the policy in the record.
func (e *Engine) handles(name string) (*operation, bool) {
	op, ok := (*e.ops.Load())[name]
	if !ok && strings.HasPrefix(name, reservedPrefix) {
		return e.internal, true
	}
	return op, ok
}

// attend handles a due record that hasn't expired.
func (e *Engine) attend(ctx context.Context, op *operation, rec *Record, now store.Instant, n *Swept) error {
	switch {
	case rec.State.Terminal() && rec.Unfinished():
		if e.compensationDue(rec, now) {
			if e.canCompensate(op, rec) {
				return e.resumeCompensation(ctx, op, rec, now, n)
			}
			n.Left++
		}
		e.dispatch(rec)
	case rec.Held && op.letsGo(rec) && now >= rec.StartedAt.Add(rec.Policy.Stays()):
		n.Abandoned++
		return e.letGo(ctx, op, rec, now)
	case rec.Held && op.Reconcile != nil:
		return e.reconcile(ctx, op, rec, now, n)
	case rec.Held:
		n.Left++
	case !leaseOver(rec, e.leaseTime(rec, now)):
	case mayRunAgain(rec) && !e.restored(rec, now):
		n.Abandoned++
		return e.abandon(ctx, op, rec, now)
	default:
		n.Held++
		next, err := op.hold(rec, e.reasonToHold(rec, now), now)
		if err == nil {
			_, _, err = e.hold(ctx, op, rec, next)
		}
		return err
	}
	return nil
}

func (e *Engine) reasonToHold(rec *Record, now store.Instant) string {
	if e.restored(rec, now) {
		return heldRestored
	}
	return heldReason(rec)
}

// abandon ends an attempt that has lost its holder and may run again.
func (e *Engine) abandon(ctx context.Context, op *operation, rec *Record, now store.Instant) error {
	next, err := end(rec, evAbandon, now, Result{}, nil)
	if err != nil {
		return err
	}
	// A crash before this write leaves the attempt to be found again. A crash
	// after it leaves nothing to do: the next delivery runs again.
	_, _, err = e.replace(ctx, op, rec, next, store.ChangeEnded, byReaper)
	return err
}

// epochPause is how often Run loads the store's epoch.
const epochPause = time.Minute

// Run sweeps until ctx is done, every interval, and at once while more records are due.
// Interval zero means 1 second. Options.PurgeInterval and PurgeRate don't slow down what
// sweeps do beside purging. Run returns the cause of ctx's end. It reports problems to
// Events and continues.
func (e *Engine) Run(ctx context.Context, interval time.Duration) error {
	interval = cmp.Or(interval, time.Second)
	pause := time.NewTimer(0)
	defer pause.Stop()
	asked, told := -epochPause, -erasedPause
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
		if now := e.elapsed(); now-asked >= epochPause {
			asked = now
			_, _ = e.Internal().LoadEpoch(ctx) // after an error it is loaded again later
		}
		if now := e.elapsed(); now-told >= erasedPause {
			told = now
			e.tellErased(ctx)
		}
		n, err := e.Sweep(ctx)
		if ctx.Err() == nil && e.events.Swept != nil {
			e.events.Swept(SweepEnded{Swept: n, Err: err})
		}
		next := interval
		if err == nil && n.Due >= sweepPage && n.Purged+n.Forgotten+n.Abandoned+n.Held > 0 {
			next = 0
		}
		next = e.sweeps.Wait(e.elapsed(), next)
		// A random delay (jitter) keeps engines on one store from sweeping the same
		// records at the same time.
		pause.Reset(next + rand.N(next/8+1))
	}
}
