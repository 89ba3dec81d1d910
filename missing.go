package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// guarded reports whether the engine asks the log before it claims a call that the store has no
// record of.
func (op *Operation) guarded() bool {
	return (op.Financial || op.RefuseLate) && op.evident(EvidenceChanges)
}

// heldMissing is why a call without a record is held.
const heldMissing = "by the evidence log this call was made before, and its record is gone from the store: see semel evidence show"

// missing holds a call, in place of claiming it, if the log says that the store should have a
// record of it (IDS-XV.6). A purge is in the log before the record goes, and the log doesn't
// expect an expired record any more, so this record was removed behind the engine's back.
func (d *delivery) missing(ctx, calls context.Context) (progress, error) {
	e, now := d.engine, d.at.now
	expects := func(all bool) (bool, error) {
		yes, err := e.opts.Witness.Expects(calls, d.id, store.Instant(e.epoch.Load()), now, all)
		if err != nil {
			err = e.storeError(ctx, "find evidence", d.id, err)
		}
		return yes, err
	}
	switch yes, err := expects(false); {
	case err != nil || !yes:
		return proceed, err
	case !d.looked:
		return startOver, d.look(calls)
	}
	// The record may have been claimed or purged since the delivery looked for it. The log has
	// both by now, and the write finds a claim.
	if yes, err := expects(true); err != nil || !yes {
		return proceed, err
	}
	_, err := d.hold(ctx, heldMissing)
	return startOver, err
}
