package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// leaf is an entry of one leaf.
func leaf(text string) store.Entry {
	return store.Entry{Leaf: []byte(text), Opening: []byte("opening"), Subject: store.Subject{1}}
}

func leaves(texts ...string) (list []store.Entry) {
	for _, t := range texts {
		list = append(list, leaf(t))
	}
	return list
}

// readLog reads the leaves of the whole log in pages.
func readLog(t *testing.T, s *Store) (texts []string) {
	t.Helper()
	for {
		list, err := s.ReadEvidence(t.Context(), uint64(len(texts)), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return texts
		}
		for _, en := range list {
			texts = append(texts, string(en.Leaf))
		}
	}
}

func wantLog(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if got := readLog(t, s); !slices.Equal(got, want) {
		t.Errorf("the log is %q, want %q", got, want)
	}
}

func appendLeaves(t *testing.T, s *Store, texts ...string) {
	t.Helper()
	if err := s.AppendEvidence(t.Context(), leaves(texts...)); err != nil {
		t.Fatal(err)
	}
}

// TestNoted gives one transaction writes with evidence and without, some of which
// are not made.
func TestNoted(t *testing.T) {
	s, database := open(t, Options{})
	conn := pgtest.Shared(t).Conn(t, database)
	write := func(key string, revision byte, expect store.Revision, evidence ...string) *op {
		o, err := s.newOp(store.Write{Record: new(numbered(key, revision)), Expect: expect, Evidence: leaves(evidence...)})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	send := func(want string, ops ...*op) {
		t.Helper()
		if err := s.writeRounds(conn, slices.SortedFunc(slices.Values(ops), byIdentity), time.Second); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, o := range ops {
			got += fmt.Sprintf("%s %v ", o.write.Record.ID.Key, o.applied)
		}
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("the writes were made as %q, want %q", got, want)
		}
	}
	one, two := numbered("", 1).Revision, numbered("", 2).Revision
	send("a true b true c true", write("a", 1, store.Revision{}, "a1"), write("b", 1, store.Revision{}), write("c", 1, store.Revision{}, "c1", "c2"))
	wantLog(t, s, "c1", "c2", "a1") // in the order of identities
	send("a false d true e true b true c false", write("a", 2, store.Revision{}, "no"), write("d", 1, store.Revision{}, "d1"),
		write("e", 1, store.Revision{}), write("b", 2, one, "b2"), write("c", 2, two, "no"))
	wantLog(t, s, "c1", "c2", "a1", "d1", "b2")
	send("a true", write("a", 2, one, "a2"))
	send("a false", write("a", 2, one, "no"))
	send("f true", write("f", 1, store.Revision{}, "f1", "f2"))
	send("f false", write("f", 1, store.Revision{}, "no"))
	wantLog(t, s, "c1", "c2", "a1", "d1", "b2", "a2", "f1", "f2")
}

// TestNumbers has transactions of others that are on their way while entries get
// their numbers.
func TestNumbers(t *testing.T) {
	s, database := open(t, Options{})
	server := pgtest.Shared(t)
	begin := func(text string) pgx.Tx {
		t.Helper()
		tx, err := server.Conn(t, database).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		insertLeaf(t, tx, text)
		return tx
	}
	wantLog(t, s)
	late, later, never := begin("late"), begin("later"), begin("never")
	appendLeaves(t, s, "early")
	wantLog(t, s, "early")
	noError(t, later.Commit(t.Context()), never.Rollback(t.Context()))
	wantLog(t, s, "early", "later")
	appendLeaves(t, s, "afterwards")
	wantLog(t, s, "early", "later", "afterwards")
	noError(t, late.Commit(t.Context()))
	want := []string{"early", "later", "afterwards", "late"}
	wantLog(t, s, want...)
	for i, text := range want {
		list, err := s.ReadEvidence(t.Context(), uint64(i), 1)
		if err != nil || len(list) != 1 || string(list[0].Leaf) != text {
			t.Errorf("entry %d is %v, %v", i, list, err)
		}
	}
	server.Exec(t, database, "DELETE FROM semel.semel_evidence WHERE n = 2")
	if list, err := s.ReadEvidence(t.Context(), 0, 10); err == nil {
		t.Errorf("a log that lacks an entry is read as %d entries", len(list))
	}
}

func insertLeaf(t *testing.T, tx pgx.Tx, text string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), "INSERT INTO semel.semel_evidence_new (leaf) VALUES ($1)", []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestNumbersOfMany has more entries without numbers than get one at a time.
func TestNumbersOfMany(t *testing.T) {
	s, database := open(t, Options{})
	pgtest.Shared(t).Exec(t, database, fmt.Sprintf("INSERT INTO semel.semel_evidence_new (subject, leaf, opening) SELECT NULL, n::text::bytea, 'o' FROM generate_series(1, %d) n", 2*numberChunk+7))
	if list := readLog(t, s); len(list) != 2*numberChunk+7 || list[numberChunk] != fmt.Sprint(numberChunk+1) {
		t.Errorf("%d entries have numbers", len(list))
	}
	if err := s.EraseEvidence(t.Context(), 5, 1<<60); err != nil {
		t.Fatal(err)
	}
	var left int
	err := pgtest.Shared(t).Conn(t, database).QueryRow(t.Context(), "SELECT count(opening) FROM semel.semel_evidence").Scan(&left)
	if err != nil || left != 5 {
		t.Errorf("%d openings are left, %v", left, err)
	}
}

// TestNumbersIsolated has two processes number one log where transactions see what
// was there when they began.
func TestNumbersIsolated(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			a, database := open(t, Options{})
			server := pgtest.Shared(t)
			server.Exec(t, database, "ALTER DATABASE "+database+" SET default_transaction_isolation = '"+level+"'")
			b := mustOpen(t, server.URL(database), nil)
			t.Cleanup(func() { mustClose(t, b) })
			c := mustOpen(t, server.URL(database), nil)
			t.Cleanup(func() { mustClose(t, c) })
			const each = 60
			logs := make([][]string, 2)
			var wg sync.WaitGroup
			for i, s := range []*Store{b, c} {
				wg.Go(func() {
					for n := range each {
						text := fmt.Sprint(i, " ", n)
						if err := s.AppendEvidence(t.Context(), leaves(text)); err != nil {
							t.Error(err)
							return
						}
						list, err := s.ReadEvidence(t.Context(), uint64(len(logs[i])), 1000)
						if err != nil {
							t.Error(err)
							return
						}
						for _, en := range list {
							logs[i] = append(logs[i], string(en.Leaf))
						}
						if !slices.Contains(logs[i], text) {
							t.Errorf("what was acknowledged has no number: %s", text)
						}
					}
				})
			}
			wg.Wait()
			log := readLog(t, a)
			if len(log) != 2*each {
				t.Errorf("the log has %d entries, want %d", len(log), 2*each)
			}
			for i := range logs {
				if !slices.Equal(logs[i], log[:len(logs[i])]) {
					t.Errorf("store %d has read another log", i)
				}
			}
		})
	}
}

// TestJoinedEvidence has evidence in transactions of the application.
func TestJoinedEvidence(t *testing.T) {
	t.Run("by pgx", func(t *testing.T) {
		e := newJoinEnv(t)
		joinedEvidence(t, e, func() link {
			tx, err := e.pool.Begin(t.Context())
			noError(t, err)
			return pgxLink(tx)
		})
	})
	t.Run("by database/sql", func(t *testing.T) {
		e := newJoinEnv(t)
		joinedEvidence(t, e, func() link {
			conn, err := e.db.Conn(t.Context())
			noError(t, err)
			tx, err := conn.BeginTx(t.Context(), nil)
			noError(t, err)
			return sqlLink(tx, conn)
		})
	})
}

func joinedEvidence(t *testing.T, e *joinEnv, begin func() link) {
	s := e.engine.Internal().Store().(*Store)
	apply := func(j *joined, w store.Write, want bool) {
		t.Helper()
		if applied, err := j.Apply(t.Context(), w); err != nil || applied != want {
			t.Fatalf("applied %v, %v", applied, err)
		}
	}
	start := func(id semel.ID) *joined {
		t.Helper()
		j := &joined{store: s, link: begin()}
		if lock, err := j.Lock(t.Context(), id, ""); err != nil || lock != store.TxLocked {
			t.Fatalf("locked %v, %v", lock, err)
		}
		return j
	}
	first, second := numbered("k", 1), numbered("k", 2)
	claim := store.Write{Record: new(first), Evidence: []store.Entry{leaf("claimed"), {}}}
	done := store.Write{Record: new(second), Expect: first.Revision, Evidence: leaves("done")}
	j := start(first.ID)
	apply(j, claim, true)
	apply(j, done, true)
	j.link.rollback(t.Context())
	wantLog(t, s)
	j = start(first.ID)
	apply(j, claim, true)
	wantLog(t, s)
	apply(j, done, true)
	noError(t, j.link.commit(t.Context()))
	wantLog(t, s, "claimed", "", "done")
	j = start(first.ID)
	apply(j, claim, false)
	apply(j, done, false)
	var waits string
	if err := j.link.queryRow(t.Context(), "SELECT current_setting('lock_timeout')").Scan(&waits); err != nil || waits != "0" {
		t.Errorf("after writes that were not made the application waits %s for a lock, %v", waits, err)
	}
	apply(j, store.Write{Record: new(numbered("k", 3)), Expect: second.Revision}, true)
	noError(t, j.link.commit(t.Context()))
	wantLog(t, s, "claimed", "", "done")
	list, err := s.ReadEvidence(t.Context(), 0, 10)
	if err != nil || list[0].Subject != (store.Subject{1}) || string(list[0].Opening) != "opening" || list[1].Opening != nil || list[1].Subject != (store.Subject{}) {
		t.Errorf("the entries are %v, %v", list, err)
	}
}

// TestPlansEvidence looks at how the server would run the statements of the log.
func TestPlansEvidence(t *testing.T) {
	s, database := open(t, Options{})
	appendLeaves(t, s, "a")
	wantLog(t, s, "a")
	create, update := writing(t, s, 50, store.Revision{}, leaves("a")), writing(t, s, 50, store.Revision{1}, leaves("a"))
	check := func(t *testing.T, settings map[string]string) {
		for what, plan := range map[string]string{
			"create": explain(t, database, settings, create),
			"update": explain(t, database, settings, update),
			"number": explain(t, database, settings, of(s.log.number)...),
			"read":   explain(t, database, settings, of(s.log.read, bigint(9000), bigint(9100))...),
			"find":   explain(t, database, settings, of(s.log.find, make([]byte, 16), bigint(0), bigint(10))...),
			"erase":  explain(t, database, settings, of(s.log.erase, bigint(9000), bigint(9100))...),
			"tile":   explain(t, database, settings, of(s.log.tile, []byte("t"))...),
		} {
			if strings.Contains(plan, "Seq Scan on semel_evidence ") {
				t.Errorf("%s does not use an index:\n%s", what, plan)
			}
			if (what == "create" || what == "update") && !strings.Contains(plan, "hashed SubPlan") {
				t.Errorf("%s compares each entry with each write:\n%s", what, plan)
			}
		}
	}
	pgtest.Shared(t).Exec(t, database, `INSERT INTO semel.semel_evidence_new (subject, leaf) SELECT substr(sha256(n::text::bytea), 1, 16), sha256(n::text::bytea) FROM generate_series(1, 20000) n`)
	readLog(t, s)
	pgtest.Shared(t).Exec(t, database, "ANALYZE")
	t.Run("on a direct connection", func(t *testing.T) { check(t, plans) })
	t.Run("through a pooler", func(t *testing.T) { check(t, nil) })
}

// TestEvidenceOfTheClosed is about a store that has ended, and callers who have.
func TestEvidenceOfTheClosed(t *testing.T) {
	s, _ := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	gate := make(chan struct{})
	go func() {
		_ = s.writeLog(t.Context(), func(*pgx.Conn) error { <-gate; return nil }) // is stuck
	}()
	await(t, "it is at work", func() bool { waiting, running := s.logWrites.Len(); return waiting == 0 && running == 1 })
	time.AfterFunc(time.Millisecond, cancel)
	if err := s.AppendEvidence(ctx, leaves("a")); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("an append whose caller gave up before its turn got %v", err)
	}
	close(gate)
	mustClose(t, s)
	if err := s.AppendEvidence(t.Context(), leaves("a")); err == nil {
		t.Error("a closed store takes entries")
	}
	if _, err := s.ReadEvidence(t.Context(), 0, 1); err == nil {
		t.Error("a closed store is read")
	}
}
