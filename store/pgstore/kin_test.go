package pgstore

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// witnessOfNothing is a [semel.Witness] that is never asked.
type witnessOfNothing struct{ semel.Witness }

// TestKin: a server that says that it is another engine carries out plain deliveries,
// and refuses what rests on PostgreSQL.
func TestKin(t *testing.T) {
	server := pgtest.Shared(t)
	for name, version := range map[string]string{
		"CockroachDB": "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/20 16:13:22, go1.22.3)",
		"YugabyteDB":  "PostgreSQL 11.2-YB-2.21.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit",
	} {
		t.Run(name, func(t *testing.T) {
			db := server.Database(t)
			server.Exec(t, db, "CREATE SCHEMA fake")
			server.Exec(t, db, "CREATE FUNCTION fake.version() RETURNS text LANGUAGE sql AS $$ SELECT '"+version+"'::text $$")
			at := server.URL(db)
			separator := "?"
			if strings.Contains(at, "?") {
				separator = "&"
			}
			at += separator + "search_path=" + url.QueryEscape("fake,pg_catalog")
			s := mustOpen(t, at, &Options{Migrate: true})
			defer mustClose(t, s)
			d, err := s.Durability(t.Context())
			if err != nil || d.Level != store.LevelUnknown || len(d.Unsafe) != 1 || !strings.Contains(d.Unsafe[0], name) {
				t.Errorf("the level is %s, %q, %v", d.Level, d.Unsafe, err)
			}
			e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "order"}}, Witness: witnessOfNothing{}})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			if err := e.Register(semel.Operation{Name: "evident", Evidence: semel.EvidenceChanges}); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("evidence: %v", err)
			}
			call := semel.Call{Operation: "order", Key: "k"}
			pool, err := pgxpool.New(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			ran := false
			_, err = Do(t.Context(), e, pool, call, func(context.Context, pgx.Tx) (semel.Result, error) {
				ran = true
				return semel.Result{}, nil
			})
			if err == nil || !strings.Contains(err.Error(), name) || ran || Transactions(pool).Check(e) == nil {
				t.Errorf("in a transaction: %v, ran %t", err, ran)
			}
			for _, want := range []semel.Decision{semel.Execute, semel.Replay} {
				ans, err := e.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
				if err != nil || ans.Decision != want {
					t.Errorf("a plain delivery: %v, %v", ans.Decision, err)
				}
			}
		})
	}
}
