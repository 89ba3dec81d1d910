package pgstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// TestDeadlines has writes that are late, in every form in which writes are sent.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		server := pgtest.Shared(t)
		w := newWire(t, server)
		o := Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 20 * time.Second, Pooler: pooled}
		s := mustOpen(t, w.url(server.Database(t)), &o)
		t.Cleanup(func() { mustClose(t, s) })
		for _, evidence := range [][]store.Entry{nil, leaves("e")} {
			for _, n := range []int{1, 5, 20} {
				t.Run(fmt.Sprintf("pooler %v, %d entries, batches of %d", pooled, len(evidence), n), func(t *testing.T) {
					testDeadlines(t, w, s, evidence, n)
				})
			}
		}
	}
}

func testDeadlines(t *testing.T, w *wire, s *Store, evidence []store.Entry, n int) {
	before := len(readLog(t, s))
	now, err := s.Now(t.Context())
	noError(t, err)
	early, soon := now.Add(time.Hour), now.Add(time.Minute)
	// Each kind of write n times, and what is to come of it once soon is over.
	const (
		applied = "applied"
		refused = "refused"
		late    = "late"
	)
	var writes []store.Write
	want := map[string]string{}
	add := func(kind string, i int, outcome string, deadline store.Instant, there, expect byte) {
		key := fmt.Sprint(kind, i, "of", n, len(evidence))
		rec := numbered(key, 2)
		rec.Result.Data = []byte("result")
		wr := store.Write{Record: new(rec), Evidence: evidence, Deadline: deadline}
		if there != 0 {
			put(t, s, numbered(key, there), store.Revision{})
		}
		if expect != 0 {
			wr.Expect = numbered(key, expect).Revision
		}
		writes = append(writes, wr)
		want[key] = outcome
	}
	for i := range n {
		add("new, whenever", i, applied, 0, 0, 0)
		add("new, early", i, applied, early, 0, 0)
		add("new, late", i, late, soon, 0, 0)
		add("there, late", i, refused, soon, 1, 0)
		add("its own, late", i, refused, soon, 2, 0)
		add("change, whenever", i, applied, 0, 1, 1)
		add("change, early", i, applied, early, 1, 1)
		add("change, late", i, late, soon, 1, 1)
		add("change of another, late", i, refused, soon, 1, 3)
		add("change of nothing, late", i, refused, soon, 0, 1)
	}
	s.clock.Advance(time.Minute) // now soon is over, to the nanosecond or a little longer
	results := []told{}
	if n == 1 {
		for _, wr := range writes {
			cur, ok, err := s.Apply(t.Context(), wr)
			results = append(results, told{wr, cur, ok, err})
		}
	} else {
		results = together(t, w, s, nil, writes...)
	}
	noted := 0
	for _, r := range results {
		key := r.write.Record.ID.Key
		got := refused
		switch {
		case errors.Is(r.err, store.ErrTooLate) && errors.Is(r.err, store.ErrNotApplied):
			got = late
		case r.err != nil:
			t.Errorf("%s: %v", key, r.err)
		case r.applied:
			got = applied
			noted += len(evidence)
		}
		if got != want[key] {
			t.Errorf("%s: %s, want %s", key, got, want[key])
		}
		if rec, err := s.Get(t.Context(), r.write.Record.ID); (revisionOf(rec) == r.write.Record.Revision) != (got == applied || r.err == nil && revisionOf(r.current) == r.write.Record.Revision) {
			t.Errorf("%s: %s, and %v is stored, %v", key, got, rec.Revision, err)
		}
	}
	if texts := readLog(t, s); len(texts)-before != noted {
		t.Errorf("the evidence log has %d entries more, want %d", len(texts)-before, noted)
	}
}

// TestDeadlinesInATransaction has them in a transaction of the application.
func TestDeadlinesInATransaction(t *testing.T) {
	owned(t, func(t *testing.T, e *joinEnv, begin func() ownedTx) {
		for _, evidence := range [][]store.Entry{nil, leaves("e")} {
			t.Run(fmt.Sprintf("with %d entries", len(evidence)), func(t *testing.T) {
				e.t = t
				now, err := e.store.Now(t.Context())
				noError(t, err)
				key := func(kind string) string { return fmt.Sprint(kind, len(evidence)) }
				put(t, e.store, numbered(key("there"), 1), store.Revision{})
				for kind, c := range map[string]struct {
					expect   byte
					deadline store.Instant
					applied  bool
					late     bool
				}{
					"new, whenever":   {0, 0, true, false},
					"new, early":      {0, now.Add(time.Hour), true, false},
					"new, late":       {0, now, false, true},
					"there":           {0, now, false, false},
					"there, whenever": {0, 0, false, false},
					"there, changed":  {1, now.Add(time.Hour), true, false},
					"there, too late": {1, now, false, true},
					"there, other":    {3, now, false, false},
					"gone":            {1, now, false, false},
				} {
					id := key(kind)
					if kind[:min(5, len(kind))] == "there" {
						id = key("there")
					}
					w := store.Write{Record: new(numbered(id, 2)), Evidence: evidence, Deadline: c.deadline}
					if c.expect != 0 {
						w.Expect = numbered("", c.expect).Revision
					}
					tx := begin()
					j := &joined{store: e.store, link: tx.link}
					if lock, err := j.Lock(t.Context(), w.Record.ID, ""); err != nil || lock != store.TxLocked {
						t.Fatal(lock, err)
					}
					applied, err := j.Apply(t.Context(), w)
					if applied != c.applied || errors.Is(err, store.ErrTooLate) != c.late || err != nil && !c.late {
						t.Errorf("%s: applied %v, %v", kind, applied, err)
					}
					noError(t, tx.rollback())
				}
			})
		}
	})
}

// TestTooLateIsSaidOnlyWhereItIsCertain sends a write again after its deadline, while the
// transaction that has made it in time is still committing and nobody sees what it has made.
func TestTooLateIsSaidOnlyWhereItIsCertain(t *testing.T) {
	t.Parallel()
	now := func(s *Store) store.Instant {
		at, err := s.Now(t.Context())
		noError(t, err)
		return at
	}
	for _, kind := range []string{"a claim", "a change"} {
		t.Run(kind+" whose transaction goes on for a while", func(t *testing.T) {
			s, database := open(t, Options{})
			key := kind
			w := store.Write{Record: new(numbered(key, 2))}
			if kind == "a change" {
				w.Expect = put(t, s, numbered(key, 1), store.Revision{}).Revision
			}
			for _, commits := range []bool{false, true} {
				tx, err := pgtest.Shared(t).Conn(t, database).Begin(t.Context())
				noError(t, err)
				if applied, err := (&joined{store: s, link: pgxLink(tx), waits: "0"}).Apply(t.Context(), w); err != nil || !applied {
					t.Fatal(applied, err)
				}
				again := w
				again.Deadline = now(s)
				if _, applied, err := s.Apply(t.Context(), again); applied || err == nil || errors.Is(err, store.ErrNotApplied) {
					t.Errorf("while its transaction goes on: applied %v, %v", applied, err)
				}
				if !commits {
					noError(t, tx.Rollback(t.Context()))
					if _, applied, err := s.Apply(t.Context(), again); applied || !errors.Is(err, store.ErrTooLate) {
						t.Errorf("after that was rolled back: applied %v, %v", applied, err)
					}
					continue
				}
				noError(t, tx.Commit(t.Context()))
				if cur, _, err := s.Apply(t.Context(), again); err != nil || cur.Revision != w.Record.Revision {
					t.Errorf("after that was committed: %v is stored, %v", cur.Revision, err)
				}
			}
		})
	}
	t.Run("a claim whose transaction waits for a standby, and with it whoever looks", func(t *testing.T) {
		server := pgtest.Start(t, nil)
		database := server.Database(t)
		first := mustOpen(t, server.URL(database), &Options{Migrate: true})
		t.Cleanup(func() { mustClose(t, first) })
		second := mustOpen(t, server.URL(database), nil)
		t.Cleanup(func() { mustClose(t, second) })
		standbys := func(names string) {
			server.Exec(t, database, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
			server.Exec(t, database, "SELECT pg_reload_conf()")
		}
		standbys("nobody")
		server.Await(t, "SELECT current_setting('synchronous_standby_names') = 'nobody'")
		var callers sync.WaitGroup
		defer callers.Wait()
		defer standbys("") // so that nobody need wait
		waiting := func(n int) {
			server.Await(t, fmt.Sprintf("SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event = 'SyncRep'", n))
		}
		w := store.Write{Record: new(numbered("k", 1))}
		claimed := make(chan struct{})
		callers.Go(func() {
			defer close(claimed)
			_, _, _ = first.Apply(t.Context(), w)
		})
		waiting(1)
		again := w
		again.Deadline = now(second)
		told := make(chan error, 1)
		callers.Go(func() {
			cur, applied, err := second.Apply(t.Context(), again)
			if err == nil && !applied && cur.Revision != w.Record.Revision {
				err = fmt.Errorf("%v is stored", cur.Revision)
			}
			told <- err
		})
		waiting(2)
		standbys("")
		if err := <-told; errors.Is(err, store.ErrNotApplied) {
			t.Errorf("it is told %v", err)
		}
		<-claimed // until then nobody sees what it wrote, whoever the server let go first
		rec, err := first.Get(t.Context(), w.Record.ID)
		noError(t, err)
		if rec.Revision != w.Record.Revision {
			t.Errorf("%v is stored", rec.Revision)
		}
	})
}
