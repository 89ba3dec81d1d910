package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// slotOperation is that of the cells in which lanes are kept.
const slotOperation = "semel.dispatch"

// wakeID is the message of a lane's record by which the due index finds the lane.
const wakeID = "wake"

// idleFor is how long an unused slot is kept.
const idleFor = time.Hour

// slot is a cell with a value of a lane as it was read.
type slot struct {
	id  semel.ID
	was store.CellValue
}

// load reads a slot and its value. If there is none, it leaves value unchanged.
func (d *Dispatcher) load(ctx context.Context, id semel.ID, value any) (slot, error) {
	v, err := store.NewCell(d.store, id).Load(ctx)
	if err == nil && v.Data != nil {
		err = json.Unmarshal(v.Data, value)
	}
	return slot{id, v}, err
}

// errChanged says that another dispatcher has written the slot meanwhile.
var errChanged = errors.New("dispatch: a lane was changed by another")

// again calls change, which loads and swaps a slot, until no other dispatcher has written it
// meanwhile, a few times.
func again(change func() error) error {
	for range 16 {
		if err := change(); !errors.Is(err, errChanged) {
			return err
		}
	}
	return errChanged
}

// swap writes a value if the slot is unchanged since it was read, and otherwise returns
// errChanged. With wake, the slot is a lane with work, and the due index finds it at that
// time. Idle slots are purged after a while. Every other error means unknown. The callers
// say what a crash before or after the write leaves.
func (d *Dispatcher) swap(ctx context.Context, old slot, value any, wake *semel.Message, idle bool) (slot, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return old, err
	}
	next := store.CellValue{Data: data, Wake: wake}
	if wake != nil || idle {
		next.KeepFor = idleFor
	}
	v, ok, err := store.NewCell(d.store, old.id).Swap(ctx, old.was, next)
	switch {
	case err != nil:
		return old, err
	case !ok:
		return old, errChanged
	}
	return slot{old.id, v}, nil
}

// drop deletes a slot that is unchanged since it was read, if the store can.
func (d *Dispatcher) drop(ctx context.Context, old slot) error {
	if old.was.Revision.IsZero() {
		return nil
	}
	_, err := d.store.Purge(ctx, []store.Ref{{ID: old.id, Revision: old.was.Revision}})
	return err
}

// wakes reports whether a record belongs to a lane with work, and to which.
func wakes(rec *semel.Record) (laneID, bool) {
	if rec.ID.Operation != slotOperation || !strings.HasPrefix(rec.ID.Key, "lane/") || len(rec.Outbox) != 1 {
		return laneID{}, false
	}
	m := &rec.Outbox[0]
	return laneID{Tenant: rec.ID.Tenant, Destination: m.Destination, Order: m.Order}, true
}
