package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// open opens a store in a database of its own and returns that, too.
func open(t *testing.T, o Options) (*Store, string) {
	t.Helper()
	server := pgtest.Shared(t)
	database := server.Database(t)
	o.Migrate = true
	s := mustOpen(t, server.URL(database), &o)
	t.Cleanup(func() { mustClose(t, s) })
	return s, database
}

// numbered is a record with a revision of its own.
func numbered(key string, n byte) semel.Record {
	rec := testRecord(key)
	rec.Revision = store.Revision{n, 7}
	return rec
}

// put makes a write that must be applied.
func put(t *testing.T, s *Store, rec semel.Record, expect store.Revision) semel.Record {
	t.Helper()
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect}); err != nil || !applied {
		t.Fatalf("Apply: applied %v, %v", applied, err)
	}
	return rec
}

// hold takes a lock on a row in a transaction of somebody else, until it is
// released.
func hold(t *testing.T, database string, id semel.ID) (release func()) {
	t.Helper()
	conn := pgtest.Shared(t).Conn(t, database)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := id.Digest()
	if _, err := tx.Exec(t.Context(), "SELECT FROM semel.semel_records WHERE id = $1 FOR UPDATE", d[:]); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			t.Error(err)
		}
	}
}

func TestBatches(t *testing.T) {
	t.Run("many callers share few statements and each gets its own answer", func(t *testing.T) {
		s, database := open(t, Options{AcquireTimeout: 10 * time.Second})
		const callers = 200
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				rec := numbered(fmt.Sprint("k", i), byte(i))
				cur, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec)})
				if err != nil || !applied || cur.ID != rec.ID {
					t.Errorf("caller %d: applied %v, key %q, %v", i, applied, cur.ID.Key, err)
				}
			})
		}
		wg.Wait()
		if n, records := commitsOf(t, database, "k%"); n > callers/4 || records != callers {
			t.Errorf("%d writes took %d commits", records, n)
		}
	})
	t.Run("two writes of one identity are never in one batch", func(t *testing.T) {
		s, database := open(t, Options{LockTimeout: 10 * time.Second, AcquireTimeout: 10 * time.Second})
		first := put(t, s, numbered("k", 1), store.Revision{})
		release := hold(t, database, first.ID)
		second, third := numbered("k", 2), numbered("k", 3)
		var wg sync.WaitGroup
		wg.Go(func() { put(t, s, second, first.Revision) })
		await(t, "the second write is on its way", func() bool { return busy(s, 1) })
		wg.Go(func() { put(t, s, third, second.Revision) })
		await(t, "the third write waits, beside an idle connection", func() bool {
			waiting, running := s.writers.Len()
			return waiting == 1 && running == 1
		})
		release()
		wg.Wait()
	})
	t.Run("duplicates that wait behind a write are answered by it", func(t *testing.T) {
		s, database := open(t, Options{MaxConns: 1, LockTimeout: 10 * time.Second, AcquireTimeout: 10 * time.Second})
		var applied, sent atomic.Int64
		send := s.writers.Send
		s.writers.Send = func(batch []*op) { sent.Add(int64(len(batch))); send(batch) }
		blocker := put(t, s, numbered("blocker", 1), store.Revision{})
		release := hold(t, database, blocker.ID)
		var wg sync.WaitGroup
		wg.Go(func() { put(t, s, numbered("blocker", 2), blocker.Revision) })
		await(t, "the only worker is busy", func() bool { return busy(s, 1) })
		const duplicates = 50
		for i := range duplicates {
			wg.Go(func() {
				cur, ok, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", byte(i)))})
				if ok {
					applied.Add(1)
				}
				if err != nil || cur.ID.Key != "k" {
					t.Errorf("a duplicate got the record of %q, %v", cur.ID.Key, err)
				}
			})
		}
		await(t, "all wait", func() bool { return queued(s) == duplicates })
		release()
		wg.Wait()
		if applied.Load() != 1 || sent.Load() != 3 { // the two of the blocker, and one for all
			t.Errorf("%d duplicates were applied, and %d writes sent", applied.Load(), sent.Load())
		}
	})
	t.Run("a poisoned write fails by itself", func(t *testing.T) {
		s, database := open(t, Options{MaxConns: 1, LockTimeout: 10 * time.Second, AcquireTimeout: 10 * time.Second})
		blocker := put(t, s, numbered("blocker", 1), store.Revision{})
		release := hold(t, database, blocker.ID)
		var wg sync.WaitGroup
		wg.Go(func() { put(t, s, numbered("blocker", 2), blocker.Revision) })
		await(t, "the only worker is busy", func() bool { return busy(s, 1) })
		for i := range 20 {
			wg.Go(func() { put(t, s, numbered(fmt.Sprint("good", i), 1), store.Revision{}) })
		}
		wg.Go(func() {
			if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("bad\x00", 1))}); err == nil || applied {
				t.Errorf("a key with a NUL: applied %v, %v", applied, err)
			}
		})
		await(t, "all wait", func() bool { return queued(s) == 21 })
		release()
		wg.Wait()
		if n, records := commitsOf(t, database, "good%"); n > 6 || records != 20 {
			t.Errorf("%d others took %d commits: the poisoned write was not among them", records, n)
		}
	})
	t.Run("a caller that hangs up is told at once, and its write goes on", func(t *testing.T) {
		s, database := open(t, Options{LockTimeout: 10 * time.Second})
		first := put(t, s, numbered("k", 1), store.Revision{})
		release := hold(t, database, first.ID)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		second := numbered("k", 2)
		go func() {
			_, _, err := s.Apply(ctx, store.Write{Record: new(second), Expect: first.Revision})
			done <- err
		}()
		server := pgtest.Shared(t).Conn(t, database)
		await(t, "the server is at the write", func() bool {
			var n int
			if err := server.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller was told %v", err)
		}
		put(t, s, numbered("another", 1), store.Revision{})
		release()
		await(t, "the write is stored", func() bool {
			rec, err := s.Get(t.Context(), second.ID)
			return err == nil && rec.Revision == second.Revision
		})
	})
	t.Run("a caller that hangs up before its turn leaves nothing behind", func(t *testing.T) {
		s, database := open(t, Options{MaxConns: 1, LockTimeout: 10 * time.Second, AcquireTimeout: 10 * time.Second})
		blocker := put(t, s, numbered("blocker", 1), store.Revision{})
		release := hold(t, database, blocker.ID)
		var wg sync.WaitGroup
		wg.Go(func() { put(t, s, numbered("blocker", 2), blocker.Revision) })
		await(t, "the only worker is busy", func() bool { return busy(s, 1) })
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, applied, err := s.Apply(ctx, store.Write{Record: new(numbered("k", 1))}); err == nil || applied {
				t.Errorf("applied %v, %v", applied, err)
			}
		})
		await(t, "it waits", func() bool { return queued(s) == 1 })
		cancel()
		await(t, "it has left", func() bool { return queued(s) == 0 })
		release()
		wg.Wait()
		put(t, s, numbered("k", 2), store.Revision{})
	})
	t.Run("who waits for a turn behind a write at work waits as long as its context allows", func(t *testing.T) {
		const limit = 500 * time.Millisecond // for a connection, which takes long on a busy machine
		s, database := open(t, Options{MaxConns: 1, LockTimeout: time.Minute, AcquireTimeout: limit})
		blocker := put(t, s, numbered("blocker", 1), store.Revision{})
		release := hold(t, database, blocker.ID)
		var wg sync.WaitGroup
		wg.Go(func() { put(t, s, numbered("blocker", 2), blocker.Revision) })
		await(t, "the only worker is busy", func() bool { return busy(s, 1) })
		// A duplicate of the write that is on its way, and others.
		for _, key := range []string{"blocker", "another"} {
			wg.Go(func() {
				rec := numbered(key, 3)
				if cur, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); err != nil || !applied && cur.ID != rec.ID {
					t.Errorf("%s: applied %v, %v", key, applied, err)
				}
			})
		}
		await(t, "they wait", func() bool { return queued(s) == 2 })
		var impatient sync.WaitGroup
		for i := range 100 {
			impatient.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
				defer cancel()
				_, applied, err := s.Apply(ctx, store.Write{Record: new(numbered(fmt.Sprint(i), 1))})
				if applied || !errors.Is(err, store.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("who has waited for longer: applied %v, %v", applied, err)
				}
			})
		}
		impatient.Wait()
		if n := queued(s); n != 2 {
			t.Errorf("%d wait, want the 2 whose callers do", n)
		}
		// Reads and the clock have connections of their own.
		await(t, "reads and the clock go on", func() bool {
			_, err := s.Get(t.Context(), blocker.ID)
			return errors.Join(err, s.clock.Read(t.Context())) == nil
		})
		release()
		wg.Wait()
	})
	t.Run("where no connection is to be had a call is told soon", func(t *testing.T) {
		server := pgtest.Shared(t)
		n := newNetwork(t, server)
		s, err := Open(t.Context(), n.url(server.Database(t)), &Options{Migrate: true, connect: time.Minute})
		noError(t, err)
		t.Cleanup(func() { mustClose(t, s) })
		t.Cleanup(func() { n.Set(faultnet.Reset) })
		n.Set(faultnet.Hole)
		_, _, _ = s.Apply(t.Context(), store.Write{Record: new(numbered("k", 1))}) // over what was reset
		for i := range 10 {
			if _, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered(fmt.Sprint(i), 1))}); !errors.Is(err, ErrBusy) || errors.Is(err, context.Canceled) {
				t.Errorf("it is told %v", err)
			}
		}
	})
	t.Run("a record that somebody else has locked does not stop the others for long", func(t *testing.T) {
		s, database := open(t, Options{MaxConns: 1, LockTimeout: 50 * time.Millisecond, AcquireTimeout: 10 * time.Second})
		locked := put(t, s, numbered("locked", 1), store.Revision{})
		defer hold(t, database, locked.ID)()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("locked", 2)), Expect: locked.Revision}); err == nil || applied {
				t.Errorf("a locked record: applied %v, %v", applied, err)
			}
		})
		for i := range 20 {
			wg.Go(func() { put(t, s, numbered(fmt.Sprint(i), 1), store.Revision{}) })
		}
		wg.Wait() // while the record is still locked
	})
	t.Run("stores whose batches cross do not wait in a circle", func(t *testing.T) {
		a, database := open(t, Options{})
		b := mustOpen(t, pgtest.Shared(t).URL(database), nil)
		t.Cleanup(func() { mustClose(t, b) })
		const keys, rounds = 40, 10
		var revisions [keys]store.Revision
		for i := range keys {
			revisions[i] = put(t, a, numbered(fmt.Sprint(i), 1), store.Revision{}).Revision
		}
		for round := range rounds {
			var applied [keys]atomic.Int64
			var wg sync.WaitGroup
			for n, s := range []*Store{a, b} {
				for i := range keys {
					rec := numbered(fmt.Sprint(i), 1)
					rec.Revision = store.Revision{byte(n + 1), byte(round + 1), byte(i)}
					wg.Go(func() {
						cur, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: revisions[i]})
						for errors.Is(err, store.ErrNotApplied) { // no connection was free in time
							cur, ok, err = s.Apply(t.Context(), store.Write{Record: new(rec), Expect: revisions[i]})
						}
						if err != nil {
							t.Error(err)
							return
						}
						if cur.Revision == revisions[i] {
							t.Errorf("Apply gives revision %v", cur.Revision)
						}
						if ok {
							applied[i].Add(1)
						}
					})
				}
			}
			wg.Wait()
			for i := range keys {
				rec, err := b.Get(t.Context(), numbered(fmt.Sprint(i), 1).ID)
				if err != nil || applied[i].Load() != 1 {
					t.Fatalf("%d writes of one version were applied, %v", applied[i].Load(), err)
				}
				revisions[i] = rec.Revision
			}
		}
	})
}

// TestShares gives one transaction writes that are applied and writes that are not.
func TestShares(t *testing.T) {
	s, database := open(t, Options{})
	conn := pgtest.Shared(t).Conn(t, database)
	write := func(key string, revision byte, expect store.Revision) *op {
		o, err := s.newOp(store.Write{Record: new(numbered(key, revision)), Expect: expect})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	one, two := numbered("", 1).Revision, numbered("", 2).Revision
	send := func(t *testing.T, ops ...*op) {
		t.Helper()
		slices.SortFunc(ops, func(a, b *op) int { return slices.Compare(a.id[:], b.id[:]) })
		if err := s.writeRounds(conn, ops, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	check := func(t *testing.T, o *op, applied bool, revision store.Revision) {
		t.Helper()
		if !o.settled || o.err != nil || o.applied != applied || revisionOf(o.current) != revision {
			t.Errorf("the write of %q: settled %v, applied %v, revision %v, %v", o.write.Record.ID.Key, o.settled, o.applied, revisionOf(o.current), o.err)
		}
	}
	t.Run("all new", func(t *testing.T) {
		a, b := write("a", 1, store.Revision{}), write("b", 1, store.Revision{})
		send(t, a, b)
		check(t, a, true, one)
		check(t, b, true, one)
	})
	t.Run("some new and some there", func(t *testing.T) {
		a, b, c := write("a", 2, store.Revision{}), write("b", 2, store.Revision{}), write("c", 2, store.Revision{})
		send(t, a, b, c)
		check(t, a, false, one)
		check(t, b, false, one)
		check(t, c, true, two)
	})
	t.Run("none new", func(t *testing.T) {
		a, b := write("a", 2, store.Revision{}), write("b", 2, store.Revision{})
		send(t, a, b)
		check(t, a, false, one)
		check(t, b, false, one)
	})
	t.Run("changes of which one meets another revision and one no record, beside new ones", func(t *testing.T) {
		a, b, gone := write("a", 2, one), write("b", 2, two), write("gone", 2, one)
		d, e := write("d", 1, store.Revision{}), write("e", 1, store.Revision{})
		send(t, a, b, gone, d, e)
		check(t, a, true, two)
		check(t, b, false, one)
		check(t, gone, false, store.Revision{})
		check(t, d, true, one)
		check(t, e, true, one)
	})
	t.Run("changes that are all made, beside a new one and one that is there", func(t *testing.T) {
		a, b := write("a", 3, two), write("b", 3, one)
		d, f := write("d", 2, store.Revision{}), write("f", 2, store.Revision{})
		send(t, a, b, d, f)
		check(t, a, true, numbered("", 3).Revision)
		check(t, b, true, numbered("", 3).Revision)
		check(t, d, false, one)
		check(t, f, true, two)
		rec, err := s.Get(t.Context(), b.write.Record.ID)
		if err != nil || rec.Revision != numbered("", 3).Revision {
			t.Errorf("stored is %v, %v", rec.Revision, err)
		}
	})
}

// await repeats f until it reports true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatalf("it did not come true that %s", what)
		case <-tick.C:
		}
	}
}

// queued is how many writes wait for their turn. busy reports whether as many workers are
// at work, with nothing left to take, and idle whether nothing is on its way either.
func queued(s *Store) int {
	waiting, _ := s.writers.Len()
	return waiting
}

func busy(s *Store, workers int) bool {
	waiting, running := s.writers.Len()
	return waiting == 0 && running == workers
}

func idle(s *Store) bool { return busy(s, 0) }

// A batch that is sent again one by one may have writes that were made before it broke.
func TestWritesThatAreSettledAreNotSentAgain(t *testing.T) {
	s := new(Store)
	for _, ops := range [][]*op{{{settled: true}}, {{settled: true}, {settled: true}}} {
		if err := s.writeRounds(nil, ops, time.Second); err != nil { // there is no connection to send them on
			t.Errorf("%d writes: %v", len(ops), err)
		}
	}
}
