package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// guarded reports whether the log is asked before a call is claimed that the store knows
// nothing of.
func (op *Operation) guarded() bool {
	return (op.Financial || op.RefuseLate) && op.evident(EvidenceChanges)
}

// heldMissing is why a call without a record is held.
const heldMissing = "by the evidence log this call was made before, and its record is gone from the store: see semel evidence show"

// missing holds a call, in place of claiming it, if the log says that the store should have a
// record of it (IDS-XV.6). A purge is in the log before the record goes, and an expired record
// is expected no more, so the record went behind the engine.
func (d *delivery) missing(ctx, calls context.Context) (progress, error) {
	e, now := d.engine, d.at.now
	expects := func(all bool) (bool, error) {
		yes, err := e.opts.Witness.Expects(calls, d.id, store.Instant(e.epoch.Load()), now, all)
		if err != nil {
			err = e.storeError("find evidence", d.id, err)
		}
		return yes, err
	}
	switch yes, err := expects(false); {
	case err != nil || !yes:
		return proceed, err
	case !d.looked:
		return startOver, d.look(calls)
	}
	// The record may have been claimed or purged since it was looked for. Both are in the log by
	// now, and a claim is found by the write.
	if yes, err := expects(true); err != nil || !yes {
		return proceed, err
	}
	_, err := d.hold(ctx, heldMissing)
	return startOver, err
}
