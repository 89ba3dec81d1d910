package dispatch

import (
	"context"
	"errors"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// laneTurn is how many messages of a lane are delivered before others have their
// turn. It bounds what a long lane takes from them.
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
	var p pages
	lane, err := d.load(keep, id.record(), &p)
	if err != nil {
		return false, err
	}
	var pg page
	s, err := d.load(keep, id.page(p.First), &pg)
	if err != nil {
		return false, err
	}
	var f deliverResult
	i := pg.Done
	for ; i < len(pg.Entries); i++ {
		if ctx.Err() != nil || held.Context().Err() != nil {
			break
		}
		if *turn++; *turn > laneTurn {
			break
		}
		if f, err = d.deliver(ctx, l, pg.Entries[i].call(id.Tenant), pg.Entries[i].Message, true); err != nil || !f.settled {
			break
		}
	}
	if errors.Is(err, errCrash) {
		return false, err
	}
	blocked := err == nil && i < len(pg.Entries) && !f.settled
	if i > pg.Done {
		if s, err = d.done(keep, id, p.First, i, err); err != nil {
			return false, err
		}
	}
	switch {
	case err != nil:
		return false, err
	case blocked:
		if f.at == 0 { // another dispatcher has the message
			now, err := d.store.Now(keep)
			if err != nil {
				return false, err
			}
			f.at = now.Add(d.every)
		}
		return false, d.swapLane(keep, id, lane, p, f.at)
	case i < len(pg.Entries):
		return true, nil // the caller checks ctx
	case p.First < p.Last || pg.full():
		p.First++
		p.Last = max(p.Last, p.First)
		now, err := d.store.Now(keep)
		if err != nil {
			return false, err
		}
		if err := d.swapLane(keep, id, lane, p, now); err != nil {
			return false, err
		}
		// A crash before this write leaves a page without entries to deliver,
		// which expires.
		return true, d.drop(keep, s)
	}
	return false, d.swapLane(keep, id, lane, p, 0)
}

// done records how many entries of a page are settled. An earlier error stays.
//
// After a crash before this write, the settled entries are skipped again.
func (d *Dispatcher) done(ctx context.Context, id laneID, number, count int, earlier error) (s slot, err error) {
	err = again(func() error {
		var pg page
		if s, err = d.load(ctx, id.page(number), &pg); err != nil || pg.Done >= count || count > len(pg.Entries) {
			return err
		}
		pg.Done = count
		s, err = d.swap(ctx, s, &pg, nil, pg.idle())
		return err
	})
	return s, errors.Join(earlier, err)
}
