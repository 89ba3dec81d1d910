package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// This is how a dispatcher finds the order of messages.
//
// A lane is the queue of messages with one tenant, destination and order key. The store holds
// it as a record that lists the pages, and pages of entries that name messages. A message that
// isn't in a lane yet is due from the time when its call completed. So a scan of all records
// that were due at a moment has seen every message that is older than that moment and not in a
// lane. The dispatcher reads the end of the lane, scans everything that is due, sorts what it
// finds by the time of completion, and appends it if the end of the lane is unchanged: then no
// other dispatcher has appended a younger message meanwhile. Messages in a lane are postponed,
// so that they aren't scanned again and again.
//
// One dispatcher at a time works on a lane, under the lease of a call: it delivers
// the first pending message, and only then the next. A lane with work has a record that
// is due at the time of its first message, so that another dispatcher continues the work
// if this one dies.
//
// A message can be in a lane twice, after a crash between appending and postponing it, or
// if it was postponed for so long that it became due. That is harmless: the second entry
// comes after the first, and settled messages are skipped.

// laneID names a lane.
type laneID struct{ Tenant, Destination, Order string }

// digest is a name of fixed length for the destination and the order key.
func (id laneID) digest() string {
	h := sha256.New()
	for _, s := range []string{"semel-lane-1", id.Tenant, id.Destination, id.Order} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (id laneID) record() semel.ID {
	return semel.ID{Tenant: id.Tenant, Operation: slotOperation, Key: "lane/" + id.digest()}
}

func (id laneID) page(n int) semel.ID {
	return semel.ID{Tenant: id.Tenant, Operation: slotOperation, Key: fmt.Sprintf("page/%s/%d", id.digest(), n)}
}

// pages is the value of a lane's record: the first and the last page. The last may
// be one behind after a crash.
type pages struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// page is a part of a lane. Those before Done are settled.
type page struct {
	Done    int     `json:"done"`
	Entries []entry `json:"entries"`
}

// pageSize is how many entries fill a page. It bounds the bytes rewritten when a message is
// settled.
const pageSize = 64

func (p *page) full() bool { return len(p.Entries) >= pageSize }

func (p *page) idle() bool { return p.Done >= len(p.Entries) }

// entry names a message in a lane.
type entry struct {
	Principal string        `json:"principal,omitempty"`
	Operation string        `json:"operation"`
	Key       string        `json:"key"`
	Message   string        `json:"message"`
	At        store.Instant `json:"at"` // when the call completed
	index     int           // of the message in its call
	again     bool          // it was due before: replayed, or postponed for too long
}

func entryOf(rec *semel.Record, index int) entry {
	m := &rec.Outbox[index]
	return entry{rec.ID.Principal, rec.ID.Operation, rec.ID.Key, m.ID, m.CreatedAt, index, m.NextAt != m.CreatedAt}
}

func (en entry) call(tenant string) semel.ID {
	return semel.ID{Tenant: tenant, Principal: en.Principal, Operation: en.Operation, Key: en.Key}
}

// before orders entries. Calls that completed at the same instant have no order; sorting
// them by name makes it the same on every node.
func (en entry) before(o entry) int {
	return cmp.Or(cmp.Compare(en.At, o.At), cmp.Compare(en.Operation, o.Operation), cmp.Compare(en.Key, o.Key),
		cmp.Compare(en.Principal, o.Principal), cmp.Compare(en.index, o.index))
}

// putOffFor is how long a message in a lane is postponed, at random up to twice that:
// usually long enough not to be scanned again while it waits.
const putOffFor = 12 * time.Hour

// tail is the end of a lane as it was before a scan.
type tail struct {
	number int
	*slot[page]
}

// loadTail reads the end of a lane.
func (d *Dispatcher) loadTail(ctx context.Context, id laneID) (t tail, err error) {
	lane, err := load[pages](ctx, d, id.record())
	if err != nil {
		return t, err
	}
	for t.number = lane.value.Last; ; t.number++ {
		if t.slot, err = load[page](ctx, d, id.page(t.number)); err != nil || !t.value.full() {
			return t, err
		}
	}
}

// extend appends messages to a lane if its end is still t, and makes the lane due.
func (d *Dispatcher) extend(ctx context.Context, id laneID, t tail, messages []laneMessage) error {
	var fresh []entry
	for _, m := range messages {
		if m.entry.again || !slices.ContainsFunc(t.value.Entries, func(o entry) bool { return o.Message == m.entry.Message }) {
			fresh = append(fresh, m.entry)
		}
	}
	slices.SortFunc(fresh, entry.before)
	for len(fresh) > 0 {
		if t.value.full() {
			t.number++
			t.slot = &slot[page]{cell: store.NewCell(d.store, id.page(t.number))}
		}
		n := min(len(fresh), pageSize-len(t.value.Entries))
		t.value.Entries = append(t.value.Entries, fresh[:n]...)
		// A crash before this write leaves the messages due, to be found again. A
		// crash after it leaves them due too: they are then found in the page, and the
		// remaining steps are done.
		if err := t.swap(ctx, nil, false); err != nil {
			return err
		}
		fresh = fresh[n:]
	}
	if err := d.crash("enlisted"); err != nil {
		return err
	}
	if err := d.wakeLane(ctx, id, t.number); err != nil {
		return err
	}
	if err := d.crash("woken"); err != nil {
		return err
	}
	// A crash before all are postponed leaves some due, which may then get into the lane
	// twice.
	return each(messages, func(m laneMessage) error {
		_, err := d.settle(ctx, m.entry.call(id.Tenant), m.entry.Message, store.MessageFinding{
			State: store.MessagePending, RetryAfter: putOffFor + jitter(putOffFor), Untried: true,
		}, nil)
		return err
	})
}

// wakeLane makes a lane due after messages were appended.
//
// A crash before the write leaves messages that weren't postponed, so they are due and found
// again. A crash after it leaves nothing to do.
func (d *Dispatcher) wakeLane(ctx context.Context, id laneID, last int) error {
	return again(func() error {
		lane, err := load[pages](ctx, d, id.record())
		if err != nil {
			return err
		}
		due, err := d.store.Now(ctx)
		if err != nil {
			return err
		}
		if last < lane.value.First {
			return errChanged // that page was read and purged, so nobody reads what was appended to it
		}
		lane.value.Last = max(lane.value.Last, last)
		if lane.was.Wake != nil {
			// A dispatcher works on it, or it waits for its first message. That
			// dispatcher notices the write, and that there is more.
			due = lane.was.Wake.NextAt
		}
		return swapLane(ctx, id, lane, due)
	})
}

// swapLane writes the record of a lane, which is due at a time; zero makes it idle.
func swapLane(ctx context.Context, id laneID, lane *slot[pages], due store.Instant) error {
	if due == 0 {
		return lane.swap(ctx, nil, true)
	}
	return lane.swap(ctx, &semel.Message{ID: wakeID, Name: wakeID, Destination: id.Destination, Order: id.Order, NextAt: due}, false)
}
