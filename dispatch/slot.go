package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
)

// slotOperation is that of the records in which lanes are kept. No call can reach
// it, because no operation can have its name.
const slotOperation = "semel.dispatch"

// wakeID is the message of a lane's record by which the due index finds the lane.
const wakeID = "wake"

// idleFor is how long a slot that nobody needs is kept.
const idleFor = time.Hour

// slots writes and reads the records of lanes, by the store's own compare-and-set.
type slots struct {
	store  bounded
	prefix [8]byte
	count  atomic.Uint64
}

// slot is one value as it was read. The zero revision means that there is none.
type slot struct {
	id  semel.ID
	rec semel.Record
}

func (s *slots) init(store bounded) error {
	s.store = store
	if _, err := rand.Read(s.prefix[:]); err != nil {
		return fmt.Errorf("dispatch: random prefix of revisions: %w", err)
	}
	return nil
}

// load reads a slot and its value, which stays as it is where there is none.
func (s *slots) load(ctx context.Context, id semel.ID, value any) (slot, error) {
	rec, err := s.store.Get(ctx, id)
	if errors.Is(err, semel.ErrNotFound) {
		return slot{id: id}, nil
	}
	if err == nil {
		err = json.Unmarshal(rec.Result.Data, value)
	}
	return slot{id, rec}, err
}

// errChanged says that another has written the slot in the meantime.
var errChanged = errors.New("dispatch: a lane was changed by another")

// swap writes a value if the slot is as it was read. With wake, a lane that is to be
// worked on, the due index finds it at that time. Idle slots are purged after a
// while. Every other error means unknown.
func (s *slots) swap(ctx context.Context, old slot, value any, wake *semel.Message, idle bool) (slot, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return old, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return old, err
	}
	next := semel.Record{
		ID: old.id, State: semel.Completed, Disposition: semel.DispositionCompleted, Attempt: 1,
		CreatedAt: now, UpdatedAt: now, StartedAt: now, EndedAt: now,
		Fence: max(old.rec.Fence+1, int64(now)/int64(time.Microsecond)), Result: semel.Result{Data: data},
	}
	next.Origin = next.Fence
	if wake != nil {
		m := *wake
		m.ID, m.Name, m.State, m.CreatedAt = wakeID, wakeID, semel.MessagePending, now
		next.Outbox, next.NextAt, next.ExpiresAt = []semel.Message{m}, m.NextAt, now.Add(idleFor)
	} else if idle {
		next.ExpiresAt = now.Add(idleFor)
		next.NextAt = next.ExpiresAt
	}
	copy(next.Revision[:8], s.prefix[:])
	binary.BigEndian.PutUint64(next.Revision[8:], s.count.Add(1))
	// What a crash before or after this write leaves is said where it is called.
	cur, applied, err := s.store.Apply(ctx, semel.Write{Record: next, Expect: old.rec.Revision})
	switch {
	case err != nil:
		return old, err
	case !applied && cur.Revision != next.Revision:
		return old, errChanged
	}
	return slot{old.id, next}, nil
}

// drop deletes a slot that is as it was read, if the store can.
func (s *slots) drop(ctx context.Context, old slot) error {
	if old.rec.Revision.IsZero() {
		return nil
	}
	_, err := s.store.Purge(ctx, []semel.Ref{{ID: old.id, Revision: old.rec.Revision}})
	return err
}

// wakes reports whether a record is that of a lane to be worked on, and of which.
func wakes(rec *semel.Record) (laneID, bool) {
	if rec.ID.Operation != slotOperation || !strings.HasPrefix(rec.ID.Key, "lane/") || len(rec.Outbox) != 1 {
		return laneID{}, false
	}
	m := &rec.Outbox[0]
	return laneID{Tenant: rec.ID.Tenant, Destination: m.Destination, Order: m.Order}, true
}
