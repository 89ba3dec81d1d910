package redisstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// A write that can't be made, because something else has its key, keeps none of those
// that share its run from being made.
func TestOneThatCannotBeMade(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	recs := manyClaims()
	srv.Do("LPUSH", keyOf(s, recs[2]), "not a record")
	applied, errs := applyAll(t, s, recs)
	for i, err := range errs {
		if bad := i == 2; (err != nil) != bad || applied[i] == bad {
			t.Errorf("write %d: applied %v, %v", i, applied[i], err)
		}
		if rec, err := s.Get(t.Context(), recs[i].ID); i != 2 && (err != nil || rec.Revision != recs[i].Revision) {
			t.Errorf("record %d: %v, %v", i, rec.Revision, err)
		}
	}
}

// Without an entry nobody would find a record that its holder has left.
func TestNoRecordIsStoredWithoutItsEntries(t *testing.T) {
	srv := redistest.Start(t, "")
	for _, index := range []func(*shard) string{byDue(0).key, byCreation.key} {
		s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
		there := manyClaims()[0]
		there.ID.Key = "there"
		mustApply(t, s, there, store.Revision{})
		for i := range s.keys.shards {
			key := index(&s.keys.shards[i])
			srv.Do("DEL", key)
			srv.Do("SET", key, "not an index")
		}
		recs := append(manyClaims(), there)
		applied, errs := applyAll(t, s, recs)
		for i, err := range errs {
			if applied[i] || (err == nil) != (i == len(recs)-1) || err != nil && !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("write %d: applied %v, %v", i, applied[i], err)
			}
			if rec, err := s.Get(t.Context(), recs[i].ID); i < len(recs)-1 && !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("record %d: %v, %v", i, rec.Revision, err)
			}
		}
		done := there
		done.Revision, done.State = newRevision(), semel.Completed
		mustApply(t, s, done, there.Revision)
		sooner := done
		sooner.Revision, sooner.NextAt = newRevision(), done.NextAt-store.Instant(time.Hour)
		_, applied1, err := s.Apply(t.Context(), store.Write{Record: new(sooner), Expect: done.Revision})
		if needs := index(&shard{due: "due"}) == "due"; applied1 == needs || errors.Is(err, store.ErrNotApplied) != needs {
			t.Errorf("an update that is due earlier: applied %v, %v", applied1, err)
		}
	}
}

func manyClaims() []semel.Record {
	recs := make([]semel.Record, workers+12)
	for i := range recs {
		recs[i] = semel.Record{ID: semel.ID{Operation: "op", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: 1e18, NextAt: 2e18, Fence: 1}
	}
	return recs
}

// applyAll claims all at once.
func applyAll(t *testing.T, s *Store, recs []semel.Record) (applied []bool, errs []error) {
	var callers sync.WaitGroup
	errs, applied = make([]error, len(recs)), make([]bool, len(recs))
	for i := range recs {
		callers.Go(func() { _, applied[i], errs[i] = s.Apply(t.Context(), store.Write{Record: new(recs[i])}) })
	}
	callers.Wait()
	return applied, errs
}
