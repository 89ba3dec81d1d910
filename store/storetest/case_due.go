package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

const (
	ruleDue   = "Due returns up to limit records whose NextAt is set and not after until, in no promised order."
	rulePurge = "Purge deletes each record whose stored revision equals the given one and returns how many it deleted. A record that was changed since is left alone. Purging again is harmless."
	ruleWatch = "Watch returns a channel that receives at least once after the record changes, from the moment Watch has returned. It is a hint: it may also receive without cause."
)

func due(t *testing.T, s semel.DueStore, until semel.Instant, limit int) []semel.Record {
	t.Helper()
	recs, err := s.Due(t.Context(), until, limit)
	if err != nil {
		t.Fatalf("Due: %v", err)
	}
	if len(recs) > limit {
		t.Fatalf("Due returned %d records, more than the limit of %d", len(recs), limit)
	}
	return recs
}

// sameSet compares records whatever their order.
func sameSet(t *testing.T, got, want []semel.Record) {
	t.Helper()
	byID := map[semel.ID]semel.Record{}
	for _, rec := range got {
		if _, twice := byID[rec.ID]; twice {
			t.Fatalf("the record of %q is listed twice", rec.ID.Key)
		}
		byID[rec.ID] = rec
	}
	for _, rec := range want {
		found, ok := byID[rec.ID]
		if !ok {
			t.Fatalf("the record of %q is missing; %d are listed, want %d", rec.ID.Key, len(got), len(want))
		}
		same(t, "a listed record", found, rec)
		delete(byID, rec.ID)
	}
	for id, rec := range byID {
		t.Fatalf("the record of %q is listed, with NextAt %v, and should not be", id.Key, rec.NextAt)
	}
}

// at is a record that is due at a time.
func at(id semel.ID, nextAt semel.Instant) semel.Record {
	return next(claimed(id, 1), func(r *semel.Record) { r.NextAt = nextAt })
}

var dueCases = []testCase{
	{
		name:  "Due returns exactly the records whose time has come",
		why:   ruleDue,
		needs: canDue,
		run: func(t *testing.T, env Env) {
			s := env.Store.(semel.DueStore)
			sameSet(t, due(t, s, epoch, 10), nil)
			var want []semel.Record
			for i, c := range []struct {
				at   semel.Instant
				want bool
			}{
				{0, false},
				{epoch.Add(-1000 * time.Hour), true},
				{epoch.Add(-time.Nanosecond), true},
				{epoch, true},
				{epoch.Add(time.Nanosecond), false},
				{epoch.Add(time.Microsecond), false},
				{epoch.Add(time.Second), false},
				{epoch.Add(1000 * time.Hour), false},
			} {
				rec := put(t, env.Store, at(key(fmt.Sprint(i)), c.at), semel.Revision{})
				if c.want {
					want = append(want, rec)
				}
			}
			sameSet(t, due(t, s, epoch, 100), want)
			sameSet(t, due(t, s, epoch, 100), want) // asking changes nothing
			sameSet(t, due(t, s, epoch.Add(-2000*time.Hour), 100), nil)
		},
	},
	{
		name:  "Due returns whole records",
		why:   ruleDue + " " + ruleExact,
		needs: canDue,
		run: func(t *testing.T, env Env) {
			rec := put(t, env.Store, next(at(semel.ID{Tenant: "é", Operation: "o", Key: "k\n"}, epoch), func(r *semel.Record) {
				r.Held, r.Failure = "held", &semel.Failure{Code: "c"}
				r.Result.Data = []byte{}
				r.Effects = []semel.EffectRecord{{Name: "e", State: semel.EffectStarted, StartedAt: epoch}}
				r.Earlier = []semel.AttemptRecord{{Number: 1, Disposition: semel.DispositionAborted, EndedAt: epoch}}
				r.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte("payload"))
			}), semel.Revision{})
			sameSet(t, due(t, env.Store.(semel.DueStore), epoch, 10), []semel.Record{rec})
		},
	},
	{
		name:  "Due follows every change of a record",
		why:   ruleDue,
		needs: canDue,
		run: func(t *testing.T, env Env) {
			s := env.Store.(semel.DueStore)
			rec := put(t, env.Store, at(key("k"), epoch.Add(time.Hour)), semel.Revision{})
			move := func(to semel.Instant) {
				t.Helper()
				rec = put(t, env.Store, next(rec, func(r *semel.Record) { r.NextAt = to }), rec.Revision)
			}
			is := func(want ...semel.Record) {
				t.Helper()
				sameSet(t, due(t, s, epoch, 10), want)
			}
			is()
			move(epoch.Add(-time.Hour)) // earlier
			is(rec)
			move(epoch.Add(-time.Hour)) // the same time, another version
			is(rec)
			move(epoch.Add(-30 * time.Minute)) // later, still due
			is(rec)
			move(epoch.Add(time.Minute)) // later
			is()
			move(epoch.Add(-time.Hour)) // back to where it was before
			is(rec)
			move(0) // never
			is()
			move(epoch)
			is(rec)
			refused(t, env.Store, semel.Write{Record: at(key("k"), epoch.Add(time.Hour))}, rec)
			is(rec)
		},
	},
	{
		name:  "Due respects its limit and leaves nobody out for good",
		why:   ruleDue,
		needs: canDue,
		run: func(t *testing.T, env Env) {
			s := env.Store.(semel.DueStore)
			const records, limit = 100, 7
			r := rand.New(rand.NewPCG(1, 2))
			for i := range records {
				put(t, env.Store, at(key(fmt.Sprint(i)), epoch.Add(-time.Duration(r.IntN(1000))*time.Millisecond)), semel.Revision{})
			}
			seen := map[semel.ID]bool{}
			for round := 0; ; round++ {
				recs := due(t, s, epoch, limit)
				if len(recs) == 0 {
					break
				}
				if left := records - len(seen); len(recs) != min(limit, left) {
					t.Fatalf("Due returned %d records with a limit of %d while %d are due", len(recs), limit, left)
				}
				for _, rec := range recs {
					if seen[rec.ID] {
						t.Fatalf("the record of %q is listed again after it moved on", rec.ID.Key)
					}
					seen[rec.ID] = true
					put(t, env.Store, next(rec, func(r *semel.Record) { r.NextAt = epoch.Add(time.Hour) }), rec.Revision)
				}
			}
			if len(seen) != records {
				t.Fatalf("%d of %d records came up", len(seen), records)
			}
		},
	},
}
