package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func purge(t *testing.T, s semel.Store, want int, refs ...store.Ref) {
	t.Helper()
	n, err := s.Extras().Purge.Purge(t.Context(), refs)
	if err != nil {
		t.Fatalf("Purge: %v", err)
	}
	if n != want {
		t.Fatalf("Purge says that it deleted %d records, want %d", n, want)
	}
}

func ref(rec semel.Record) store.Ref { return rec.Ref() }

var purgeCases = []testCase{
	{"Purge deletes a record and frees its identity", rulePurge, func(t *testing.T, env Env) {
		clause.Proves(t, "MAP-EXP.2")
		rec := put(t, env.Store, at(key("k"), epoch), store.Revision{})
		other := put(t, env.Store, at(key("other"), epoch), store.Revision{})
		purge(t, env.Store, 1, ref(rec))
		stored(t, env.Store, rec.ID, semel.Record{})
		stored(t, env.Store, other.ID, other)
		if d := env.Store.Extras().Due; d != nil {
			sameSet(t, due(t, d, epoch, 10), []semel.Record{other})
		}
		purge(t, env.Store, 0, ref(rec)) // once more
		again := put(t, env.Store, at(key("k"), epoch), store.Revision{})
		stored(t, env.Store, rec.ID, again)
		if d := env.Store.Extras().Due; d != nil {
			sameSet(t, due(t, d, epoch, 10), []semel.Record{other, again})
		}
		purge(t, env.Store, 0, ref(rec)) // the old version is gone
		stored(t, env.Store, rec.ID, again)
	}},
	{"a record that was changed since is not purged", rulePurge, func(t *testing.T, env Env) {
		v1 := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.Attempt = 2 }), v1.Revision)
		purge(t, env.Store, 0, ref(v1), store.Ref{ID: v1.ID}, store.Ref{ID: v1.ID, Revision: fresh()}, store.Ref{ID: key("absent")})
		stored(t, env.Store, v1.ID, v2)
	}},
	{"a write that follows a purged record gets the zero record and writes nothing", ruleApply, func(t *testing.T, env Env) {
		v1 := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		purge(t, env.Store, 1, ref(v1))
		refused(t, env.Store, store.Write{Record: new(next(v1, func(*semel.Record) {})), Expect: v1.Revision}, semel.Record{})
	}},
	{"Purge counts what it deleted, in batches of any size", rulePurge, func(t *testing.T, env Env) {
		purge(t, env.Store, 0)
		const records = 600
		var refs []store.Ref
		for i := range records {
			rec := put(t, env.Store, claimed(key(fmt.Sprint(i)), 1), store.Revision{})
			if i%3 == 0 {
				put(t, env.Store, next(rec, func(*semel.Record) {}), rec.Revision)
			}
			refs = append(refs, ref(rec), ref(rec)) // named twice, deleted once
		}
		purge(t, env.Store, records-records/3, refs...)
		purge(t, env.Store, 0, refs...)
		for i := range records {
			_, err := env.Store.Get(t.Context(), key(fmt.Sprint(i)))
			if kept := i%3 == 0; (err == nil) != kept {
				t.Fatalf("record %d: kept %v, but Get gives error %v", i, kept, err)
			}
		}
	}},
	{"of a purge and a write that race for one version exactly one wins", ruleLinear, func(t *testing.T, env Env) {
		p := env.Store.Extras().Purge
		for round := range 200 {
			v1 := put(t, env.Store, claimed(key(fmt.Sprint(round)), 1), store.Revision{})
			v2 := next(v1, func(r *semel.Record) { r.Attempt = 2 })
			var deleted, wrote atomic.Int64
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					n, err := p.Purge(t.Context(), []store.Ref{ref(v1)})
					deleted.Add(int64(n))
					if err != nil {
						t.Errorf("Purge: %v", err)
					}
				})
			}
			wg.Go(func() {
				_, applied, err := env.Store.Apply(t.Context(), store.Write{Record: new(v2), Expect: v1.Revision})
				if err != nil {
					t.Errorf("Apply: %v", err)
				}
				if applied {
					wrote.Add(1)
				}
			})
			wg.Wait()
			if deleted.Load()+wrote.Load() != 1 {
				t.Fatalf("%d purges and %d writes of one version took effect", deleted.Load(), wrote.Load())
			}
			want := v2
			if wrote.Load() == 0 {
				want = semel.Record{}
			}
			stored(t, env.Store, v1.ID, want)
		}
	}},
}

// noticed waits for a notice.
func noticed(t *testing.T, changed <-chan struct{}, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-changed:
	case <-ctx.Done():
		t.Fatalf("no notice came %s", what)
	}
}

var watchCases = []testCase{
	{"Watch tells of every kind of change that comes after it", ruleWatch, func(t *testing.T, env Env) {
		w := env.Store.Extras().Watch
		id := key("k")
		watch := func() <-chan struct{} {
			changed, stop := w.Watch(t.Context(), id)
			t.Cleanup(stop)
			return changed
		}
		early, created := watch(), watch()
		v1 := put(t, env.Store, claimed(id, 1), store.Revision{})
		noticed(t, created, "when the record was created")
		noticed(t, early, "at the second watcher")
		changed := watch()
		v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.State = semel.Completed }), v1.Revision)
		noticed(t, changed, "when the record was changed")
		noticed(t, early, "at a watcher that had a notice before")
		if env.Store.Extras().Purge != nil {
			purged := watch()
			purge(t, env.Store, 1, ref(v2))
			noticed(t, purged, "when the record was purged")
		}
	}},
	{"a change does not wait for watchers that do not look", ruleWatch, func(t *testing.T, env Env) {
		w := env.Store.Extras().Watch
		rec := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		changed, stop := w.Watch(t.Context(), rec.ID)
		within(t, patience, "a hundred changes beside a watcher that does not look", func() {
			for range 100 {
				w := store.Write{Record: new(next(rec, func(r *semel.Record) { r.Attempt++ })), Expect: rec.Revision}
				if _, applied, err := env.Store.Apply(t.Context(), w); err != nil || !applied {
					t.Errorf("Apply: applied %v, error %v", applied, err)
					return
				}
				rec = *w.Record
			}
		})
		noticed(t, changed, "after a hundred changes")
		stop()
		put(t, env.Store, next(rec, func(r *semel.Record) { r.Attempt++ }), rec.Revision)
	}},
}
