package facts

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

type world struct {
	*testing.T
	engine *semel.Engine
	log    *evidence.Log
	store  *memstore.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, store: memstore.New()}
	if w.log, err = evidence.New(w.store, keys, nil); err != nil {
		t.Fatal(err)
	}
	w.engine, err = semel.New(w.store, &semel.Options{Witness: w.log, Operations: []semel.Operation{
		{Name: "pay", Financial: true, OnExpiry: semel.DeleteExpired, Evidence: semel.EvidenceDurable}, {Name: "quiet"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.log.Close(context.Background()), w.engine.Close(context.Background()), w.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func call(op string) semel.Call {
	return semel.Call{Tenant: "acme", Principal: "shop", Operation: op, Key: "k"}
}

// run begins a call and lets f end it.
func (w *world) run(op string, f func(at *semel.Attempt) error) semel.ID {
	w.Helper()
	ans, err := w.engine.Begin(w.Context(), call(op))
	if err != nil || ans.Attempt == nil {
		w.Fatalf("%v, %v", ans.Decision, err)
	}
	if err := f(ans.Attempt); err != nil {
		w.Fatal(err)
	}
	return ans.Attempt.ID()
}

func (w *world) complete(op string) semel.ID {
	w.Helper()
	return w.run(op, func(at *semel.Attempt) error { return at.Complete(w.Context(), semel.Result{Data: []byte("1")}) })
}

func (w *world) hold(op string) semel.ID {
	w.Helper()
	return w.run(op, func(at *semel.Attempt) error { return at.Hold(w.Context(), "no answer") })
}

func (w *world) purge(id semel.ID, erase bool) {
	w.Helper()
	if err := w.engine.Purge(w.Context(), id, semel.Removal{Who: "olga", Reason: "customer asked", EraseEvidence: erase}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) verdict(id semel.ID) verdict.Verdict {
	w.Helper()
	rec, err := w.engine.Lookup(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	if err := w.log.Integrate(w.Context()); err != nil {
		w.Fatal(err)
	}
	all, err := Of(w.Context(), w.engine, []semel.Record{rec})
	if err := errors.Join(err, Earlier(w.Context(), w.log, &all[0])); err != nil {
		w.Fatal(err)
	}
	return verdict.Of(&all[0])
}

// What ran, was purged and ran again was executed twice.
func TestPurgedAndRunAgain(t *testing.T) {
	w := newWorld(t)
	id := w.complete("pay")
	if v := w.verdict(id); v.Says != "executed once" || !v.Known {
		t.Errorf("before: %+v", v)
	}
	if _, err := w.engine.Begin(t.Context(), call("pay")); err != nil { // a duplicate, which is no life
		t.Fatal(err)
	}
	w.purge(id, false)
	w.complete("pay")
	v := w.verdict(id)
	if !strings.HasPrefix(v.Says, "executed once; before that it was begun once, executed once, and purged at ") || !strings.HasSuffix(v.Says, " by olga: customer asked") ||
		v.Counts != (verdict.Counts{Begun: 2, Done: 2}) || !v.Known {
		t.Errorf("%+v", v)
	}
	rec, err := w.engine.Lookup(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if got := verdict.Together("9911", []verdict.Facts{{Record: &rec, Said: &v}}, false); !strings.HasPrefix(got, "9911: 1 call, executed twice: k at ") {
		t.Error(got)
	}
}

// The lives before are counted by how each ended, and told even when nobody can read who purged them.
func TestEarlierLives(t *testing.T) {
	w := newWorld(t)
	settle := func(id semel.ID, outcome store.Disposition) {
		t.Helper()
		if _, err := w.engine.Settle(t.Context(), id, semel.Settlement{Outcome: outcome, Who: "olga"}, "looked"); err != nil {
			t.Fatal(err)
		}
	}
	id := w.hold("pay")
	settle(id, semel.DispositionCompleted)
	w.purge(id, false)
	w.hold("pay")
	settle(id, semel.DispositionAbandoned)
	w.complete("pay") // after the release
	w.purge(id, false)
	w.run("pay", func(at *semel.Attempt) error {
		return at.Reject(t.Context(), store.Failure{Code: "no"}, semel.Result{})
	})
	w.purge(id, true)
	w.complete("pay")
	v := w.verdict(id)
	if v.Counts != (verdict.Counts{Begun: 5, Done: 2, Told: 1, Unknown: 1}) {
		t.Errorf("%+v", v)
	}
	for _, part := range []string{
		"executed once; before that it was begun once, done once, by somebody's word, and purged at ",
		"; before that it was begun twice, done once and maybe more often, and purged at ",
		"; before that it was begun once, never completed, and purged at ",
	} {
		if !strings.Contains(v.Says, part) {
			t.Errorf("%q is not in %s", part, v.Says)
		}
	}
}

// Without evidence about the call nobody knows what was before, and the sentence says so.
func TestWithoutEvidence(t *testing.T) {
	w := newWorld(t)
	id := w.complete("quiet")
	w.purge(id, false)
	w.complete("quiet")
	if v := w.verdict(id); v.Known || v.Says != "executed once; whether an earlier record of it was purged is not known here" {
		t.Errorf("%+v", v)
	}
	rec, err := w.engine.Lookup(t.Context(), id)
	f := verdict.Facts{Record: &rec}
	if err := errors.Join(err, Earlier(t.Context(), nil, &f)); err != nil || f.Known {
		t.Error(f.Known, err)
	}
}

// A record that is older than a restore doesn't say all that happened.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	id := w.complete("pay")
	if _, err := w.engine.Internal().NewEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := w.verdict(id); !strings.HasPrefix(v.Says, "executed once; the store was restored from a backup at ") {
		t.Error(v.Says)
	}
}
