package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// leaf is an entry of one leaf.
func leaf(text string) semel.Entry {
	return semel.Entry{Leaf: []byte(text), Opening: []byte("opening"), Subject: semel.Subject{1}}
}

func leaves(texts ...string) (list []semel.Entry) {
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
	for what, o := range map[string]Options{"plain": {}, "partitioned": {Partition: day, apart: 1}} {
		t.Run(what, func(t *testing.T) {
			s, database := open(t, o)
			conn := pgtest.Shared(t).Conn(t, database).PgConn()
			write := func(key string, revision byte, expect semel.Revision, evidence ...string) *op {
				o, err := newOp(semel.Write{Record: numbered(key, revision), Expect: expect, Evidence: leaves(evidence...)})
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			send := func(want string, ops ...*op) {
				t.Helper()
				if err := s.sql.send(t.Context(), conn, ops); err != nil {
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
			send("a true b true c true", write("a", 1, semel.Revision{}, "a1"), write("b", 1, semel.Revision{}), write("c", 1, semel.Revision{}, "c1", "c2"))
			wantLog(t, s, "a1", "c1", "c2")
			send("a false d true e true b true c false", write("a", 2, semel.Revision{}, "no"), write("d", 1, semel.Revision{}, "d1"),
				write("e", 1, semel.Revision{}), write("b", 2, one, "b2"), write("c", 2, two, "no"))
			wantLog(t, s, "a1", "c1", "c2", "d1", "b2")
			send("a true", write("a", 2, one, "a2"))
			send("a false", write("a", 2, one, "no"))
			send("f true", write("f", 1, semel.Revision{}, "f1", "f2"))
			send("f false", write("f", 1, semel.Revision{}, "no"))
			wantLog(t, s, "a1", "c1", "c2", "d1", "b2", "a2", "f1", "f2")
		})
	}
}

// TestNumbers has transactions of others that are on their way while entries get
// their numbers.
func TestNumbers(t *testing.T) {
	s, database := open(t, Options{})
	server := pgtest.Shared(t)
	conn := server.Conn(t, database)
	begin := func(text string) pgx.Tx {
		t.Helper()
		tx, err := server.Conn(t, database).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		insertLeaf(t, tx, text)
		return tx
	}
	missing := func() (n int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), "SELECT coalesce(sum(upper(m) - lower(m)), 0) FROM (SELECT unnest(missing + missing_long) FROM semel.semel_evidence_state) AS s(m)").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	wantLog(t, s)
	late, later, never := begin("late"), begin("later"), begin("never")
	appendLeaves(t, s, "early")
	wantLog(t, s, "early")
	if n := missing(); n != 3 {
		t.Errorf("%d entries are missing, not the three that are on their way", n)
	}
	noError(t, later.Commit(t.Context()), never.Rollback(t.Context()))
	wantLog(t, s, "early", "later")
	// The one that was there first stays on the list, however often it is looked at.
	want := []string{"early", "later"}
	var tooLate pgx.Tx
	for n := range 5 {
		want = append(want, fmt.Sprint(n))
		appendLeaves(t, s, fmt.Sprint(n))
		wantLog(t, s, want...)
		if got := missing(); got < 1 {
			t.Fatalf("after %d more looks nobody looks for the entry that is on its way", n+1)
		}
		if n == 2 {
			tooLate = begin("too late")
		}
	}
	// A database that was restored elsewhere has marks of another server.
	server.Exec(t, database, "UPDATE semel.semel_evidence_state SET mark = '4000000000000'")
	noError(t, late.Commit(t.Context()))
	want = append(want, "late")
	wantLog(t, s, want...)
	noError(t, tooLate.Commit(t.Context()))
	want = append(want, "too late")
	wantLog(t, s, want...)
	server.Exec(t, database, "UPDATE semel.semel_evidence_state SET mark = '3'")
	for n := range 3 { // what nobody can commit any more is given up
		want = append(want, fmt.Sprint("end ", n))
		appendLeaves(t, s, fmt.Sprint("end ", n))
		wantLog(t, s, want...)
	}
	if n := missing(); n != 0 {
		t.Errorf("%d entries are still looked for", n)
	}
	for i, text := range want {
		list, err := s.ReadEvidence(t.Context(), uint64(i), 1)
		if err != nil || len(list) != 1 || string(list[0].Leaf) != text {
			t.Errorf("entry %d is %v, %v", i, list, err)
		}
	}
	server.Exec(t, database, "DELETE FROM semel.semel_evidence_number WHERE n = 3")
	if list, err := s.ReadEvidence(t.Context(), 0, 10); err == nil {
		t.Errorf("a log that lacks an entry is read as %d entries", len(list))
	}
}

func insertLeaf(t *testing.T, tx pgx.Tx, text string) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), "INSERT INTO semel.semel_evidence (leaf) VALUES ($1)", []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestNumbersOfMany has more entries without numbers than get one at a time.
func TestNumbersOfMany(t *testing.T) {
	s, database := open(t, Options{})
	pgtest.Shared(t).Exec(t, database, fmt.Sprintf("INSERT INTO semel.semel_evidence (subject, leaf, opening) SELECT NULL, n::text::bytea, 'o' FROM generate_series(1, %d) n", 2*numberChunk+7))
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
			return pgxLink{tx}
		})
	})
	t.Run("by database/sql", func(t *testing.T) {
		e := newJoinEnv(t)
		joinedEvidence(t, e, func() link {
			conn, err := e.db.Conn(t.Context())
			noError(t, err)
			tx, err := conn.BeginTx(t.Context(), nil)
			noError(t, err)
			return sqlLink{tx, conn}
		})
	})
}

func joinedEvidence(t *testing.T, e *joinEnv, begin func() link) {
	s := e.engine.Store().(*Store)
	apply := func(j *joined, w semel.Write, want bool) {
		t.Helper()
		if applied, err := j.Apply(t.Context(), w); err != nil || applied != want {
			t.Fatalf("applied %v, %v", applied, err)
		}
	}
	start := func(id semel.ID) *joined {
		t.Helper()
		j := &joined{store: s, link: begin()}
		if ok, err := j.Lock(t.Context(), id); err != nil || !ok {
			t.Fatalf("locked %v, %v", ok, err)
		}
		return j
	}
	first, second := numbered("k", 1), numbered("k", 2)
	claim := semel.Write{Record: first, Evidence: []semel.Entry{leaf("claimed"), {}}}
	done := semel.Write{Record: second, Expect: first.Revision, Evidence: leaves("done")}
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
	apply(j, semel.Write{Record: numbered("k", 3), Expect: second.Revision}, true)
	noError(t, j.link.commit(t.Context()))
	wantLog(t, s, "claimed", "", "done")
	list, err := s.ReadEvidence(t.Context(), 0, 10)
	if err != nil || list[0].Subject != (semel.Subject{1}) || string(list[0].Opening) != "opening" || list[1].Opening != nil || list[1].Subject != (semel.Subject{}) {
		t.Errorf("the entries are %v, %v", list, err)
	}
}

// TestPlansEvidence looks at how the server would run the statements of the log.
func TestPlansEvidence(t *testing.T) {
	s, database := open(t, Options{})
	appendLeaves(t, s, "a")
	wantLog(t, s, "a")
	var many []*op
	for i := range 50 {
		o, err := newOp(semel.Write{Record: numbered(fmt.Sprint("k", i), 1), Evidence: leaves("a")})
		noError(t, err)
		many = append(many, o)
	}
	check := func(t *testing.T, settings string) {
		for what, st := range map[string]*statement{
			"create": s.sql.creating(many), "update": s.sql.updating(many), "number": newStatement(s.log.number),
			"read":  newStatement(s.log.read, int8Value(9000), int8Value(9100)),
			"find":  newStatement(s.log.find, byteaValue(make([]byte, 16)), int8Value(0), int8Value(10)),
			"erase": newStatement(s.log.erase, int8Value(9000), int8Value(9100)),
			"tile":  newStatement(s.log.tile, textValue("t")),
		} {
			plan := explain(t, database, settings, st)
			if strings.Contains(plan, "Seq Scan on semel_evidence ") || strings.Contains(plan, "Seq Scan on semel_evidence_number") {
				t.Errorf("%s does not use an index:\n%s", what, plan)
			}
			if noted := what == "create" || what == "update"; noted && !strings.Contains(plan, "hashed SubPlan") {
				t.Errorf("%s compares each entry with each write:\n%s", what, plan)
			}
		}
	}
	pgtest.Shared(t).Exec(t, database, `INSERT INTO semel.semel_evidence (subject, leaf) SELECT substr(sha256(n::text::bytea), 1, 16), sha256(n::text::bytea) FROM generate_series(1, 20000) n`)
	readLog(t, s)
	pgtest.Shared(t).Exec(t, database, "ANALYZE")
	t.Run("on a direct connection", func(t *testing.T) { check(t, plans) })
	t.Run("through a pooler", func(t *testing.T) { check(t, "SELECT 1") })
}

// TestEvidenceOfTheClosed is about a store that has ended, and callers who have.
func TestEvidenceOfTheClosed(t *testing.T) {
	s, _ := open(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s.logTurn <- struct{}{} // as if another write were stuck
	time.AfterFunc(time.Millisecond, cancel)
	if err := s.AppendEvidence(ctx, leaves("a")); err == nil {
		t.Error("an append whose caller gave up was acknowledged")
	}
	<-s.logTurn
	mustClose(t, s)
	if err := s.AppendEvidence(t.Context(), leaves("a")); err == nil {
		t.Error("a closed store takes entries")
	}
	if _, err := s.ReadEvidence(t.Context(), 0, 1); err == nil {
		t.Error("a closed store is read")
	}
}
