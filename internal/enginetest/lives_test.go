package enginetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// lives has the newest version of every record that was written, to hold the next one
// against it.
type lives struct {
	mu     sync.Mutex
	newest map[semel.ID]semel.Record
	writes int
}

// apply writes to a store, and says what the write changed that no write may.
func (l *lives) apply(ctx context.Context, st *memstore.Store, w store.Write) (cur *semel.Record, applied bool, faults []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cur, applied, err = st.Apply(ctx, w)
	if err != nil || !applied {
		return cur, applied, nil, err
	}
	l.writes++
	if l.newest == nil {
		l.newest = map[semel.ID]semel.Record{}
	}
	if w.Expect != (store.Revision{}) && !strings.HasPrefix(w.Record.ID.Operation, "semel.") { // those are notes of package dispatch, not calls
		prev := l.newest[w.Record.ID]
		now, _ := st.Now(ctx)
		faults = changed(&prev, w.Record, prev.Expired(now))
	}
	l.newest[w.Record.ID] = *w.Record
	return cur, applied, faults, nil
}

// changed names what differs between two versions of a record although it never may. Of a
// record whose window is over only the identity and the order of time are left.
func changed(prev, next *semel.Record, over bool) (faults []string) {
	fault := func(name string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			faults = append(faults, fmt.Sprintf("the %s of %s was %.200v and is %.200v", name, prev.ID.Key, was, is))
		}
	}
	fault("key", prev.ID.Key, next.ID.Key)
	fault("operation", prev.ID.Operation, next.ID.Operation)
	if next.UpdatedAt < prev.UpdatedAt {
		faults = append(faults, fmt.Sprintf("updatedAt of %s went back by %v", prev.ID.Key, prev.UpdatedAt.Sub(next.UpdatedAt)))
	}
	if over && next.Attempt == 1 {
		return faults
	}
	fault("payloadHash", prev.Fingerprint, next.Fingerprint)
	fault("createdAt", prev.CreatedAt, next.CreatedAt)
	if prev.State.Terminal() && next.Attempt == prev.Attempt {
		fault("status", prev.State, next.State)
		fault("result", prev.Result, next.Result)
		fault("error", prev.Failure, next.Failure)
	}
	return faults
}

// write is the party's way to the store.
func (p *party) write(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	cur, applied, faults, err := p.written.apply(ctx, p.st, w)
	for _, fault := range faults {
		p.mu.Lock()
		p.violated("%s", fault)
		p.mu.Unlock()
	}
	return cur, applied, err
}

// late is a store whose clock one engine reads as a little earlier than others do.
type late struct {
	*memstore.Store
	by time.Duration
}

func (s late) Now(ctx context.Context) (store.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(-s.by), err
}

func TestUpdatedAtNeverGoesBack(t *testing.T) {
	clause.Proves(t, "CORE-FIELD.2")
	synctest.Test(t, func(t *testing.T) {
		st, opts := memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "op"}}}
		first, err := semel.New(st, opts)
		must(t, err)
		second, err := semel.New(late{st, time.Second}, opts)
		must(t, err)
		a := begin(t, first, call("k"))
		must(t, a.Hold(t.Context(), "who knows"))
		held, err := first.Lookup(t.Context(), id("k"))
		must(t, err)
		_, err = second.Settle(t.Context(), id("k"), semel.Settlement{Outcome: semel.DispositionCompleted}, "looked")
		must(t, err)
		rec, err := first.Lookup(t.Context(), id("k"))
		must(t, err)
		if rec.State != semel.Completed || rec.UpdatedAt < held.UpdatedAt || rec.CreatedAt != held.CreatedAt || rec.Fingerprint != held.Fingerprint || rec.ID != held.ID {
			t.Errorf("%s, updated at %v and before at %v", rec.State, rec.UpdatedAt, held.UpdatedAt)
		}
	})
}
