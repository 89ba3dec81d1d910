package pgstore

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// explain is how the server would run the last of some statements.
func explain(t *testing.T, database string, settings map[string]string, list ...statement) string {
	t.Helper()
	return explainBy(t, "EXPLAIN ", database, settings, list...)
}

func explainBy(t *testing.T, how, database string, settings map[string]string, list ...statement) string {
	t.Helper()
	conn := pgtest.Shared(t).Conn(t, database)
	for name, value := range settings {
		if _, err := conn.Exec(t.Context(), "SELECT set_config($1, $2, false)", name, value); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := conn.Begin(t.Context())
	noError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var b strings.Builder
	st := list[len(list)-1]
	for _, before := range list[:len(list)-1] {
		noError(t, conn.PgConn().ExecParams(t.Context(), before.sql, nil, nil, nil, nil).Read().Err)
	}
	result := conn.PgConn().ExecParams(t.Context(), how+st.sql, st.args, nil, isBinary, isBinary).Read()
	noError(t, result.Err)
	for _, row := range result.Rows {
		b.WriteString(string(row[0]) + "\n")
	}
	return b.String()
}

// of is a statement with its parameters.
func of(sql string, args ...[]byte) []statement { return []statement{{sql: sql, args: args}} }

func TestPlans(t *testing.T) {
	s, database := open(t, Options{})
	searched := func(q *store.Query, from *place) []statement { return searching("semel", q, from, paging.Bytes) }
	hot := map[string]func(n int) []statement{
		"create": func(n int) []statement { return []statement{writing(t, s, n, store.Revision{}, nil)} },
		"update": func(n int) []statement { return []statement{writing(t, s, n, store.Revision{1}, nil)} },
		"create after duplicates": func(n int) []statement {
			w := s.sql.writes[true]
			return of(w.met, w.rows(map[string]any{}, planOps(t, s, n, store.Revision{}, nil), time.Second)...)
		},
		"create with evidence": func(n int) []statement {
			return []statement{writing(t, s, n, store.Revision{}, make([]store.Entry, 1))}
		},
		"update with evidence": func(n int) []statement {
			return []statement{writing(t, s, n, store.Revision{1}, make([]store.Entry, 1))}
		},
		"get": func(n int) []statement { return of(s.sql.get, array("bytea", make([][]byte, n))) },
		"due": func(int) []statement {
			return of(s.sql.due, bigint(time.Now().UnixNano()), bigint(time.Now().UnixNano()-1), make([]byte, 32), bigint(256), bigint(paging.Bytes))
		},
		"purge": func(n int) []statement {
			return of(s.sql.purge, array("bytea", make([][]byte, n)), array("bytea", make([][]byte, n)), []byte("100"))
		},
		"search": func(int) []statement {
			return searched(&store.Query{Limit: 50}, &place{at: time.Now().UnixNano(), id: []byte{}})
		},
		"search for an attribute": func(int) []statement {
			return searched(&store.Query{Limit: 50, Attributes: store.Attributes{"order": "9911"}, AttributePrefixes: store.Attributes{"user": "a"}}, nil)
		},
		"search for either of several names": func(int) []statement {
			return searched(&store.Query{Limit: 50, Any: [][]store.Query{{{Key: "k"}, {Attributes: store.Attributes{"order": "9911"}}, {AttributePrefixes: store.Attributes{"user": "a"}}}}}, nil)
		},
		"search for what is in flight": func(int) []statement {
			return searched(&store.Query{Limit: 1000, State: semel.Processing}, &place{at: time.Now().UnixNano(), id: []byte{}})
		},
		"search for what is held": func(int) []statement { return searched(&store.Query{Limit: 50, Held: true}, nil) },
		"search for a key":        func(int) []statement { return searched(&store.Query{Limit: 50, Key: "k"}, nil) },
		"create in a transaction": func(int) []statement { return []statement{joinedWrite(t, s, store.Revision{})} },
		"update in a transaction": func(int) []statement { return []statement{joinedWrite(t, s, store.Revision{1})} },
		"archive": func(n int) []statement {
			return []statement{{sql: s.sql.archive, args: arrays(nil, recordColumns, planOps(t, s, n, store.Revision{}, nil))}}
		},
		"evidence: append": func(n int) []statement {
			return of(s.log.append, arrays(nil, entryColumns, withID(nil, nil, make([]store.Entry, n)))...)
		},
		"evidence: read":  func(n int) []statement { return of(s.log.read, bigint(100), bigint(100+int64(n))) },
		"evidence: find":  func(n int) []statement { return of(s.log.find, make([]byte, 16), bigint(100), bigint(int64(n))) },
		"evidence: erase": func(n int) []statement { return of(s.log.erase, bigint(100), bigint(100+int64(n))) },
		"evidence: put": func(n int) []statement {
			return of(s.log.put, array("text", make([]string, n)), array("bytea", make([][]byte, n)))
		},
		"evidence: tile":   func(int) []statement { return of(s.log.tile, []byte("a")) },
		"evidence: number": func(int) []statement { return of(s.log.number) },
	}
	everyPlan(t, s, hot)
	check := func(t *testing.T, settings map[string]string, empty bool) {
		for what, statement := range hot {
			for _, n := range []int{1, 50} {
				st := statement(n)
				if st[len(st)-1].once && empty {
					continue // it is planned each time that it is sent
				}
				if plan := explain(t, database, settings, st...); !strings.Contains(plan, "Index") && !strings.Contains(plan, "Conflict Resolution: NOTHING") && !strings.Contains(plan, "Insert on semel_evidence_new") ||
					large.MatchString(plan) {
					t.Errorf("%s of %d rows does not use an index:\n%s", what, n, plan)
				} else if (what == "create" || what == "update") && strings.Contains(plan, "evidence") {
					t.Errorf("%s of %d rows looks for evidence, which there is none of:\n%s", what, n, plan)
				} else if what == "due" && (strings.Contains(plan, "Sort") || !strings.Contains(plan, "Index Cond: ((next_at <= ") || !strings.Contains(plan, "ROW(next_at, id) > ROW(")) {
					t.Errorf("a page of what is due is not read off the index:\n%s", plan)
				}
			}
		}
	}
	t.Run("on a direct connection to an empty table statements use indexes", func(t *testing.T) { check(t, plans, true) })
	rows := planRows(t)
	pgtest.Shared(t).Exec(t, database, fmt.Sprintf(`INSERT INTO semel.semel_records (id, revision, record, next_at, since, held, key, operation, state, principal, tenant, attributes)
		SELECT sha256(n::text::bytea), '\x00', convert_to(repeat('x', 400), 'UTF8'), n::bigint * %d, n, false, n::text, 'o', 'completed', 'u', 't', array_to_tsvector(ARRAY['order=' || n]) FROM generate_series(1, %d) n`, 2_000_000_000_000_000_000/rows, rows))
	pgtest.Shared(t).Exec(t, database, fmt.Sprintf(`INSERT INTO semel.semel_evidence (n, subject, leaf, opening) SELECT n, substr(sha256(n::text::bytea), 1, 16), '\x00', '\x00' FROM generate_series(0, %d) n;
		INSERT INTO semel.semel_evidence_also SELECT substr(sha256(n::text::bytea), 1, 16), n FROM generate_series(0, %[1]d) n;
		INSERT INTO semel.semel_evidence_tile SELECT 'tile/' || n, '\x00' FROM generate_series(0, %[1]d) n;
		ANALYZE semel.semel_records, semel.semel_evidence, semel.semel_evidence_also, semel.semel_evidence_tile`, rows/10))
	for how, settings := range map[string]map[string]string{"through a pooler": nil, "on a direct connection": plans} {
		t.Run(how+" statements on a filled table use indexes", func(t *testing.T) {
			check(t, settings, false)
			for _, what := range []string{"search for what is in flight", "search for what is held"} {
				if plan := explain(t, database, settings, hot[what](1)...); !strings.Contains(plan, "semel_records_processing") || strings.Contains(plan, "Sort  (") {
					t.Errorf("a %s isn't read off its index:\n%s", what, plan)
				}
			}
		})
	}
	for _, q := range []store.Query{
		{Attributes: store.Attributes{"order": "7"}},
		{Attributes: store.Attributes{"order": "none"}, Tenant: new("t"), State: semel.Completed},
		{AttributePrefixes: store.Attributes{"order": "1234"}},
		{Any: [][]store.Query{{{Key: "7"}, {Attributes: store.Attributes{"order": "7"}}, {Attributes: store.Attributes{"cart": "7"}, Tenant: new("t")}}}},
	} {
		for _, from := range []*place{nil, {at: int64(rows), id: []byte{}}} {
			for _, q.Limit = range []int{1, 50, 1000} {
				onlyAttributes(t, database, searching("semel", &q, from, paging.Bytes)...)
			}
		}
	}
}

// large finds a plan that reads a whole table, other than those that have few rows.
var large = regexp.MustCompile(`Seq Scan on (semel_records|semel_evidence|semel_evidence_also|semel_evidence_tile|idempotency_archive)\b`)

// everyPlan holds a table of statements to all that the store keeps: a new one belongs there,
// unless it reads no table. The clock's table has one row.
func everyPlan(t *testing.T, s *Store, hot map[string]func(n int) []statement) {
	t.Helper()
	known := map[string]bool{s.sql.notify: true, s.log.lock: true}
	for _, statement := range hot {
		for _, n := range []int{1, 50} {
			for _, st := range statement(n) {
				known[st.sql] = true
			}
		}
	}
	count := 0
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		for i := range v.NumField() {
			at := path + "." + v.Type().Field(i).Name
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				if count++; !known[f.String()] && f.String() != "" {
					t.Errorf("the plan of %s isn't looked at: %s", at, f)
				}
			case reflect.Struct:
				walk(at, f)
			case reflect.Map:
				for _, key := range f.MapKeys() {
					walk(fmt.Sprint(at, ".", key), f.MapIndex(key).Elem())
				}
			}
		}
	}
	walk("sql", reflect.ValueOf(s.sql))
	walk("log", reflect.ValueOf(s.log))
	if count < 21 {
		t.Errorf("there are %d statements, so some weren't found", count)
	}
}

// planRows is how many rows there are, each with an attribute of its own: a million in make
// prove. By hand there may be more: SEMEL_PLAN_ROWS=5000000 go test -run TestPlans -v ./store/pgstore
func planRows(t *testing.T) int {
	rows := 20_000
	switch {
	case thorough.Run():
		rows = 1_000_000
	case !testing.Short():
		rows = 100_000
	}
	if text := os.Getenv("SEMEL_PLAN_ROWS"); text != "" {
		n, err := strconv.Atoi(text)
		noError(t, err)
		rows = n
	}
	return rows
}

// onlyAttributes runs a search, which must find its rows by the index of attributes, and look at
// no others.
func onlyAttributes(t *testing.T, database string, sts ...statement) {
	t.Helper()
	for _, settings := range []map[string]string{nil, plans} {
		plan := explainBy(t, "EXPLAIN (ANALYZE, TIMING OFF) ", database, settings, sts...)
		t.Log(plan)
		if !strings.Contains(plan, "Bitmap Index Scan on semel_records_attributes") {
			t.Errorf("a search for an attribute doesn't use its index:\n%s", plan)
		}
		for line := range strings.Lines(plan) {
			if (strings.Contains(line, "Scan using semel_records_since") || strings.Contains(line, "Scan Backward using semel_records_since") || strings.Contains(line, "Seq Scan")) && !strings.Contains(line, "(never executed)") {
				t.Errorf("a search for an attribute reads other records:\n%s", plan)
			}
		}
	}
}

// planOps are so many writes.
func planOps(t *testing.T, s *Store, n int, expect store.Revision, evidence []store.Entry) (ops []*op) {
	t.Helper()
	for i := range n {
		o, err := s.newOp(store.Write{Record: new(numbered(fmt.Sprint("k", i), 1)), Expect: expect, Evidence: evidence})
		noError(t, err)
		ops = append(ops, o)
	}
	return ops
}

// writing is the statement of so many writes.
func writing(t *testing.T, s *Store, n int, expect store.Revision, evidence []store.Entry) statement {
	t.Helper()
	return s.writing(map[string]any{}, planOps(t, s, n, expect, evidence), time.Second)[0]
}

// joinedWrite is the statement of a write in a transaction of the application.
func joinedWrite(t *testing.T, s *Store, expect store.Revision) statement {
	t.Helper()
	w := s.sql.writes[expect.IsZero()]
	return statement{sql: w.join, args: append(w.noting(map[string]any{}, planOps(t, s, 1, expect, nil), time.Second), []byte("100"))}
}
