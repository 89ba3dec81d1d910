package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// busyStore sends no write while it is busy, and says so. It hides what else the
// memory store can do.
type busyStore struct {
	semel.Store
	busy atomic.Bool
}

func (b *busyStore) Extras() store.Extras { return store.Extras{} }

func (b *busyStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if b.busy.Load() {
		return nil, false, fmt.Errorf("too many at once: %w", store.ErrNotApplied)
	}
	return b.Store.Apply(ctx, w)
}

func TestABusyStoreRefusesClaimsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &busyStore{Store: memstore.New()}
		e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
		if err != nil {
			t.Fatal(err)
		}
		running, err := e.Begin(t.Context(), semel.Call{Operation: "op", Key: "running"})
		if err != nil {
			t.Fatal(err)
		}
		st.busy.Store(true)
		began := time.Now()
		_, err = e.Begin(t.Context(), semel.Call{Operation: "op", Key: "new"})
		if !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		// What was done has to be recorded, so its end is tried until it is.
		time.AfterFunc(time.Second, func() { st.busy.Store(false) })
		if err := running.Attempt.Complete(t.Context(), semel.Result{}); err != nil || time.Since(began) < time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if ans, err := e.Begin(t.Context(), semel.Call{Operation: "op", Key: "new"}); err != nil || ans.Decision != semel.Execute {
			t.Error(ans.Decision, err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// movingStore has others change a record before each write that would hold it. The last
// of them holds it under a lease.
type movingStore struct {
	semel.Store
	changes int
}

func (m *movingStore) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if w.Record.Held && m.changes > 0 {
		m.changes--
		rec, err := m.Get(ctx, w.Record.ID)
		if err != nil {
			return rec, false, err
		}
		rec, was := new(*rec), rec.Revision
		rec.Revision[0]++ // none of the engine's
		if m.changes == 0 {
			rec.LeaseUntil = rec.LeaseUntil.Add(time.Hour)
		}
		if cur, applied, err := m.Store.Apply(ctx, store.Write{Record: rec, Expect: was}); err != nil || !applied {
			return cur, applied, err
		}
	}
	return m.Store.Apply(ctx, w)
}

// However often a record changes under a delivery, what is claimed is what it has judged.
func TestARecordThatGoesOnChangingIsNotClaimedUnseen(t *testing.T) {
	for changes := range 40 {
		synctest.Test(t, func(t *testing.T) {
			st := &movingStore{Store: memstore.New()}
			e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op", Lease: time.Second}}})
			must(t, err)
			begin(t, e, call("k")).Detach()
			pass(2 * time.Second)
			st.changes = changes
			want := semel.InFlight
			if changes == 0 {
				want = semel.Held
			}
			decides(t, e, call("k"), want)
			must(t, e.Close(t.Context()))
		})
	}
}
