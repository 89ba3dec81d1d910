package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Cell is one small value that all processes on a store share, kept in a record of
// a reserved operation, which no call can reach. It changes by compare-and-set: of any
// number of processes that change the same value, one succeeds. Its methods may be
// called concurrently.
type Cell struct {
	store Store
	id    ID
}

// CellValue is the content of a cell. To swap it, set the first four.
type CellValue struct {
	// Data is the value, of up to 1 MiB; nil if the cell was never written.
	Data []byte
	// Wake makes the record due at its NextAt, until the value is swapped. It is stored as a
	// pending message, which the due index gives to whoever dispatches. Optional.
	Wake *Message
	// Attributes let a search that names the cell's operation find it. Optional.
	Attributes Attributes
	// KeepFor is how long the record stays after the write. Then it is purged, unless there is
	// a Wake. Zero: forever.
	KeepFor time.Duration

	// Revision names the write that made the value; zero if there was none.
	Revision Revision
	// At is when the value was written, by the store's clock.
	At Instant
	// fence is the record's fence, which must rise.
	fence int64
}

// maxCell bounds a cell's value, in bytes, so that every store can keep it.
const maxCell = 1 << 20

// NewCell returns the cell of an identity on a store. The name of its operation begins
// with "semel.". All cells of one identity share one value.
func NewCell(store Store, id ID) *Cell { return &Cell{store, id} }

// Load reads the cell.
func (c *Cell) Load(ctx context.Context) (CellValue, error) {
	rec, err := c.store.Get(ctx, c.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return CellValue{}, nil
	case err != nil:
		return CellValue{}, &Error{Code: CodeStoreUnavailable, Err: err}
	}
	return cellValue(rec), nil
}

// Swap writes next if the cell still holds old, and returns its value afterwards.
// [CodeInvalidCall] means that next is too large, and nothing was written. Any other error
// means unknown: the value may be written, or may still be; load the cell before you try
// again.
func (c *Cell) Swap(ctx context.Context, old, next CellValue) (CellValue, bool, error) {
	if len(next.Data) > maxCell {
		return old, false, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("a cell holds up to %d bytes", maxCell)}
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return old, false, &Error{Code: CodeStoreUnavailable, Err: err}
	}
	rec := fact(c.id, NextFence(old.fence, now), now, Result{Data: next.Data})
	rec.Attributes = next.Attributes
	_, _ = rand.Read(rec.Revision[:]) // which never fails
	if next.KeepFor > 0 {
		rec.ExpiresAt = now.Add(next.KeepFor)
		if k := c.store.Extras().Clock; k != nil {
			rec.ExpiresAt = rec.ExpiresAt.Add(k.ClockState(now).Held) // otherwise the leap would end it
		}
		rec.NextAt = rec.ExpiresAt
	}
	if next.Wake != nil {
		wake := *next.Wake
		wake.State, wake.CreatedAt = MessagePending, now
		rec.Outbox, rec.NextAt = []Message{wake}, wake.NextAt
	}
	// A crash before this write leaves the old value, a crash after it the new one.
	// Nobody has to clean up.
	cur, applied, err := c.store.Apply(ctx, Write{Record: &rec, Expect: old.Revision})
	if err != nil {
		return old, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: err}
	}
	if cur == nil {
		return CellValue{}, false, nil
	}
	return cellValue(cur), applied || cur.Revision == rec.Revision, nil
}

// changes bounds how often Change starts over because somebody else changed the value.
const changes = 16

// Change writes what next makes of the cell's value, or removes the cell if next returns no data
// and the store can delete. If somebody else has changed the value meanwhile, next is called again
// with theirs. If next returns an error, nothing is written, and Change returns it. Any other
// error means unknown, as for Swap.
func (c *Cell) Change(ctx context.Context, next func(old CellValue) (CellValue, error)) error {
	old, err := c.Load(ctx)
	for range changes {
		if err != nil {
			return err
		}
		value, err := next(old)
		if err != nil {
			return err
		}
		if value.Data == nil {
			gone, err := c.remove(ctx, old)
			if gone || err != nil {
				return err
			}
			if old, err = c.Load(ctx); err != nil {
				return err
			}
			continue
		}
		cur, ok, err := c.Swap(ctx, old, value)
		if ok || err != nil {
			return err
		}
		old = cur
	}
	return &Error{Code: CodeStoreUnavailable, Message: "the value changes too fast"}
}

// Remove deletes the cell, if the store can delete. An error means unknown; removing again is
// harmless.
func (c *Cell) Remove(ctx context.Context) error {
	return c.Change(ctx, func(CellValue) (CellValue, error) { return CellValue{}, nil })
}

// remove deletes the cell if it still holds old, and reports whether it is done.
func (c *Cell) remove(ctx context.Context, old CellValue) (bool, error) {
	p := c.store.Extras().Purge
	if p == nil || old.Revision.IsZero() {
		return true, nil
	}
	// A crash before this write leaves the cell, a crash after it nothing.
	n, err := p.Purge(ctx, []Ref{{ID: c.id, Revision: old.Revision}})
	return n > 0, err
}

// CountsOf returns the identity of the cell that counts the decisions on a record's deliveries,
// and RefusedOf the one of the cell with the payloads of refused ones. Their names don't reveal
// the record's key: their own key is its digest. They are purged with the record.
func CountsOf(id ID) ID { return beside(id, CountsOperation) }

// CountsOperation is the operation of the cells of [CountsOf].
const CountsOperation = "semel.counts"

// RefusedOf: see [CountsOf].
func RefusedOf(id ID) ID { return beside(id, "semel.refused") }

func beside(id ID, operation string) ID {
	d := id.Digest()
	return ID{Tenant: id.Tenant, Operation: operation, Key: hex.EncodeToString(d[:])}
}

// PaymentOf returns the identity of the cell with a payment's state. payment is what the
// records of its events keep as [AttributePayment]: the name of the machine, a slash, and the
// payment's own name.
func PaymentOf(tenant, payment string) ID {
	machine, key, _ := strings.Cut(payment, "/")
	return ID{Tenant: tenant, Operation: PaymentOperation + machine, Key: key}
}

// PaymentOperation begins the names of the operations of the cells of [PaymentOf].
const PaymentOperation = "semel.webhook.payment/"

// ItemOf names what a door accepted under a record. The name is the same at each delivery and try.
func ItemOf(id ID) string {
	d := id.Digest()
	return hex.EncodeToString(d[:16])
}

// EventPrefix begins the ids of events of webhooks; the name of their item follows.
const EventPrefix = "evt_"

// EventOf returns the id of the event that a record is about.
func EventOf(id ID) string { return EventPrefix + ItemOf(id) }

func cellValue(rec *Record) CellValue {
	v := CellValue{Data: rec.Result.Data, Attributes: rec.Attributes, Revision: rec.Revision, At: rec.EndedAt, fence: rec.Fence}
	if rec.ExpiresAt != 0 {
		v.KeepFor = rec.ExpiresAt.Sub(rec.EndedAt)
	}
	if len(rec.Outbox) == 1 {
		v.Wake = &rec.Outbox[0]
	}
	return v
}
