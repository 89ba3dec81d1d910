package storetest

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
)

const (
	ruleApply    = "Apply writes w.Record if the stored revision equals w.Expect (zero: no record). It returns the record that is stored afterwards: w.Record when applied, the unchanged stored one otherwise, and the zero Record when w.Expect names a record that is gone."
	ruleRetry    = "An error means that the result is unknown. The engine resolves it by applying the same write again and looking whether its own revision is stored."
	ruleDeadline = "At its Deadline or later, a write whose Expect is stored is refused with ErrTooLate."
	ruleLinear   = "Operations on one identity are linearizable."
)

var applyCases = []testCase{
	{
		name: "a record is created only where none is",
		why:  ruleApply,
		run: func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-ID.1", "CORE-CONC.1")
			first := put(t, env.Store, claimed(key("k"), 1), semel.Revision{})
			stored(t, env.Store, first.ID, first)
			refused(t, env.Store, semel.Write{Record: claimed(key("k"), 2)}, first)
		},
	},
	{
		name: "compare-and-set writes over the expected revision and over no other",
		why:  ruleApply,
		run: func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-CONC.1")
			v1 := put(t, env.Store, claimed(key("k"), 1), semel.Revision{})
			v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.Attempt = 2 }), v1.Revision)
			stored(t, env.Store, v1.ID, v2)
			v3 := next(v2, func(r *semel.Record) { r.Attempt = 3 })
			for name, expect := range map[string]semel.Revision{
				"an older revision": v1.Revision, "a foreign revision": fresh(), "its own revision": v3.Revision, "no record": {},
			} {
				t.Logf("expecting %s", name)
				refused(t, env.Store, semel.Write{Record: v3, Expect: expect}, v2)
			}
			put(t, env.Store, v3, v2.Revision)
		},
	},
	{
		name: "a write that expects a record where none is gets the zero record and writes nothing",
		why:  ruleApply,
		run: func(t *testing.T, env Env) {
			refused(t, env.Store, semel.Write{Record: claimed(key("k"), 1), Expect: fresh()}, semel.Record{})
			put(t, env.Store, claimed(key("k"), 2), semel.Revision{})
		},
	},
	{
		name: "the same write sent again changes nothing and shows its own revision",
		why:  ruleRetry,
		run: func(t *testing.T, env Env) {
			v1 := put(t, env.Store, claimed(key("k"), 1), semel.Revision{})
			refused(t, env.Store, semel.Write{Record: v1}, v1)
			v2 := put(t, env.Store, next(v1, func(r *semel.Record) { r.State = semel.Completed }), v1.Revision)
			refused(t, env.Store, semel.Write{Record: v2, Expect: v1.Revision}, v2)
			// The creating write arrives once more, long overtaken.
			refused(t, env.Store, semel.Write{Record: v1}, v2)
		},
	},
	{
		name: "a write that arrives after its deadline is refused for good, and one that is stored already is found",
		why:  ruleDeadline,
		run: func(t *testing.T, env Env) {
			now, err := env.Store.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tooLate := func(w semel.Write) {
				t.Helper()
				cur, applied, err := env.Store.Apply(t.Context(), w)
				if !errors.Is(err, semel.ErrTooLate) || !errors.Is(err, semel.ErrNotApplied) || applied {
					t.Fatalf("a late write got %v, %v, %v", cur.Revision, applied, err)
				}
			}
			deadline := now.Add(time.Hour)
			claim := claimed(key("k"), 1)
			inTime := semel.Write{Record: claim, Deadline: deadline}
			if _, applied, err := env.Store.Apply(t.Context(), inTime); err != nil || !applied {
				t.Fatalf("a write in time: applied %v, %v", applied, err)
			}
			late := semel.Write{Record: claimed(key("late"), 1), Deadline: deadline}
			change := next(claim, func(r *semel.Record) { r.Attempt = 2 })
			env.Advance(time.Hour)
			tooLate(late)
			stored(t, env.Store, late.Record.ID, semel.Record{})
			tooLate(semel.Write{Record: change, Expect: claim.Revision, Deadline: deadline})
			stored(t, env.Store, claim.ID, claim)
			// Sent again: its own revision is there.
			refused(t, env.Store, inTime, claim)
			// What stands in the way is told, late or not.
			refused(t, env.Store, semel.Write{Record: claimed(key("k"), 3), Deadline: deadline}, claim)
			refused(t, env.Store, semel.Write{Record: next(late.Record, func(*semel.Record) {}), Expect: fresh(), Deadline: deadline}, semel.Record{})
			put(t, env.Store, change, claim.Revision)
			put(t, env.Store, late.Record, semel.Revision{})
		},
	},
	{
		name: "of concurrent creators exactly one writes and all others see its record",
		why:  ruleLinear,
		run: func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-CONC.1", "CORE-CONC.2", "IDS-VIII.1")
			const creators = 64
			for round := range 10 {
				id := key("k" + strconv.Itoa(round))
				type answer struct {
					cur     semel.Record
					applied bool
					err     error
				}
				answers := make([]answer, creators)
				writes := make([]semel.Write, creators)
				start := make(chan struct{})
				var wg sync.WaitGroup
				for i := range creators {
					writes[i] = semel.Write{Record: claimed(id, int64(i+1))}
					wg.Go(func() {
						<-start
						a := &answers[i]
						a.cur, a.applied, a.err = env.Store.Apply(t.Context(), writes[i])
					})
				}
				close(start)
				wg.Wait()
				winner := slices.IndexFunc(answers, func(a answer) bool { return a.applied })
				if winner < 0 {
					t.Fatalf("none of %d creators was applied", creators)
				}
				for i, a := range answers {
					switch {
					case a.err != nil:
						t.Fatalf("Apply: %v", a.err)
					case a.applied && i != winner:
						t.Fatalf("creators %d and %d were both applied", winner, i)
					}
					same(t, "what a creator was shown", a.cur, writes[winner].Record)
				}
				stored(t, env.Store, id, writes[winner].Record)
			}
		},
	},
	{
		name: "no update is lost when many writers change one record at once",
		why:  ruleLinear,
		run: func(t *testing.T, env Env) {
			clause.Proves(t, "CORE-CONC.1", "CORE-CONC.2")
			const writers, rounds = 8, 50
			cur := put(t, env.Store, claimed(key("counter"), 1), semel.Revision{})
			for range rounds {
				// All follow the same version, so one of them may.
				var wrote atomic.Pointer[semel.Record]
				var applied atomic.Int64
				start := make(chan struct{})
				var wg sync.WaitGroup
				for range writers {
					w := semel.Write{Record: next(cur, func(r *semel.Record) { r.Attempt++ }), Expect: cur.Revision}
					wg.Go(func() {
						<-start
						_, ok, err := env.Store.Apply(t.Context(), w)
						if err != nil {
							t.Errorf("Apply: %v", err)
						}
						if ok {
							applied.Add(1)
							wrote.Store(&w.Record)
						}
					})
				}
				close(start)
				wg.Wait()
				if n := applied.Load(); n != 1 {
					t.Fatalf("of %d writes that follow one version %d were applied", writers, n)
				}
				cur = *wrote.Load()
				stored(t, env.Store, cur.ID, cur)
			}
			if cur.Attempt != 1+rounds {
				t.Fatalf("%d of %d acknowledged updates are there", cur.Attempt-1, rounds)
			}
		},
	},
	{
		name: "Get of an absent record is ErrNotFound",
		why:  "Get returns the record, expired or not, or ErrNotFound.",
		run: func(t *testing.T, env Env) {
			stored(t, env.Store, key("absent"), semel.Record{})
			put(t, env.Store, claimed(key("present"), 1), semel.Revision{})
			stored(t, env.Store, key("absent"), semel.Record{})
		},
	},
	{
		name: "an expired record is still returned",
		why:  "Get returns the record, expired or not, or ErrNotFound.",
		run: func(t *testing.T, env Env) {
			now, err := env.Store.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rec := put(t, env.Store, next(claimed(key("k"), 1), func(r *semel.Record) {
				r.State, r.Disposition = semel.Completed, semel.DispositionCompleted
				r.ExpiresAt = now.Add(time.Millisecond)
				r.NextAt = r.ExpiresAt
			}), semel.Revision{})
			env.Advance(time.Second)
			stored(t, env.Store, rec.ID, rec)
		},
	},
}
