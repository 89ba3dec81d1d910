package semel

import (
	"context"
	"errors"
	"strings"
	"time"
)

// epochID is the identity of the record that holds the store's epoch. No operation
// can have its name, so no call can reach it.
var epochID = ID{Operation: reservedPrefix + "epoch", Key: "epoch"}

// reservedPrefix begins the names that belong to this module, and dispatchPrefix
// those of the operations that package dispatch registers.
const (
	reservedPrefix = "semel."
	dispatchPrefix = reservedPrefix + "dispatch"
)

// NewEpoch says that the store was restored from a backup, at the moment of this
// call: records that were made after the backup are gone, and what they were about
// may have been executed. Until the window of its operation has passed, a call that
// says that it was first sent before, by Call.FirstSent or by the time in its key,
// and of which nothing is stored, is refused as [Expired]. Of a call that does not
// say so nothing is known; it runs.
//
// What the backup has unfinished is held instead of executed, for as long as the
// outcome of its call is kept: an attempt whose holder is gone, and one that failed or
// was aborted and would be followed by another. Messages that it has undelivered are
// delivered, again perhaps, for they have ids.
//
// Other engines on the store learn of it from [Engine.LoadEpoch], which [Engine.Run]
// calls.
func (e *Engine) NewEpoch(ctx context.Context) (time.Time, error) {
	for range maxClaims {
		now, err := e.now(ctx)
		if err != nil {
			return time.Time{}, err
		}
		cur, err := e.get(ctx, epochID)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return time.Time{}, e.storeError("get", epochID, err)
		}
		next := &Record{}
		op := &Operation{Lease: time.Second, MaxResult: DefaultMaxResult}
		prev := &Record{Fence: cur.Fence} // the epoch before only lends its fence
		if err := open(op, &epochID, &Call{}, prev, now, e.node, next); err != nil {
			return time.Time{}, err
		}
		if err := next.step(evComplete); err != nil {
			return time.Time{}, err
		}
		next.EndedAt, next.LeaseUntil, next.NextAt = now, 0, 0 // it never expires
		v := e.stamp(op, &cur, next, ChangeEnded)
		// A crash before this write leaves the epoch as it was. A crash after it
		// leaves nothing to do.
		_, applied, err := e.apply(ctx, v)
		if err != nil {
			return time.Time{}, err
		}
		if applied {
			e.epoch.Store(int64(now))
			return now.Time(), nil
		}
	}
	return time.Time{}, &Error{Code: CodeUnknown, Message: "the epoch changes too fast"}
}

// LoadEpoch reads the store's epoch, which is zero where the store was never
// restored. An engine should do so before it takes calls, if that may have happened.
func (e *Engine) LoadEpoch(ctx context.Context) (time.Time, error) {
	rec, err := e.get(ctx, epochID)
	switch {
	case errors.Is(err, ErrNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, e.storeError("get", epochID, err)
	}
	e.epoch.Store(int64(rec.EndedAt))
	return rec.EndedAt.Time(), nil
}

// restored reports whether a record is from a backup and what it says may have been
// overtaken, so that nothing may be executed by it. What belongs to this module
// itself is delivered at least once anyway.
func (e *Engine) restored(rec *Record, now Instant) bool {
	epoch := Instant(e.epoch.Load())
	return epoch != 0 && rec.UpdatedAt < epoch && now.Sub(epoch) < rec.Policy.Window && !strings.HasPrefix(rec.ID.Operation, reservedPrefix)
}

// beforeEpoch reports whether a call first sent then may have been executed and
// lost when the store was restored, as far as the clocks allow to tell.
func (e *Engine) beforeEpoch(op *operation, first, now Instant) bool {
	epoch := Instant(e.epoch.Load())
	return epoch != 0 && first < epoch.Add(min(e.opts.ClockSkew, op.Window/4)) && now.Sub(epoch) < op.Window
}
