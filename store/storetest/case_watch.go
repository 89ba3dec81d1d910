package storetest

import (
	"context"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

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
