package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// slotOperation is the operation of the cells that hold lanes.
const slotOperation = "semel.dispatch"

// wakeID is the message in a lane's record that makes the due index find the lane.
const wakeID = "wake"

// idleFor is how long an unused slot stays in the store.
const idleFor = time.Hour

// slot is a cell with a value of a lane: as last read or written, and the new value.
type slot[T any] struct {
	cell  *store.Cell
	was   store.CellValue
	value T
}

// load reads a slot. If there is none, its value is zero.
func load[T any](ctx context.Context, d *Dispatcher, id semel.ID) (*slot[T], error) {
	s := &slot[T]{cell: store.NewCell(d.store, id)}
	var err error
	if s.was, err = s.cell.Load(ctx); err == nil && s.was.Data != nil {
		if err = form.Read(s.was.Data, 1, &s.value); err != nil {
			err = fmt.Errorf("dispatch: a lane of messages: %w", err)
		}
	}
	return s, err
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

// swap writes the value if the slot is unchanged since it was read, and otherwise returns
// errChanged. With wake, the slot is a lane with work, and the due index finds it at that
// time. Idle slots are purged after a while. Every other error means unknown. The callers
// say what a crash before or after the write leaves.
func (s *slot[T]) swap(ctx context.Context, wake *semel.Message, idle bool) error {
	data, err := json.Marshal(s.value)
	if err != nil {
		return err
	}
	next := store.CellValue{Data: data, Wake: wake}
	if wake != nil || idle {
		next.KeepFor = idleFor
	}
	is, ok, err := s.cell.Swap(ctx, s.was, next)
	switch {
	case err != nil:
		return err
	case !ok:
		return errChanged
	}
	s.was = is
	return nil
}

// wakes reports whether a record belongs to a lane with work, and to which.
func wakes(rec *semel.Record) (laneID, bool) {
	if rec.ID.Operation != slotOperation || !strings.HasPrefix(rec.ID.Key, "lane/") || len(rec.Outbox) != 1 {
		return laneID{}, false
	}
	m := &rec.Outbox[0]
	return laneID{Tenant: rec.ID.Tenant, Destination: m.Destination, Order: m.Order}, true
}
