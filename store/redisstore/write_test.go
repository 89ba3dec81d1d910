package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// large is a record of several KiB.
func large(key string, created store.Instant) semel.Record {
	return semel.Record{
		ID: semel.ID{Operation: "o", Key: key}, Revision: newRevision(), State: semel.Completed, Fence: 1,
		CreatedAt: created, NextAt: created.Add(testWindow),
		Result: semel.Result{Data: []byte(strings.Repeat(key+" ", 1<<10))},
	}
}

// small is a record without a result.
func small(key string) semel.Record {
	rec := large(key, 1e18)
	rec.Result.Data = nil
	return rec
}

// keyOf is the key of a record.
func keyOf(s *Store, rec semel.Record) string {
	_, key := s.keys.find(rec.ID)
	return key
}

// sendAll sends writes as one batch.
func sendAll(t *testing.T, s *Store, writes ...store.Write) []*write {
	t.Helper()
	batch := make([]*write, len(writes))
	for i := range writes {
		var err error
		if batch[i], err = s.newWrite(&writes[i]); err != nil {
			t.Fatal(err)
		}
	}
	s.send(t.Context(), batch)
	return batch
}

// Each write of a run is made or answered by itself, also where the server has to be told
// the script.
func TestEachWriteOfARun(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	const now = store.Instant(1e18)
	there, other, first := large("there", now), large("other", now), large("first", now)
	for _, rec := range []semel.Record{there, other, first} {
		mustApply(t, s, rec, store.Revision{})
	}
	foreign := large("foreign", now)
	srv.Do("LPUSH", keyOf(s, foreign), "not a record")

	next := func(rec semel.Record) semel.Record {
		rec.Revision = newRevision()
		rec.Result.Data = append([]byte("next "), rec.Result.Data...)
		return rec
	}
	updated, early, small := next(first), large("early", now-1), large("small", now)
	small.Result.Data = nil
	srv.Do("SCRIPT", "FLUSH")
	batch := sendAll(t, s,
		store.Write{Record: new(large("new", now))},
		store.Write{Record: new(next(there))}, // a claim of what is there
		store.Write{Record: new(updated), Expect: first.Revision},
		store.Write{Record: new(next(other)), Expect: newRevision()},        // was changed since
		store.Write{Record: new(large("gone", now)), Expect: newRevision()}, // isn't there
		store.Write{Record: new(foreign)},                                   // can't be made
		store.Write{Record: new(early)},
		store.Write{Record: new(next(early)), Expect: early.Revision}, // of the same batch
		store.Write{Record: new(small)},
		store.Write{Record: new(large("last", now))},
	)
	for i, want := range []string{"made", "there", "made", "other", "nil", "WRONGTYPE", "made", "made", "made", "made"} {
		w := batch[i]
		got := "made"
		if !w.made {
			switch {
			case errors.Is(w.err, store.ErrNotApplied):
				_, got, _ = strings.Cut(w.err.Error(), ": ")
				got, _, _ = strings.Cut(got, " ")
			case w.current == nil:
				got = "nil"
			default:
				got = w.current.ID.Key
			}
		}
		if got != want || (w.err != nil) != (want == "WRONGTYPE") {
			t.Errorf("write %d: %s, %v, want %s", i, got, w.err, want)
		}
	}
	for _, want := range []semel.Record{updated, there, other, small} {
		if rec, err := s.Get(t.Context(), want.ID); err != nil || rec.Revision != want.Revision || string(rec.Result.Data) != string(want.Result.Data) {
			t.Errorf("%s has the revision %v, %v", want.ID, rec.Revision, err)
		}
	}
	if recs := wantDue(t, s, now.Add(2*testWindow), 7); len(recs) > 0 && recs[0].ID != early.ID {
		t.Errorf("the first that is due is %s", recs[0].ID)
	}
}

// Writes of a run are late or in time each by itself, and none of those that are late
// leaves anything.
func TestLateWritesOfARun(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	s.clock.Advance(time.Hour) // which the server knows nothing of
	now := mustNow(t, s)
	past, future := now, now.Add(time.Minute)
	brief := func(rec semel.Record) semel.Record {
		rec.Result.Data = nil
		return rec
	}
	first, second := large("first", now), brief(large("second", now))
	times := func() int {
		_, calls, _ := strings.Cut(srv.Do("INFO", "commandstats"), "cmdstat_time:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		return number(calls)
	}
	read := times()
	mustApply(t, s, first, store.Revision{})
	mustApply(t, s, second, store.Revision{})
	if n := times() - read; n != 0 {
		t.Errorf("without a deadline the time was read %d times", n)
	}
	next := func(rec semel.Record) semel.Record {
		rec.Revision = newRevision()
		return rec
	}
	read = times()
	batch := sendAll(t, s,
		store.Write{Record: new(large("late large", now)), Deadline: past},
		store.Write{Record: new(brief(large("late", now))), Deadline: past},
		store.Write{Record: new(next(first)), Expect: first.Revision, Deadline: past},
		store.Write{Record: new(next(second)), Expect: second.Revision, Deadline: past},
		store.Write{Record: new(large("large", now)), Deadline: future},
		store.Write{Record: new(next(second)), Expect: second.Revision, Deadline: future},
		store.Write{Record: new(brief(large("whenever", now)))},
		store.Write{Record: new(next(first)), Deadline: past}, // what is there is told all the same
	)
	if n := times() - read; n != 1 {
		t.Errorf("the time was read %d times", n)
	}
	for i, w := range batch {
		late, made := i < 4, i >= 4 && i < 7
		if errors.Is(w.err, store.ErrTooLate) != late || w.made != made || (w.there != "") != (i == 7) {
			t.Errorf("write %d: made %v, there %d bytes, %v", i, w.made, len(w.there), w.err)
		}
	}
	wantDue(t, s, now.Add(2*testWindow), 4)
}

// TIME has whole microseconds: a deadline between two of them is passed at the later one.
func TestADeadlineIsRoundedUp(t *testing.T) {
	for at, want := range map[store.Instant]string{1000: "1", 1001: "2", 1999: "2", 2000: "2", 0: "0", -1: "0", 1e18: "1000000000000000"} {
		if got := string(appendDeadline(nil, at)); got != want {
			t.Errorf("%d ns are %s us, want %s", at, got, want)
		}
	}
}
