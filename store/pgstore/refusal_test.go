package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// refusesAll checks that a store that can't be written says so of each write: that it
// was not applied. What was on its way when the connections broke may be unknown.
func refusesAll(t *testing.T, s *Store) {
	t.Helper()
	n := 0
	apply := func() error {
		n++
		_, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered(fmt.Sprint("refused-", n), 1))})
		if err == nil || applied {
			t.Fatalf("a write was applied: %v, %v", applied, err)
		}
		return err
	}
	await(t, "a write is refused", func() bool { return errors.Is(apply(), store.ErrNotApplied) })
	for range 20 {
		if err := apply(); !errors.Is(err, store.ErrNotApplied) {
			t.Fatalf("a write that was never sent may have been applied: %v", err)
		}
	}
}

func TestServersThatRefuseConnections(t *testing.T) {
	t.Parallel()
	t.Run("one that is down", func(t *testing.T) {
		server := pgtest.Start(t, nil)
		database := server.Database(t)
		s := mustOpen(t, server.URL(database), &Options{Migrate: true, MaxConns: 1})
		t.Cleanup(func() { mustClose(t, s) })
		first := put(t, s, numbered("k", 1), store.Revision{})
		server.Stop()
		refusesAll(t, s)
		server.Restart()
		await(t, "it serves again", func() bool {
			cur, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", 2)), Expect: first.Revision})
			return err == nil && cur.Revision == numbered("", 2).Revision
		})
	})
	for what, code := range map[string]string{"starts up": "57P03", "has too many connections": "53300", "knows no such user": "28000", "has no such database": "3D000"} {
		t.Run("one that "+what, func(t *testing.T) {
			server := pgtest.Shared(t)
			database := server.Database(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 250 * time.Millisecond})
			t.Cleanup(func() { mustClose(t, s) })
			await(t, "it serves", func() bool { // no connection may be free for a while on a busy machine
				_, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", 1))})
				return err == nil && applied
			})
			w.cutAll(ending(code))
			refusesAll(t, s)
			w.cutAll(nil)
			await(t, "it serves again", func() bool {
				cur, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("other", 1))})
				return err == nil && cur.Revision == numbered("", 1).Revision
			})
		})
	}
}

// raising makes the server answer writes of a key with an error; when says whether at
// once or at the commit.
func raising(t *testing.T, database, when, key, code string) {
	t.Helper()
	pgtest.Shared(t).Exec(t, database, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.key = '%s' THEN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$;
		CREATE %s ON semel.semel_records %s FOR EACH ROW EXECUTE FUNCTION refuse()`, key, code,
		map[string]string{"at once": "TRIGGER refuse BEFORE INSERT OR UPDATE", "at the commit": "CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE"}[when],
		map[string]string{"at the commit": "DEFERRABLE INITIALLY DEFERRED"}[when]))
}

func TestRefusedStatements(t *testing.T) {
	t.Parallel()
	exec := func(t *testing.T, database, sql string) {
		pgtest.Shared(t).Exec(t, database, strings.ReplaceAll(sql, "DATABASE", "DATABASE "+database))
	}
	newSessions := func(t *testing.T, s *Store) {
		s.writes.Reset()
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, s *Store, database string, rec semel.Record)
		code string
		not  bool // it is not known to be refused
	}{
		{"a server that only reads", func(t *testing.T, s *Store, database string, _ semel.Record) {
			exec(t, database, "ALTER DATABASE SET default_transaction_read_only = on")
			newSessions(t, s)
		}, "25006", false},
		{"a row that somebody else has locked", func(t *testing.T, s *Store, database string, rec semel.Record) {
			t.Cleanup(hold(t, database, rec.ID))
		}, "55P03", false},
		{"a time limit of the server", func(t *testing.T, s *Store, database string, rec semel.Record) {
			t.Cleanup(hold(t, database, rec.ID)) // first: the limit is for its session, too
			exec(t, database, "ALTER DATABASE SET statement_timeout = '50ms'")
			newSessions(t, s)
		}, "57014", false},
		{"a table that is gone", func(t *testing.T, s *Store, database string, rec semel.Record) {
			exec(t, database, "ALTER TABLE semel.semel_records RENAME TO away")
		}, "42P01", false},
		{"no memory", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at once", "k", "53200")
		}, "53200", false},
		{"a conflict that is there each time", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at once", "k", "40001")
		}, "40001", false},
		{"a conflict at the commit that is there each time", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at the commit", "k", "40001")
		}, "40001", false},
		{"a full disk at the commit", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at the commit", "k", "53100")
		}, "53100", true},
		{"a broken rule at the commit", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at the commit", "k", "23514")
		}, "23514", true},
		{"an error that says that it may have been carried out", func(t *testing.T, _ *Store, database string, _ semel.Record) {
			raising(t, database, "at once", "k", "40003")
		}, "40003", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, database := open(t, Options{MaxConns: 1, LockTimeout: 2 * time.Second, AcquireTimeout: 10 * time.Second})
			rec := put(t, s, numbered("k", 1), store.Revision{})
			c.make(t, s, database, rec)
			_, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", 2)), Expect: rec.Revision})
			if sqlState(err) != c.code || applied || errors.Is(err, store.ErrNotApplied) == c.not {
				t.Errorf("a write got %v, %v", applied, err)
			}
		})
	}
}

func TestAServerThatOnlyReadsSaysSo(t *testing.T) {
	s, database := open(t, Options{})
	if err := s.CheckWrites(t.Context()); err != nil {
		t.Error(err)
	}
	pgtest.Shared(t).Exec(t, database, "ALTER DATABASE "+database+" SET default_transaction_read_only = on")
	s.reads.Reset()
	if err := s.CheckWrites(t.Context()); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("it says %v", err)
	}
}

func TestCallersThatLeaveBeforeTheirTurnKnow(t *testing.T) {
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: time.Minute})
	t.Cleanup(func() { mustClose(t, s) })
	gate := make(chan struct{})
	w.set(func(x *exchange) { x.gate = gate })
	first := make(chan error)
	go func() {
		_, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("first", 1))})
		first <- err
	}()
	await(t, "the connection is in use", func() bool { return busy(s, 1) })
	for _, key := range []string{"another", "first"} {
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan error)
		go func() {
			_, _, err := s.Apply(ctx, store.Write{Record: new(numbered(key, 2))})
			told <- err
		}()
		await(t, "it waits", func() bool { return queued(s) == 1 })
		cancel()
		if err := <-told; !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrNotApplied) {
			t.Errorf("a write that was never sent may have been applied: %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Apply(ended, store.Write{Record: new(numbered("late", 1))}); !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a write that had ended before it began: %v", err)
	}
	close(gate)
	noError(t, <-first)
}

// Of a batch, a round may fail behind one that has committed some of its writes.
func TestALaterRoundTakesNothingBack(t *testing.T) {
	server := pgtest.Shared(t)
	for name, fail := range map[string]func(w *wire, x *exchange){
		"is refused":                  func(w *wire, x *exchange) { x.instead = refusal("53200") },
		"is refused because of a row": func(w *wire, x *exchange) { x.instead = refusal("55P03") },
		"breaks off":                  func(w *wire, x *exchange) { x.instead, x.cut = [][]byte{}, true },
		"is refused because of a row, and then there is no connection": func(w *wire, x *exchange) {
			x.instead, x.cut = refusal("22000"), true
			w.refuse = ending("53300")
		},
	} {
		t.Run("where it "+name, func(t *testing.T) {
			database := server.Database(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second})
			t.Cleanup(func() { mustClose(t, s) })
			for i := range 3 {
				put(t, s, numbered(fmt.Sprint("there-", i), 1), store.Revision{})
			}
			var writes []store.Write
			for i := range 3 {
				writes = append(writes, store.Write{Record: new(numbered(fmt.Sprint("new-", i), 1))})
				// These need a look at what is stored in their place.
				writes = append(writes, store.Write{Record: new(numbered(fmt.Sprint("there-", i), 3)), Expect: store.Revision{9}})
			}
			failed := 0
			results := together(t, w, s, func(n int, x *exchange) {
				if x.looks() {
					failed++
					fail(w, x)
				}
			}, writes...)
			for i, r := range results {
				if i%2 == 0 && (r.err != nil || !r.applied) {
					t.Errorf("a write that was committed got %v, %v", r.applied, r.err)
				}
				if i%2 == 1 && (r.err == nil || r.applied) {
					t.Errorf("a write that was never looked at got %v, %v", r.applied, r.err)
				}
			}
			if failed == 0 {
				t.Error("no round failed, so nothing is proved")
			}
		})
	}
}

// What a run says that was rolled back is forgotten.
func TestARolledBackRunIsForgotten(t *testing.T) {
	for _, code := range []string{"XX001", "23514", "40001", "53200"} {
		t.Run(code, func(t *testing.T) {
			server := pgtest.Shared(t)
			database := server.Database(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true, MaxConns: 1, AcquireTimeout: 10 * time.Second})
			t.Cleanup(func() { mustClose(t, s) })
			there := put(t, s, numbered("there", 1), store.Revision{})
			bad := put(t, s, numbered("bad", 1), store.Revision{})
			raising(t, database, "at once", "bad", code)
			// New records are made by a statement of their own, before the one that fails.
			results := together(t, w, s, nil,
				store.Write{Record: new(numbered("new-1", 1))}, store.Write{Record: new(numbered("new-2", 1))},
				store.Write{Record: new(numbered("there", 2))},
				store.Write{Record: new(numbered("bad", 2)), Expect: bad.Revision})
			for _, r := range results {
				id := r.write.Record.ID
				rec, err := s.Get(t.Context(), id)
				if err != nil && !errors.Is(err, semel.ErrNotFound) {
					t.Fatal(err)
				}
				stored := revisionOf(rec) == r.write.Record.Revision
				switch {
				case stored != r.applied:
					t.Errorf("the write of %s is told to be applied: %v, and is stored: %v", id.Key, r.applied, stored)
				case id.Key == "bad" && sqlState(r.err) != code:
					t.Errorf("the write that is refused got %v", r.err)
				case id.Key == "there" && r.err == nil && revisionOf(r.current) != there.Revision:
					t.Errorf("a duplicate got %v", revisionOf(r.current))
				case rolledBackByRow(r.err) && id.Key != "bad":
					t.Errorf("the write of %s got the error of another row: %v", id.Key, r.err)
				}
			}
		})
	}
}

func TestAWriteHasOneResult(t *testing.T) {
	o, err := new(Store).newOp(store.Write{Record: new(numbered("k", 1))})
	noError(t, err)
	o.settle(o.write.Record, true, nil)
	for what, again := range map[string]func(){
		"an error":        func() { o.settle(nil, false, ErrBusy) },
		"another record":  func() { o.settle(new(semel.Record), false, nil) },
		"the same result": func() { o.settle(o.write.Record, true, nil) },
	} {
		t.Run("and not "+what+" afterwards", func(t *testing.T) {
			defer func() {
				if recover() == nil || !o.applied || o.err != nil {
					t.Errorf("it was taken: %v, %v", o.applied, o.err)
				}
			}()
			again()
		})
	}
}
