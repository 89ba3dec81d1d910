package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// Sequences in format 1 had the newest number under the identity of the sequence, and copies of
// earlier outcomes under [store.ID.Numbered]. The newest number stays where it is, with all that
// happens to it, until the next one begins.

// followOlder deals with a delivery of a sequence whose newest number is in format 1. If it is the
// delivery's own number, the delivery goes on with that record.
func (d *delivery) followOlder() progress {
	p := &d.position
	switch {
	case p.mark.Sequence == 0: // the operation was declared in another way
		d.ans.Decision, d.ans.Record = Conflict, p.mark
		d.foreign = isForeign(&d.call, p.mark)
		return answered
	case p.mark.Sequence == d.call.Sequence:
		d.id, d.cur, d.looked = d.sequence, p.mark, true
		return startOver
	}
	return proceed
}

// strayed reports whether the record that the delivery goes on with is its own number's no more:
// another number has begun in its place, or the mark has.
func (d *delivery) strayed() bool {
	return d.op.Sequenced && d.id == d.sequence && d.cur.Sequence != d.call.Sequence
}

// keepOlder copies the newest number from the place that it had in format 1 to its own, before the
// mark takes that place.
func (d *delivery) keepOlder(ctx context.Context) error {
	p := &d.position
	if d.id == d.sequence || !p.older(d.at.now) {
		return nil
	}
	for range maxClaims {
		kept, err := d.engine.getIfAny(ctx, d.sequence.Numbered(p.Newest))
		if err != nil {
			return err
		}
		next := *p.mark
		next.ID = d.sequence.Numbered(p.Newest)
		// The log has what happened under the name of the sequence, so this is no news. A crash
		// before this write leaves the number where it was. A crash after it leaves it in both
		// places, where the older counts, and is copied again.
		_, applied, err := d.engine.apply(ctx, d.engine.newVersion(&d.op.Operation, kept, &next, store.ChangePostponed))
		if err != nil || applied {
			return err
		}
	}
	return errTooFast
}
