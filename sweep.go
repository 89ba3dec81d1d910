package semel

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// sweepPage is how many due records are read at a time, and sweepReach how many one
// sweep looks at; the next goes on behind them.
const (
	sweepPage  = 256
	sweepReach = 8 * sweepPage
)

// Swept counts what one sweep did.
type Swept struct {
	// Due is how many records were looked at.
	Due int
	// Abandoned attempts may now run again; Held ones may not.
	Abandoned, Held int
	// Reconciled is how many held records the reconcilers were asked about. They
	// answer beside the sweeps.
	Reconciled int
	// Purged is how many expired records were deleted.
	Purged int
	// Left is how many records were left to others, because this engine can't judge
	// them: it does not know their operation, or has not the reconciler that was
	// promised. Where no engine knows it they stay as they are, until somebody
	// settles or purges them by force.
	Left int
	// Unreadable is how many records can't be read; see [DuePage].
	Unreadable int
}

// Sweep attends to due records: attempts whose lease has ended are abandoned or
// held by the policy in their records, reconcilers are asked about held records,
// messages go to the dispatcher, expired records are purged. Any number of engines
// may sweep one store. Problems with single records do not stop it; they are
// returned together.
//
// An engine leaves alone what it can't judge: records of operations that are not
// registered with it, and messages where it has no dispatcher. They stay due for
// others. So that they hide nothing, a sweep that has not seen all that is due is
// followed by one that goes on where it stopped.
//
// A store without [DueStore] has nothing to sweep.
func (e *Engine) Sweep(ctx context.Context) (Swept, error) {
	var n Swept
	e.sweeps.ever.Store(true)
	ds, ok := e.store.(DueStore)
	if !ok {
		return n, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return n, err
	}
	after := e.sweeps.begin()
	var errs []error
	for seen := 0; seen < sweepReach && ctx.Err() == nil; seen += sweepPage {
		page, err := e.due(ctx, ds, DueQuery{Until: now, After: after, Limit: sweepPage})
		if err != nil {
			errs = append(errs, e.storeError("due", ID{}, err))
			after = "" // it may be what was wrong
			break
		}
		errs = append(errs, page.Unreadable...)
		n.Unreadable += len(page.Unreadable)
		errs = append(errs, e.sweep(ctx, page.Records, &n))
		if after = page.Next; after == "" || e.opts.PurgeRate > 0 && n.Purged > 0 {
			break
		}
	}
	e.sweeps.end(after)
	return n, errors.Join(errs...)
}

func (e *Engine) due(ctx context.Context, ds DueStore, q DueQuery) (DuePage, error) {
	ctx, cancel := e.limited(ctx)
	defer cancel()
	return ds.Due(ctx, q)
}

// sweeps is where the next sweep begins.
type sweeps struct {
	mu    sync.Mutex
	after string

	// ever: there was one, or somebody was told that there is none.
	ever atomic.Bool
}

// unsweptFor is how long calls are taken without a sweep before somebody is told.
const unsweptFor = time.Minute

// missSweeps tells once that nobody sweeps.
func (e *Engine) missSweeps() {
	if e.events.Unswept == nil || e.sweeps.ever.Load() {
		return
	}
	if d := e.elapsed(); d >= unsweptFor && !e.sweeps.ever.Swap(true) {
		e.events.Unswept(d)
	}
}

func (s *sweeps) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

func (s *sweeps) end(after string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}

// sweep attends to some due records. Each write reads the clock, for what comes
// before it may have taken long.
func (e *Engine) sweep(ctx context.Context, recs []Record, n *Swept) error {
	n.Due += len(recs)
	var expired []*Record
	var errs []error
	for i := range recs {
		rec := &recs[i]
		op, known := e.judge(rec.ID.Operation)
		if !known {
			n.Left++
			continue
		}
		now, err := e.now(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		switch {
		case rec.State.Terminal() && rec.busy():
			errs = append(errs, e.attend(ctx, op, rec, now))
		case rec.Expired(now):
			expired = append(expired, rec)
		case rec.Held != "" && op.Reconcile != nil:
			asked, err := e.reconcile(ctx, op, rec, now)
			if asked {
				n.Reconciled++
			}
			errs = append(errs, err)
		case rec.Held != "":
			n.Left++
		case !rec.leaseOver(now):
		case mayRunAgain(rec) && !e.restored(rec, now):
			n.Abandoned++
			errs = append(errs, e.abandon(ctx, op, rec, now))
		default:
			n.Held++
			_, _, err := e.hold(ctx, op, rec, e.reasonToHold(rec, now), now)
			errs = append(errs, err)
		}
	}
	purged, err := e.purge(ctx, expired)
	n.Purged += purged
	return errors.Join(append(errs, err)...)
}

// judge is the operation by which this engine judges a record. It reports false
// where that is for others. What belongs to this module itself, such as the records
// of package dispatch, every engine knows, by what their policy says.
func (e *Engine) judge(name string) (*operation, bool) {
	op, ok := (*e.ops.Load())[name]
	if !ok && strings.HasPrefix(name, reservedPrefix) {
		return e.internal, true
	}
	return op, ok
}

// attend gives the work that a terminal record has left to who does it.
func (e *Engine) attend(ctx context.Context, op *operation, rec *Record, now Instant) error {
	if c := rec.Compensation; c != nil && c.State == CompensationStarted && c.NextAt <= now && !e.restored(rec, now) {
		return e.resumeCompensation(ctx, op, rec, now)
	}
	e.dispatch(rec)
	return nil
}

func (e *Engine) reasonToHold(rec *Record, now Instant) string {
	if e.restored(rec, now) {
		return heldRestored
	}
	return heldReason(rec)
}

// abandon ends an attempt whose holder went away and that may run again.
func (e *Engine) abandon(ctx context.Context, op *operation, rec *Record, now Instant) error {
	next, err := end(rec, evAbandon, now, Result{}, nil)
	if err != nil {
		return err
	}
	v := e.stamp(&op.Operation, rec, next, ChangeEnded)
	// A crash before this write leaves the attempt to be found again. A crash
	// after it leaves nothing to do: the next delivery runs again.
	_, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, "reaper", "")
	}
	return err
}

// epochPause is how often Run asks for the store's epoch.
const epochPause = time.Minute

// Run sweeps until ctx is done, every interval, and again while there is more to
// see, no faster than Options.PurgeRate. Interval zero means 1 second. It returns
// the cause of ctx's end. Problems are told to Events and do not stop it.
func (e *Engine) Run(ctx context.Context, interval time.Duration) error {
	interval = cmp.Or(interval, time.Second)
	pause := time.NewTimer(0)
	defer pause.Stop()
	asked := -epochPause
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pause.C:
		}
		if now := e.elapsed(); now-asked >= epochPause {
			asked = now
			_, _ = e.LoadEpoch(ctx) // an epoch that can't be read now is read later
		}
		n, err := e.Sweep(ctx)
		if ctx.Err() == nil && e.events.Swept != nil {
			e.events.Swept(SweptEvent{Swept: n, Err: err})
		}
		next := interval
		if err == nil && n.Due >= sweepPage && n.Purged+n.Abandoned+n.Held > 0 {
			next = 0
		}
		if e.opts.PurgeRate > 0 {
			next = max(next, time.Duration(n.Purged)*time.Second/time.Duration(e.opts.PurgeRate))
		}
		// Engines that sweep one store drift apart, so that they don't all look
		// at the same records at the same time.
		pause.Reset(next + rand.N(next/8+1))
	}
}
