package pgstore

import (
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// explain is how the server would run a statement.
func explain(t *testing.T, database string, settings string, st *statement) string {
	t.Helper()
	conn := pgtest.Shared(t).Conn(t, database)
	if _, err := conn.PgConn().Exec(t.Context(), settings).ReadAll(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r := conn.PgConn().ExecParams(t.Context(), "EXPLAIN "+st.sql.any, st.values, st.oids, binaryFormat, nil).Read()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, row := range r.Rows {
		b.Write(row[0])
		b.WriteByte('\n')
	}
	return b.String()
}

func TestPlans(t *testing.T) {
	s, database := open(t, Options{})
	var many []*op
	for i := range 50 {
		o, err := newOp(semel.Write{Record: numbered(string(rune('a'+i)), 1)})
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, o)
	}
	hot := map[string]func(ops []*op) *statement{
		"create": s.sql.creating, "update": s.sql.updating,
		"get": func(ops []*op) *statement { return s.sql.getting([]digest{ops[0].id}) },
		"due": func([]*op) *statement {
			return s.sql.duePage(semel.InstantOf(time.Now()), place{at: time.Now().UnixNano() - 1, id: make([]byte, 32)}, 256)
		},
		"purge": func(ops []*op) *statement {
			ids, revisions := byteaColumn(len(ops), 32), byteaColumn(len(ops), 16)
			for _, o := range ops {
				ids.bytes(o.id[:])
				revisions.bytes(o.write.Record.Revision[:])
			}
			return newStatement(s.sql.purge, ids, revisions)
		},
		"search": func([]*op) *statement {
			return s.searching(&semel.Query{Limit: 50}, &place{at: time.Now().UnixNano()})
		},
		"search for a key": func([]*op) *statement {
			return s.searching(&semel.Query{Limit: 50, Key: "k"}, nil)
		},
	}
	check := func(t *testing.T, settings string) {
		for what, make := range hot {
			for _, ops := range [][]*op{many[:1], many} {
				if plan := explain(t, database, settings, make(ops)); !strings.Contains(plan, "Index") && !strings.Contains(plan, "Conflict Arbiter") ||
					strings.Contains(plan, "Seq Scan on idempotency_log") {
					t.Errorf("%s of %d rows does not use an index:\n%s", what, len(ops), plan)
				} else if what == "due" && (strings.Contains(plan, "Sort") || !strings.Contains(plan, "Index Cond: ((next_at <= ") || !strings.Contains(plan, "ROW(next_at, id) > ROW(")) {
					t.Errorf("a page of what is due is not read off the index:\n%s", plan)
				}
			}
		}
	}
	t.Run("on a direct connection to an empty table statements use indexes", func(t *testing.T) { check(t, plans) })
	pgtest.Shared(t).Exec(t, database, `INSERT INTO semel.idempotency_log (id, revision, record, next_at, since, held, idempotency_key, operation_type, status, user_id, session_id)
		SELECT sha256(n::text::bytea), '\x00', '\x00', n * 100000000000000, n, false, n::text, 'o', 'completed', 'u', 't' FROM generate_series(1, 20000) n`)
	pgtest.Shared(t).Exec(t, database, "ANALYZE semel.idempotency_log")
	t.Run("through a pooler statements on a filled table use indexes", func(t *testing.T) { check(t, "SELECT 1") })
}
