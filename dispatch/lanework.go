package dispatch

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// laneTurn is how many messages of a lane are delivered before others have their
// turn. It bounds how long a long lane makes the others wait.
const laneTurn = 64

// workLane delivers messages of a lane, one after the other. It reports whether
// there is more to do at once.
func (d *Dispatcher) workLane(ctx context.Context, l *line, id laneID) (again bool) {
	keep := context.WithoutCancel(ctx)
	// A crash while the lane is held leaves a lease that ends, and a lane that is
	// due.
	ans, err := d.engine.Begin(keep, semel.Call{Tenant: id.Tenant, Principal: deliverer, Operation: laneOperation(l.name), Key: id.digest()})
	if err != nil {
		d.report(err)
		return false
	}
	if ans.Decision != semel.Execute {
		return false // another works on it
	}
	held := ans.Attempt
	for turn := 0; ctx.Err() == nil && held.Context().Err() == nil; {
		if turn >= laneTurn {
			again = true
			break
		}
		more, err := d.advance(ctx, l, id, held, &turn)
		if errors.Is(err, errCrash) {
			return false
		}
		if errors.Is(err, errChanged) {
			continue
		}
		d.report(err)
		if !more || err != nil {
			break
		}
	}
	d.report(held.Abort(keep, store.Failure{Code: "released"}))
	return again
}

// advance delivers the messages of the lane's first page, as far as possible. It
// reports whether to go on.
func (d *Dispatcher) advance(ctx context.Context, l *line, id laneID, held *semel.Attempt, turn *int) (more bool, err error) {
	keep := context.WithoutCancel(ctx)
	lane, err := load[pages](keep, d, id.record())
	if err != nil {
		return false, err
	}
	first, err := load[page](keep, d, id.page(lane.value.First))
	if err != nil {
		return false, err
	}
	// This round leaves out entries that others append meanwhile.
	entries, full := first.value.Entries, first.value.full()
	var f deliverResult
	i := first.value.Done
	for ; i < len(entries) && ctx.Err() == nil && held.Context().Err() == nil; i++ {
		if *turn++; *turn > laneTurn {
			break
		}
		if f, err = d.deliver(ctx, l, entries[i].call(id.Tenant), entries[i].Message, true); err != nil || !f.settled {
			break
		}
	}
	if errors.Is(err, errCrash) {
		return false, err
	}
	if i > first.value.Done {
		first, err = d.done(keep, id, lane.value.First, i, err)
	}
	if err != nil {
		return false, err
	}
	now, err := d.store.Now(keep)
	switch {
	case err != nil:
		return false, err
	case i < len(entries) && !f.settled:
		if f.at == 0 { // another dispatcher has the message
			f.at = now.Add(d.every)
		}
		return false, swapLane(keep, id, lane, f.at)
	case i < len(entries):
		return true, nil // the caller checks ctx
	case lane.value.First < lane.value.Last || full:
		settled := id.page(lane.value.First)
		lane.value.First++
		lane.value.Last = max(lane.value.Last, lane.value.First)
		if err := swapLane(keep, id, lane, now); err != nil || first.was.Revision.IsZero() {
			return err == nil, err
		}
		// A crash before this write leaves a page without entries to deliver,
		// which expires.
		_, err := d.store.Purge(keep, []store.Ref{{ID: settled, Revision: first.was.Revision}})
		return true, err
	}
	return false, swapLane(keep, id, lane, 0)
}

// done records how many entries of a page are settled. An earlier error stays.
//
// After a crash before this write, the settled entries are skipped again.
func (d *Dispatcher) done(ctx context.Context, id laneID, number, count int, earlier error) (s *slot[page], err error) {
	err = again(func() error {
		if s, err = load[page](ctx, d, id.page(number)); err != nil || s.value.Done >= count || count > len(s.value.Entries) {
			return err
		}
		s.value.Done = count
		return s.swap(ctx, nil, s.value.idle())
	})
	return s, errors.Join(earlier, err)
}
