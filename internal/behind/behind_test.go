package behind

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// one adds a note of size 1, or counts it up.
func one(n *int, _ int) int {
	*n++
	if *n > 1 {
		return 0
	}
	return 1
}

// slow counts what is written, each of which takes a second.
type slow struct{ notes, now, most atomic.Int64 }

func (s *slow) write(ctx context.Context, _ int, n *int) error {
	s.now.Add(1)
	defer s.now.Add(-1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	if now := s.now.Load(); now > s.most.Load() {
		s.most.Store(now) // all that began together are still here for the first of them
	}
	s.notes.Add(int64(*n))
	return nil
}

// Where a write takes a second, many are on their way together, so that nothing falls behind that
// one after the other would never get through.
func TestManyAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slow
		q := New(1000, s.write)
		for i := range 640 {
			q.Note(i, one)
			q.Note(i, one)
		}
		began := time.Now()
		q.Flush(t.Context())
		if took := time.Since(began); took != 10*time.Second || s.most.Load() != writers || s.notes.Load() != 2*640 {
			t.Errorf("%d of 1,280 were written in %v, %d at a time", s.notes.Load(), took, s.most.Load())
		}
		if waiting, lost := q.State(); waiting != 0 || lost != 0 || q.size != 0 {
			t.Errorf("%d wait, %d are lost, the size is %d", waiting, lost, q.size)
		}
	})
}

func TestAnOrderlyStopLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slow
		q := New(10_000, s.write)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { q.Run(ctx) })
		for i := range 1000 {
			q.Note(i, one)
		}
		<-time.After(Pause + time.Second/2) // some are on their way
		for i := range 1000 {
			q.Note(i, one) // again
		}
		grace, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if lost := q.Close(grace); lost != 0 || s.notes.Load() != 2000 {
			t.Errorf("%d of 2,000 are written, and %d keys given up", s.notes.Load(), lost)
		}
		q.Note(1, one)
		cancel()
		work.Wait()
		if waiting, lost := q.State(); waiting != 0 || lost != 1 {
			t.Errorf("afterwards %d wait, and %d are lost for one that came too late", waiting, lost)
		}
	})
}

// A stop doesn't wait for a store that hangs, and says what it gives up.
func TestAStopEndsWithItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(10_000, func(ctx context.Context, _ int, _ *int) error { <-ctx.Done(); return ctx.Err() })
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { q.Run(ctx) })
		for i := range 1000 {
			q.Note(i, one)
		}
		<-time.After(Pause) // Run writes, and hangs
		synctest.Wait()
		began := time.Now()
		grace, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		if lost := q.Close(grace); lost != 1000-writers || time.Since(began) != 3*time.Second {
			t.Errorf("%d given up after %v", lost, time.Since(began))
		}
		cancel()
		work.Wait()
		if _, lost := q.State(); time.Since(began) != 3*time.Second || lost != 1000 {
			t.Errorf("%d lost, after %v", lost, time.Since(began))
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	var s slow
	q := New(100, s.write)
	for i := range 150 {
		q.Note(i, one)
	}
	q.Note(0, one) // is there already
	if waiting, lost := q.State(); waiting != 100 || lost != 50 {
		t.Errorf("%d wait, %d are lost", waiting, lost)
	}
	q.Forget(func(key int) bool { return key < 10 })
	q.Note(200, func(_ *int, room int) int {
		if room != 10 {
			t.Errorf("there is room for %d", room)
		}
		return 1
	})
	if waiting, lost := q.State(); waiting != 91 || lost != 50 {
		t.Errorf("%d wait, %d are lost", waiting, lost)
	}
}

var (
	id   = store.ID{Tenant: "acme", Operation: "pay", Key: "k"}
	note = func(*store.Record, store.CellValue) (store.CellValue, error) {
		return store.CellValue{Data: []byte("noted")}, nil
	}
)

// put writes a record that ends in so long.
func put(t *testing.T, st *memstore.Store, window time.Duration, state store.State) *store.Record {
	t.Helper()
	now, err := st.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec := &store.Record{ID: id, State: state, Attempt: 1, Fence: 1, Revision: store.Revision{1}, CreatedAt: now, UpdatedAt: now, Policy: store.Policy{Window: window}}
	if state.Terminal() {
		rec.ExpiresAt = now.Add(window)
	}
	if _, ok, err := st.Apply(t.Context(), store.Write{Record: rec}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	return rec
}

// Nothing beside a record is kept longer than the record, however short that is.
func TestACellGoesWithItsRecord(t *testing.T) {
	for _, state := range []store.State{store.Processing, store.Completed} {
		st := memstore.New()
		put(t, st, time.Minute, state)
		if err := Beside(t.Context(), st, id, store.CountsOf(id), note); err != nil {
			t.Fatal(err)
		}
		cell, err := store.NewCell(st, store.CountsOf(id)).Load(t.Context())
		if err != nil || cell.Data == nil || cell.KeepFor > time.Minute || cell.KeepFor < 50*time.Second {
			t.Errorf("beside a record that is %v: %+v, %v", state, cell, err)
		}
	}
}

// What is beside a record that is remembered beyond its window goes with its payload, but for the counts.
func TestPayloadsGoWithTheAnswer(t *testing.T) {
	for _, state := range []store.State{store.Processing, store.Completed} {
		for cellID, want := range map[store.ID]time.Duration{store.CountsOf(id): time.Hour, store.RefusedOf(id): time.Minute} {
			st := memstore.New()
			rec := *put(t, st, time.Hour, state)
			next := rec
			next.Policy, next.Revision = store.Policy{Window: time.Minute, Remember: time.Hour}, store.Revision{2}
			if _, ok, err := st.Apply(t.Context(), store.Write{Record: &next, Expect: rec.Revision}); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if err := Beside(t.Context(), st, id, cellID, note); err != nil {
				t.Fatal(err)
			}
			cell, err := store.NewCell(st, cellID).Load(t.Context())
			if err != nil || cell.Data == nil || cell.KeepFor > want || cell.KeepFor < want-10*time.Second {
				t.Errorf("beside a record that is %v, %s is kept for %v, %v", state, cellID.Operation, cell.KeepFor, err)
			}
		}
	}
}

// purging purges the record before or after the cell is written, by the hook of a store.
type purging struct {
	*memstore.Store
	before, after func()
}

func (p *purging) Apply(ctx context.Context, w store.Write) (*store.Record, bool, error) {
	if p.before != nil {
		p.before()
	}
	rec, ok, err := p.Store.Apply(ctx, w)
	if p.after != nil {
		p.after()
	}
	return rec, ok, err
}

func TestNothingIsLeftBesideARecordThatIsPurged(t *testing.T) {
	for name, when := range map[string]func(p *purging, purge func()){
		"before its cell is written": func(p *purging, purge func()) { p.before = purge },
		"after its cell is written":  func(p *purging, purge func()) { p.after = purge },
	} {
		t.Run(name, func(t *testing.T) {
			p := &purging{Store: memstore.New()}
			rec := put(t, p.Store, time.Minute, store.Completed)
			when(p, func() { // as the engine does it: the record, and what is beside it
				_, err := p.Purge(t.Context(), []store.Ref{{ID: id, Revision: rec.Revision}})
				if err := errors.Join(err, store.NewCell(p.Store, store.CountsOf(id)).Remove(t.Context())); err != nil {
					t.Error(err)
				}
			})
			if err := Beside(t.Context(), p, id, store.CountsOf(id), note); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Get(t.Context(), store.CountsOf(id)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("its cell is there: %v", err)
			}
		})
	}
}
