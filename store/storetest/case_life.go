package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

const (
	ruleClose   = "Close releases what the store holds. It returns after running calls. Later calls fail."
	ruleUnknown = "An error means that the result is unknown: the write may have happened, may happen yet, or may never happen. Anything but an error is definite."
	ruleDurable = "What Apply acknowledged is durable to the level the store documents, before it returns."
)

// patience is how long a call may take before it counts as hung.
const patience = 30 * time.Second

// verbs calls every method of a store that takes a context, and returns their errors.
func verbs(ctx context.Context, s semel.Store, rec semel.Record) map[string]error {
	errs := map[string]error{}
	_, _, errs["Apply, creating"] = s.Apply(ctx, store.Write{Record: new(claimed(key("new"), 1))})
	_, _, errs["Apply"] = s.Apply(ctx, store.Write{Record: new(next(rec, func(*semel.Record) {})), Expect: rec.Revision})
	_, errs["Get"] = s.Get(ctx, rec.ID)
	_, errs["Now"] = s.Now(ctx)
	if d := s.Extras().Due; d != nil {
		_, errs["Due"] = d.Due(ctx, store.DueQuery{Until: epoch.Add(time.Hour), Limit: 10})
	}
	if p := s.Extras().Purge; p != nil {
		_, errs["Purge"] = p.Purge(ctx, []store.Ref{{ID: rec.ID, Revision: rec.Revision}})
	}
	if f := s.Extras().Search; f != nil {
		_, errs["Search"] = f.Search(ctx, store.Query{Limit: 10})
	}
	return errs
}

var lifeCases = []testCase{
	{"every call fails after Close, and none hangs", ruleClose, func(t *testing.T, env Env) {
		rec := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		within(t, patience, "Close", func() {
			if err := env.Store.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		var errs map[string]error
		within(t, patience, "a call after Close", func() { errs = verbs(context.WithoutCancel(t.Context()), env.Store, rec) })
		for call, err := range errs {
			if err == nil {
				t.Errorf("%s after Close did not fail", call)
			}
			if errors.Is(err, semel.ErrNotFound) {
				t.Errorf("%s after Close says that there is no record: %v", call, err)
			}
		}
		if w := env.Store.Extras().Watch; w != nil {
			within(t, patience, "Watch after Close", func() {
				_, stop := w.Watch(t.Context(), rec.ID)
				stop()
			})
		}
		within(t, patience, "a second Close", func() { _ = env.Store.Close() })
	}},
	{"calls that run while the store closes tell the truth or fail", ruleClose, closeWhileRunning},
	{"a cancelled context gives an error or a definite result, never a lie", ruleUnknown, func(t *testing.T, env Env) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 20 {
			id := key(fmt.Sprint("k", i))
			definite(t, env.Store, ctx, store.Write{Record: new(claimed(id, 1))}, semel.Record{})
			rec, err := env.Store.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := env.Store.Get(ctx, id); err == nil {
				same(t, "what Get returned under a cancelled context", got, *rec)
			} else if errors.Is(err, semel.ErrNotFound) {
				t.Fatalf("under a cancelled context Get says that a stored record is not there")
			}
			definite(t, env.Store, ctx, store.Write{Record: new(next(*rec, func(r *semel.Record) { r.Attempt = 2 })), Expect: rec.Revision}, *rec)
			if at, err := env.Store.Now(ctx); err == nil && at.IsZero() {
				t.Fatal("under a cancelled context Now gives no time and no error")
			}
		}
	}},
	{"what was acknowledged is there after the store was opened again", ruleDurable, func(t *testing.T, env Env) {
		if env.Reopen == nil {
			// Such a store keeps acknowledged writes while it is open.
			rec := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
			env.Advance(time.Hour)
			stored(t, env.Store, rec.ID, rec)
			return
		}
		clause.Proves(t, "CORE-CONC.1")
		survives(t, env)
	}},
}

// definite applies w under a context and, after an error, resolves the result like the engine.
// In the end w must be stored. before is the record stored earlier.
func definite(t *testing.T, s semel.Store, ctx context.Context, w store.Write, before semel.Record) {
	t.Helper()
	cur, applied, err := s.Apply(ctx, w)
	switch {
	case err == nil && applied:
		same(t, "what Apply returned", cur, *w.Record)
	case err == nil:
		t.Fatalf("Apply was refused although it expected what is stored, %v", before.Revision)
	default:
		cur, applied, err = s.Apply(t.Context(), w)
		if err != nil {
			t.Fatalf("Apply: %v", err)
		}
		if !applied && revisionOf(cur) != w.Record.Revision {
			t.Fatalf("after an error the same write sent again finds revision %v", revisionOf(cur))
		}
	}
	stored(t, s, w.Record.ID, *w.Record)
}

// closeWhileRunning calls the store while it closes. It must neither say that a stored record
// is gone nor create it again.
func closeWhileRunning(t *testing.T, env Env) {
	rec := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
	ctx := context.WithoutCancel(t.Context())
	var wg sync.WaitGroup
	var under atomic.Int64
	var acknowledged sync.Map
	started := make(chan struct{})
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				if under.Add(1) == 200 {
					close(started)
				}
				got, err := env.Store.Get(ctx, rec.ID)
				if errors.Is(err, semel.ErrNotFound) || err == nil && revisionOf(got) != rec.Revision {
					t.Errorf("Get during Close gives revision %v, error %v for a record that is stored", revisionOf(got), err)
				}
				got, applied, err2 := env.Store.Apply(ctx, store.Write{Record: new(claimed(rec.ID, 2))})
				if applied || err2 == nil && revisionOf(got) != rec.Revision {
					t.Errorf("during Close a stored record was created once more (applied %v, shown %v)", applied, revisionOf(got))
				}
				mine := claimed(key(fmt.Sprintf("w%d-%d", i, n)), 1)
				_, applied, err3 := env.Store.Apply(ctx, store.Write{Record: new(mine)})
				if applied && err3 == nil {
					acknowledged.Store(mine.ID, mine)
				}
				if err != nil && err2 != nil && err3 != nil {
					return
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	<-started
	if env.Reopen == nil {
		if err := env.Store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	} else {
		reopened := env.Reopen()
		defer func() {
			stored(t, reopened, rec.ID, rec)
			acknowledged.Range(func(id, mine any) bool {
				stored(t, reopened, id.(semel.ID), mine.(semel.Record))
				return true
			})
		}()
	}
	within(t, patience, "calls that ran during Close", wg.Wait)
}

// survives writes, reopens the store and checks every record, several times over.
func survives(t *testing.T, env Env) {
	s := env.Store
	want := map[semel.ID]semel.Record{}
	for round := range 4 {
		for i := range 20 {
			id := key(fmt.Sprint("k", round, "-", i))
			want[id] = put(t, s, claimed(id, int64(i+1)), store.Revision{})
		}
		changed := 0
		for id, rec := range want {
			if changed++; changed%3 == 0 {
				want[id] = put(t, s, next(rec, func(r *semel.Record) {
					r.State, r.Disposition = semel.Completed, semel.DispositionCompleted
					r.Result.Data = []byte("result of " + id.Key)
					r.NextAt = 0
				}), rec.Revision)
			}
			if p := s.Extras().Purge; p != nil && changed%7 == 0 {
				if n, err := p.Purge(t.Context(), []store.Ref{{ID: id, Revision: want[id].Revision}}); n != 1 || err != nil {
					t.Fatalf("Purge gives %d, %v", n, err)
				}
				want[id] = semel.Record{}
			}
		}
		s = env.Reopen()
		for id, rec := range want {
			stored(t, s, id, rec)
			if rec.Revision.IsZero() {
				delete(want, id)
			}
		}
		if d := s.Extras().Due; d != nil {
			var live []semel.Record
			for _, rec := range want {
				if !rec.NextAt.IsZero() {
					live = append(live, rec)
				}
			}
			sameSet(t, due(t, d, epoch.Add(time.Hour), len(want)+1), live)
		}
	}
}
