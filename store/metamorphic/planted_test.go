package metamorphic

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// flawed is a memory store with one flaw. It is no LocalStore, so the engine meets
// the flaw too.
type flawed struct {
	store
	apply  func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error)
	due    func(until semel.Instant) semel.Instant
	purge  func(ctx context.Context, s store, refs []semel.Ref) []semel.Ref
	search func(q *semel.Query)
}

func (f *flawed) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	if f.apply != nil {
		return f.apply(ctx, f.store, w)
	}
	return f.store.Apply(ctx, w)
}

func (f *flawed) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	if f.due != nil {
		q.Until = f.due(q.Until)
	}
	return f.store.Due(ctx, q)
}

func (f *flawed) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	if f.purge != nil {
		refs = f.purge(ctx, f.store, refs)
	}
	return f.store.Purge(ctx, refs)
}

func (f *flawed) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	if f.search != nil {
		f.search(&q)
	}
	return f.store.Search(ctx, q)
}

// four hides that the memory store is a LocalStore.
type four struct{ store }

// enough lists find every flaw.
const enough = 300

func TestDifferencesAreFound(t *testing.T) {
	for _, c := range []struct {
		name string
		flaw flawed
	}{
		{"a store that ignores a stale expectation", flawed{apply: func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error) {
			if cur, err := s.Get(ctx, w.Record.ID); err == nil && !w.Expect.IsZero() {
				w.Expect = cur.Revision
			}
			return s.Apply(ctx, w)
		}}},
		{"a store that claims over a record", flawed{apply: func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error) {
			if cur, err := s.Get(ctx, w.Record.ID); err == nil && w.Expect.IsZero() {
				w.Expect = cur.Revision
			}
			return s.Apply(ctx, w)
		}}},
		{"a store that does not show what stood in the way", flawed{apply: func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error) {
			cur, applied, err := s.Apply(ctx, w)
			if !applied && !w.Expect.IsZero() {
				cur = semel.Record{}
			}
			return cur, applied, err
		}}},
		{"a store that keeps times to the microsecond", flawed{apply: func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error) {
			w.Record.ExpiresAt -= w.Record.ExpiresAt % 1000
			return s.Apply(ctx, w)
		}}},
		{"a store that takes an empty result for none", flawed{apply: func(ctx context.Context, s store, w semel.Write) (semel.Record, bool, error) {
			if len(w.Record.Result.Data) == 0 {
				w.Record.Result.Data = nil
			}
			return s.Apply(ctx, w)
		}}},
		{"a store that lists what will be due", flawed{due: func(until semel.Instant) semel.Instant { return until.Add(lease) }}},
		{"a store that purges whatever is there", flawed{purge: func(ctx context.Context, s store, refs []semel.Ref) []semel.Ref {
			for i := range refs {
				if cur, err := s.Get(ctx, refs[i].ID); err == nil {
					refs[i].Revision = cur.Revision
				}
			}
			return refs
		}}},
		{"a search that forgets what it was asked for", flawed{search: func(q *semel.Query) { q.Held = false }}},
	} {
		t.Run(c.name+" is found out", func(t *testing.T) {
			c.flaw.store = four{memstore.New()}
			stores := table{participants: []participant{{"right", memstore.New()}, {"flawed", &c.flaw}}}
			generator := drawList()
			for i := range enough {
				if _, err := stores.compare(t.Context(), generator.Example(i)); err != nil {
					t.Logf("list %d: %.400v", i, err)
					return
				}
			}
			t.Errorf("%d lists did not tell the stores apart", enough)
		})
	}
}

// TestTheEngineWorksAlikeOnBothKindsOfStore holds the two ways in which the engine
// uses a store against each other, which needs no server.
func TestTheEngineWorksAlikeOnBothKindsOfStore(t *testing.T) {
	stores := table{participants: []participant{{"in memory", memstore.New()}, {"remote", four{memstore.New()}}}}
	rapid.Check(t, func(rt *rapid.T) {
		l := drawList().Draw(rt, "list")
		if _, err := stores.compare(t.Context(), l); err != nil {
			rt.Fatal(err)
		}
	})
}
