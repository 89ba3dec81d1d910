package semel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// Cell is one small value that all processes on a store share, kept in a record of
// a reserved operation, which no call can reach. It changes by compare-and-set, so
// of any number of processes that change it from the same value one does. Its
// methods may be called concurrently.
type Cell struct {
	store  Store
	id     ID
	prefix [8]byte
	count  atomic.Uint64
}

// CellValue is what a cell holds.
type CellValue struct {
	// Data is the value; nil where the cell was never written.
	Data []byte
	// Revision names the write that made it; zero where there was none.
	Revision Revision
	// At is when it was written, by the store's clock.
	At Instant
	// fence is that of the record, which must rise.
	fence int64
}

// maxCell bounds a cell's value, in bytes, so that every store can keep it.
const maxCell = 64 << 10

// NewCell is the cell of that name on a store. Two with one name are one.
func NewCell(store Store, name string) (*Cell, error) {
	c := &Cell{store: store, id: ID{Operation: reservedPrefix + "cell", Key: name}}
	if err := c.id.validate(); err != nil {
		return nil, err
	}
	if _, err := rand.Read(c.prefix[:]); err != nil {
		return nil, fmt.Errorf("semel: random prefix of revisions: %w", err)
	}
	return c, nil
}

// Load reads the cell.
func (c *Cell) Load(ctx context.Context) (CellValue, error) {
	rec, err := c.store.Get(ctx, c.id)
	switch {
	case errors.Is(err, ErrNotFound):
		return CellValue{}, nil
	case err != nil:
		return CellValue{}, &Error{Code: CodeStoreUnavailable, Err: err}
	}
	return cellValue(&rec), nil
}

// Swap writes data if the cell still holds old, and returns what it holds
// afterwards; data has up to 64 KiB. [CodeInvalidCall] means that it has more, and
// nothing was written. Any other error means unknown: the value may be there, or come
// there yet; whoever asks again reads the cell first.
func (c *Cell) Swap(ctx context.Context, old CellValue, data []byte) (CellValue, bool, error) {
	if len(data) > maxCell {
		return old, false, &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("a cell holds up to %d bytes", maxCell)}
	}
	now, err := c.store.Now(ctx)
	if err != nil {
		return old, false, &Error{Code: CodeStoreUnavailable, Err: err}
	}
	next := Record{
		ID: c.id, Disposition: unended, Attempt: 1, CreatedAt: now, UpdatedAt: now, StartedAt: now,
		Fence: nextFence(old.fence, now), Result: Result{Data: data},
	}
	next.Origin = next.Fence
	for _, ev := range []event{evOpen, evComplete} {
		if err := next.step(ev); err != nil {
			return old, false, err
		}
	}
	next.EndedAt = now // and it never expires
	copy(next.Revision[:8], c.prefix[:])
	binary.BigEndian.PutUint64(next.Revision[8:], c.count.Add(1))
	// A crash before this write leaves the old value, a crash after it the new one.
	// Nobody has to clean up.
	cur, applied, err := c.store.Apply(ctx, Write{Record: next, Expect: old.Revision})
	if err != nil {
		return old, false, &Error{Code: CodeStoreUnavailable, Message: "the result of a write is unknown", Err: err}
	}
	if cur.State == absent {
		return CellValue{}, false, nil
	}
	return cellValue(&cur), applied || cur.Revision == next.Revision, nil
}

func cellValue(rec *Record) CellValue {
	return CellValue{Data: rec.Result.Data, Revision: rec.Revision, At: rec.EndedAt, fence: rec.Fence}
}
