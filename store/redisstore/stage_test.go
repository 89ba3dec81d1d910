package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

// large is a record whose value alone is enough to be staged.
func large(key string, created semel.Instant) semel.Record {
	return semel.Record{
		ID: semel.ID{Operation: "o", Key: key}, Revision: newRevision(), State: semel.Completed, Fence: 1,
		CreatedAt: created, NextAt: created.Add(testWindow),
		Result: semel.Result{Data: []byte(strings.Repeat(key+" ", stageFrom))},
	}
}

// small is a record whose value goes through the script.
func small(key string) semel.Record {
	rec := large(key, 1e18)
	rec.Result.Data = nil
	return rec
}

// keyOf is the key of a record.
func keyOf(s *Store, rec semel.Record) string {
	digest := rec.ID.Digest()
	_, key := s.keys.find(&digest)
	return key
}

// sendAll sends writes as one batch.
func sendAll(t *testing.T, s *Store, writes ...semel.Write) []*write {
	t.Helper()
	batch := make([]*write, len(writes))
	for i, w := range writes {
		digest := w.Record.ID.Digest()
		batch[i] = newWrite()
		if err := batch[i].fill(s, &w, &digest); err != nil {
			t.Fatal(err)
		}
	}
	s.send(batch)
	return batch
}

func wantNothingStaged(t *testing.T, srv *redistest.Server, s *Store) {
	t.Helper()
	if left := srv.Do("KEYS", s.keys.staged+"*"); strings.Contains(left, s.keys.staged) {
		t.Errorf("values are left on their way: %q", left)
	}
}

// Each write of a transaction is made or answered by itself, and no value stays behind,
// also where the server has to be told the script.
func TestStagedWrites(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	const now = semel.Instant(1e18)
	there, other, first := large("there", now), large("other", now), large("first", now)
	for _, rec := range []semel.Record{there, other, first} {
		mustApply(t, s, rec, semel.Revision{})
		wantNothingStaged(t, srv, s)
	}
	foreign := large("foreign", now)
	digest := foreign.ID.Digest()
	_, key := s.keys.find(&digest)
	srv.Do("LPUSH", key, "not a record")

	next := func(rec semel.Record) semel.Record {
		rec.Revision = newRevision()
		rec.Result.Data = append([]byte("next "), rec.Result.Data...)
		return rec
	}
	updated, early, small := next(first), large("early", now-1), large("small", now)
	small.Result.Data = nil // in the arguments, among those that are staged
	srv.Do("SCRIPT", "FLUSH")
	batch := sendAll(t, s,
		semel.Write{Record: large("new", now)},
		semel.Write{Record: next(there)}, // a claim of what is there
		semel.Write{Record: updated, Expect: first.Revision},
		semel.Write{Record: next(other), Expect: newRevision()},        // was changed since
		semel.Write{Record: large("gone", now), Expect: newRevision()}, // isn't there
		semel.Write{Record: foreign},                                   // can't be made
		semel.Write{Record: early},
		semel.Write{Record: next(early), Expect: early.Revision}, // of the same batch
		semel.Write{Record: small},
		semel.Write{Record: large("last", now)},
	)
	for i, want := range []string{"made", "there", "made", "other", "nil", "WRONGTYPE", "made", "made", "made", "made"} {
		w := batch[i]
		got := "made"
		if !w.made {
			switch {
			case errors.Is(w.err, semel.ErrNotApplied):
				_, got, _ = strings.Cut(w.err.Error(), ": ")
				got, _, _ = strings.Cut(got, " ")
			case w.there == "":
				got = "nil"
			default:
				rec, err := s.decode(w.client, map[string]semel.ID{"there": there.ID, "other": other.ID}[want], []byte(w.there))
				got = rec.ID.Key
				if err != nil {
					t.Errorf("write %d: %v", i, err)
				}
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
	wantNothingStaged(t, srv, s)
	if recs := wantDue(t, s, now.Add(2*testWindow), 7); len(recs) > 0 && recs[0].ID != early.ID {
		t.Errorf("the first that is due is %s", recs[0].ID)
	}
}

// What a server refuses was not made, no part of it, and says why.
func TestATransactionThatIsRefused(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	const now = semel.Instant(1e18)
	srv.Do("CONFIG", "SET", "maxmemory", "1")
	for _, n := range []int{1, 3} {
		var writes []semel.Write
		for i := range n {
			writes = append(writes, semel.Write{Record: large(fmt.Sprint(n, i), now)})
		}
		for i, w := range sendAll(t, s, writes...) {
			if w.made || !errors.Is(w.err, semel.ErrNotApplied) || !strings.Contains(w.err.Error(), ": OOM ") {
				t.Errorf("write %d of %d: made %v, %v", i, n, w.made, w.err)
			}
			if _, err := s.Get(t.Context(), writes[i].Record.ID); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("record %d of %d: %v", i, n, err)
			}
		}
	}
	wantNothingStaged(t, srv, s)
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	mustApply(t, s, large("later", now), semel.Revision{})
}

// Names that a transaction may still use, because its answer was lost, are not used again.
func TestNamesOfAnUnansweredTransactionAreGivenUp(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	const now = semel.Instant(1e18)
	mustApply(t, s, large("answered", now), semel.Revision{})
	if len(s.stages.free) != 1 || s.stages.made != 1 {
		t.Fatalf("%d sets of names of %d are free", len(s.stages.free), s.stages.made)
	}
	srv.Kill()
	if batch := sendAll(t, s, semel.Write{Record: large("lost", now)}); batch[0].err == nil {
		t.Error("a server that is gone has answered")
	}
	if len(s.stages.free) != 0 {
		t.Error("the names are free again")
	}
}

// A value that is gone from where it was set, because somebody else has deleted it, is the
// end of its own write: the others are made, and every claim among them is found.
func TestAStagedValueThatIsGone(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	now := s.clock.now()
	before, kept := large("before", now), large("kept", now)
	mustApply(t, s, before, semel.Revision{})
	mustApply(t, s, kept, semel.Revision{})
	next := func(rec semel.Record) semel.Record {
		rec.Revision = newRevision()
		return rec
	}
	short := large("short", now)
	short.Result.Data = nil
	all := []semel.Write{
		{Record: short},
		{Record: large("gone", now)},
		{Record: next(before), Expect: before.Revision}, // gone too
		{Record: large("there", now)},
		{Record: next(kept), Expect: kept.Revision},
		{Record: large("last", now)},
	}
	batch := make([]*write, len(all))
	for i := range all {
		digest := all[i].Record.ID.Digest()
		batch[i] = newWrite()
		if err := batch[i].fill(s, &all[i], &digest); err != nil {
			t.Fatal(err)
		}
	}
	st := s.stages.take()
	if err := st.fill(batch, true); err != nil {
		t.Fatal(err)
	}
	for n, name := range st.names[:st.staged] {
		if n > 1 {
			srv.Do("SET", name, st.values[2*n+1])
		}
	}
	st.staged = 0 // it is all set, as far as it is
	msg, err := st.eval(t.Context(), s.link.client(), scriptWrite.byText, "token")
	if err != nil {
		t.Fatalf("the run has ended with %v", err)
	}
	answers, err := msg.ToAny()
	settle(batch, "token", answers.([]any), err)
	for i, w := range batch {
		if gone := i == 1 || i == 2; w.made == gone || errors.Is(w.err, semel.ErrNotApplied) != gone {
			t.Errorf("write %d: made %v, %v", i, w.made, w.err)
		}
	}
	if rec, err := s.Get(t.Context(), before.ID); err != nil || rec.Revision != before.Revision {
		t.Errorf("the record that was to be updated is %v, %v", rec.Revision, err)
	}
	wantDue(t, s, now.Add(testWindow), 5)
}

// Writes of a run are late or in time each by itself, with values in the arguments or
// beside them, and none of those that are late leaves anything.
func TestLateWritesOfARun(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	s.Advance(time.Hour) // which the server knows nothing of
	now := s.clock.now()
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
	mustApply(t, s, first, semel.Revision{})
	mustApply(t, s, second, semel.Revision{})
	if n := times() - read; n != 0 {
		t.Errorf("without a deadline the time was read %d times", n)
	}
	next := func(rec semel.Record) semel.Record {
		rec.Revision = newRevision()
		return rec
	}
	read = times()
	batch := sendAll(t, s,
		semel.Write{Record: large("late large", now), Deadline: past},
		semel.Write{Record: brief(large("late", now)), Deadline: past},
		semel.Write{Record: next(first), Expect: first.Revision, Deadline: past},
		semel.Write{Record: next(second), Expect: second.Revision, Deadline: past},
		semel.Write{Record: large("large", now), Deadline: future},
		semel.Write{Record: next(second), Expect: second.Revision, Deadline: future},
		semel.Write{Record: brief(large("whenever", now))},
		semel.Write{Record: next(first), Deadline: past}, // what is there is told all the same
	)
	if n := times() - read; n != 1 {
		t.Errorf("the time was read %d times", n)
	}
	for i, w := range batch {
		late, made := i < 4, i >= 4 && i < 7
		if errors.Is(w.err, semel.ErrTooLate) != late || w.made != made || (w.there != "") != (i == 7) {
			t.Errorf("write %d: made %v, there %d bytes, %v", i, w.made, len(w.there), w.err)
		}
	}
	wantNothingStaged(t, srv, s)
	wantDue(t, s, now.Add(2*testWindow), 4)
}

// TIME has whole microseconds: a deadline between two of them is passed at the later one.
func TestADeadlineIsRoundedUp(t *testing.T) {
	for at, want := range map[semel.Instant]string{1000: "1", 1001: "2", 1999: "2", 2000: "2", 0: "0", -1: "0", 1e18: "1000000000000000"} {
		if got := string(appendDeadline(nil, at)); got != want {
			t.Errorf("%d ns are %s us, want %s", at, got, want)
		}
	}
}
