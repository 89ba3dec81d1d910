package semel

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	// Purged is how many expired records were deleted.
	Purged int
	// Left is how many records were left to other engines, because their operation, or
	// its reconciler or compensation, isn't registered with this one. If no engine has it,
	// the records stay as they are until somebody settles or purges them by force.
	Left int
	// Unreadable is how many records can't be read; see [store.DuePage].
	Unreadable int
}

// Sweep attends to due records: attempts whose lease has ended are abandoned or
// held by the policy in their records, reconcilers are called for held records,
// messages go to the dispatcher, expired records are purged. Any number of engines
// may sweep one store. Problems with single records don't stop it; they are
// returned together.
//
// An engine leaves records alone whose operation isn't registered with it, and messages
// if it has no dispatcher. They stay due for other engines. So that they don't hide
// other records, a sweep that hasn't seen all due records is followed by one that
// continues where it stopped.
//
// In a store without [store.DueIndex] there is nothing to sweep.
func (e *Engine) Sweep(ctx context.Context) (Swept, error) {
	var n Swept
	e.sweeps.ever.Store(true)
	ds := e.extras.Due
	if ds == nil {
		return n, nil
	}
	now, err := e.now(ctx)
	if err != nil {
		return n, err
	}
	after := e.sweeps.begin()
	var errs []error
	for seen := 0; seen < sweepReach && ctx.Err() == nil; seen += sweepPage {
		page, err := e.due(ctx, ds, store.DueQuery{Until: now, After: after, Limit: sweepPage})
		if err != nil {
			errs = append(errs, e.storeError("due", ID{}, err))
			after = "" // it may be the cause
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

func (e *Engine) due(ctx context.Context, ds store.DueIndex, q store.DueQuery) (store.DuePage, error) {
	ctx, cancel := e.limited(ctx)
	defer cancel()
	return ds.Due(ctx, q)
}

// sweeps is where the next sweep begins.
type sweeps struct {
	mu    sync.Mutex
	after string

	// ever: there was a sweep, or somebody was told that there is none.
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
		e.events.Unswept(Event{Took: d})
	}
}

// warnUnswept is Events.Unswept where the program has set none: whoever forgot
// [Engine.Run] has not set events either. A store without [store.DueIndex] can't be swept.
func (e *Engine) warnUnswept(ev Event) {
	if e.extras.Due == nil {
		return
	}
	slog.Warn("semel: nothing sweeps the store: run Engine.Run, or expired records stay for ever and abandoned calls wait for their next delivery; set Events.Unswept if another process sweeps",
		slog.Duration("for", ev.Took))
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

// sweep attends to some due records. It reads the clock for each, because the one before
// may have taken long.
func (e *Engine) sweep(ctx context.Context, recs []Record, n *Swept) error {
	n.Due += len(recs)
	var expired []*Record
	var errs []error
	for i := range recs {
		rec := &recs[i]
		op, known := e.handles(rec.ID.Operation)
		if !known {
			n.Left++
			continue
		}
		now, err := e.now(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if rec.Expired(now) {
			expired = append(expired, rec)
			continue
		}
		// The witness of a change is the program's, too.
		errs = append(errs, guarded("what observes the engine", func() error { return e.attend(ctx, op, rec, now, n) }))
	}
	purged, err := e.purge(ctx, expired)
	n.Purged += purged
	return errors.Join(append(errs, err)...)
}

// handles returns the operation by which this engine handles a record. It reports false if
// the record is for other engines. Every engine handles the records of this module's own
// operations, such as those of package dispatch, by the policy in the record.
func (e *Engine) handles(name string) (*operation, bool) {
	op, ok := (*e.ops.Load())[name]
	if !ok && strings.HasPrefix(name, reservedPrefix) {
		return e.internal, true
	}
	return op, ok
}

// attend does what a due record that hasn't expired needs.
func (e *Engine) attend(ctx context.Context, op *operation, rec *Record, now store.Instant, n *Swept) error {
	switch {
	case rec.State.Terminal() && rec.Unfinished():
		if e.compensationDue(rec, now) {
			if e.canCompensate(op, rec) {
				return e.resumeCompensation(ctx, op, rec, now)
			}
			n.Left++
		}
		e.dispatch(rec)
	case rec.Held != "" && op.Reconcile != nil:
		asked, err := e.reconcile(ctx, op, rec, now)
		if asked {
			n.Reconciled++
		}
		return err
	case rec.Held != "":
		n.Left++
	case !leaseOver(rec, e.leaseTime(rec, now)):
	case mayRunAgain(rec) && !e.restored(rec, now):
		n.Abandoned++
		return e.abandon(ctx, op, rec, now)
	default:
		n.Held++
		next, err := hold(rec, e.reasonToHold(rec, now), now)
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

// abandon ends an attempt whose holder is gone and that may run again.
func (e *Engine) abandon(ctx context.Context, op *operation, rec *Record, now store.Instant) error {
	next, err := end(rec, evAbandon, now, Result{}, nil)
	if err != nil {
		return err
	}
	v := e.newVersion(&op.Operation, rec, next, store.ChangeEnded)
	// A crash before this write leaves the attempt to be found again. A crash
	// after it leaves nothing to do: the next delivery runs again.
	_, applied, err := e.apply(ctx, v)
	if err == nil && applied {
		e.ended(next, byReaper)
	}
	return err
}

// epochPause is how often Run loads the store's epoch.
const epochPause = time.Minute

// Run sweeps until ctx is done, every interval, and at once while more records are due,
// but no faster than Options.PurgeRate. Interval zero means 1 second. It returns
// the cause of ctx's end. It reports problems to Events and continues.
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
			_, _ = e.Door().LoadEpoch(ctx) // after an error it is loaded again later
		}
		n, err := e.Sweep(ctx)
		if ctx.Err() == nil && e.events.Swept != nil {
			e.events.Swept(Event{Swept: n, Err: err})
		}
		next := interval
		if err == nil && n.Due >= sweepPage && n.Purged+n.Abandoned+n.Held > 0 {
			next = 0
		}
		if e.opts.PurgeRate > 0 {
			next = max(next, time.Duration(n.Purged)*time.Second/time.Duration(e.opts.PurgeRate))
		}
		// A random delay (jitter) keeps engines on one store from sweeping the same
		// records at the same time.
		pause.Reset(next + rand.N(next/8+1))
	}
}
