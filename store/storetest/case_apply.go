package storetest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

const (
	ruleApply    = "Apply writes w.Record if the stored revision equals w.Expect (zero: no record). It returns the record that is stored afterwards: w.Record when applied, the unchanged stored one otherwise, and the zero Record when w.Expect names a record that is gone."
	ruleRetry    = "An error means that the result is unknown. The engine resolves it by applying the same write again and looking whether its own revision is stored."
	ruleDeadline = "At its Deadline or later, a write whose Expect is stored is refused with ErrTooLate."
	ruleLinear   = "Operations on one identity are linearizable."
)

// race sends writes over one version concurrently, and returns the only one that was applied.
// Every writer must get its record back.
func race(t *testing.T, s semel.Store, writes []store.Write) (won store.Write) {
	t.Helper()
	shown := make([]*semel.Record, len(writes))
	start := make(chan struct{})
	var winners atomic.Int64
	var wg sync.WaitGroup
	for i, w := range writes {
		wg.Go(func() {
			<-start
			cur, applied, err := s.Apply(t.Context(), w)
			if err != nil {
				t.Errorf("Apply: %v", err)
			}
			if shown[i] = cur; applied && winners.Add(1) == 1 {
				won = w
			}
		})
	}
	close(start)
	wg.Wait()
	if n := winners.Load(); n != 1 || t.Failed() {
		t.Fatalf("of %d writes over one version %d were applied", len(writes), n)
	}
	for _, cur := range shown {
		same(t, "what a writer was shown", cur, *won.Record)
	}
	stored(t, s, won.Record.ID, *won.Record)
	return won
}

var applyCases = []testCase{
	{"a record is created only where none is", ruleApply, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-ID.1", "CORE-CONC.1")
		first := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		stored(t, env.Store, first.ID, first)
		refused(t, env.Store, store.Write{Record: new(claimed(key("k"), 2))}, first)
	}},
	{"compare-and-set writes over the expected revision and over no other", ruleApply, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-CONC.1")
		v1 := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.Attempt = 2 }), v1.Revision)
		stored(t, env.Store, v1.ID, v2)
		v3 := next(v2, func(r *semel.Record) { r.Attempt = 3 })
		for name, expect := range map[string]store.Revision{
			"an older revision": v1.Revision, "a foreign revision": fresh(), "its own revision": v3.Revision, "no record": {},
		} {
			t.Logf("expecting %s", name)
			refused(t, env.Store, store.Write{Record: new(v3), Expect: expect}, v2)
		}
		put(t, env.Store, v3, v2.Revision)
	}},
	{"a write that expects a record where none is gets the zero record and writes nothing", ruleApply, func(t *testing.T, env Env) {
		refused(t, env.Store, store.Write{Record: new(claimed(key("k"), 1)), Expect: fresh()}, semel.Record{})
		put(t, env.Store, claimed(key("k"), 2), store.Revision{})
	}},
	{"the same write sent again changes nothing and shows its own revision", ruleRetry, func(t *testing.T, env Env) {
		v1 := put(t, env.Store, claimed(key("k"), 1), store.Revision{})
		refused(t, env.Store, store.Write{Record: new(v1)}, v1)
		v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.State = semel.Completed }), v1.Revision)
		refused(t, env.Store, store.Write{Record: new(v2), Expect: v1.Revision}, v2)
		// The creating write arrives again, long after it was replaced.
		refused(t, env.Store, store.Write{Record: new(v1)}, v2)
	}},
	{"a write that arrives after its deadline is refused for good, and one that is stored already is found", ruleDeadline, func(t *testing.T, env Env) {
		tooLate := func(w store.Write) {
			t.Helper()
			cur, applied, err := env.Store.Apply(t.Context(), w)
			if !errors.Is(err, store.ErrTooLate) || !errors.Is(err, store.ErrNotApplied) || applied {
				t.Fatalf("a late write got %v, %v, %v", revisionOf(cur), applied, err)
			}
		}
		deadline := now(t, env.Store).Add(time.Hour)
		claim := claimed(key("k"), 1)
		inTime := store.Write{Record: new(claim), Deadline: deadline}
		if _, applied, err := env.Store.Apply(t.Context(), inTime); err != nil || !applied {
			t.Fatalf("a write in time: applied %v, %v", applied, err)
		}
		late := store.Write{Record: new(claimed(key("late"), 1)), Deadline: deadline}
		change := next(claim, func(r *semel.Record) { r.Attempt = 2 })
		env.Advance(time.Hour)
		tooLate(late)
		stored(t, env.Store, late.Record.ID, semel.Record{})
		tooLate(store.Write{Record: new(change), Expect: claim.Revision, Deadline: deadline})
		stored(t, env.Store, claim.ID, claim)
		// Sent again: its own revision is stored.
		refused(t, env.Store, inTime, claim)
		// A write that meets another record gets that record, late or not.
		refused(t, env.Store, store.Write{Record: new(claimed(key("k"), 3)), Deadline: deadline}, claim)
		refused(t, env.Store, store.Write{Record: new(next(*late.Record, func(*semel.Record) {})), Expect: fresh(), Deadline: deadline}, semel.Record{})
		put(t, env.Store, change, claim.Revision)
		put(t, env.Store, *late.Record, store.Revision{})
	}},
	{"of concurrent creators exactly one writes and all others see its record", ruleLinear, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-CONC.1", "CORE-CONC.2", "IDS-VIII.1")
		for round := range 10 {
			writes := make([]store.Write, 64)
			for i := range writes {
				writes[i].Record = new(claimed(key(strconv.Itoa(round)), int64(i+1)))
			}
			race(t, env.Store, writes)
		}
	}},
	{"no update is lost when many writers change one record at once", ruleLinear, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-CONC.1", "CORE-CONC.2")
		const rounds = 50
		cur := put(t, env.Store, claimed(key("counter"), 1), store.Revision{})
		for range rounds {
			writes := make([]store.Write, 8)
			for i := range writes {
				writes[i] = store.Write{Record: new(next(cur, func(r *semel.Record) { r.Attempt++ })), Expect: cur.Revision}
			}
			cur = *race(t, env.Store, writes).Record
		}
		if cur.Attempt != 1+rounds {
			t.Fatalf("%d of %d acknowledged updates are there", cur.Attempt-1, rounds)
		}
	}},
	{"Get of an absent record is ErrNotFound", "Get returns the record, expired or not, or ErrNotFound.", func(t *testing.T, env Env) {
		stored(t, env.Store, key("absent"), semel.Record{})
		put(t, env.Store, claimed(key("present"), 1), store.Revision{})
		stored(t, env.Store, key("absent"), semel.Record{})
	}},
	{"an expired record is still returned", "Get returns the record, expired or not, or ErrNotFound.", func(t *testing.T, env Env) {
		rec := put(t, env.Store, next(claimed(key("k"), 1), func(r *semel.Record) {
			r.State, r.Disposition = semel.Completed, semel.DispositionCompleted
			r.ExpiresAt = now(t, env.Store).Add(time.Millisecond)
			r.NextAt = r.ExpiresAt
		}), store.Revision{})
		env.Advance(time.Second)
		stored(t, env.Store, rec.ID, rec)
	}},
}
