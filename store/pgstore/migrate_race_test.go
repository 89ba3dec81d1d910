package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestMigratingAtOnce lets ten processes, each with its own pool, migrate a schema that isn't
// there, round after round: in a database that would show them the past by default, and beside
// a tool that runs the printed SQL.
func TestMigratingAtOnce(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.Database(t)
	server.Exec(t, database, fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = 'repeatable read'", quote(database)))
	pools := make([]*pgxpool.Pool, 10)
	for i := range pools {
		pools[i] = newTestPool(t, server.URL(database))
	}
	known, err := migrations()
	noError(t, err)
	atOnce := func(do func(i int) error) {
		var wg sync.WaitGroup
		for i := range pools {
			wg.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for round := range 10 {
		schema := fmt.Sprintf("it's %d", round)
		made := make([]int, len(pools))
		atOnce(func(i int) error {
			list, err := Migrate(t.Context(), pools[i], schema)
			made[i] = len(list)
			return err
		})
		total := 0
		for _, n := range made {
			total += n
		}
		if total != len(known) {
			t.Fatalf("round %d: %d migrations were made, want %d", round, total, len(known))
		}
	}
	for round := range 3 {
		schema := fmt.Sprintf("printed %d", round)
		var sql strings.Builder
		noError(t, Print(&sql, schema))
		atOnce(func(i int) error {
			if i > 0 {
				_, err := Migrate(t.Context(), pools[i], schema)
				return err
			}
			err := printed(t.Context(), pools[i], sql.String())
			if err != nil && strings.Contains(err.Error(), "already exists") && !strings.Contains(err.Error(), "pg_") {
				return nil // another one was first, and the SQL is for a schema that has nothing
			}
			return err
		})
	}
}

// printed runs the SQL that Print wrote, as a tool does.
func printed(ctx context.Context, pool *pgxpool.Pool, sql string) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// TestSchemaIsTheLastMigration: the number that the program says is that of its newest migration.
func TestSchemaIsTheLastMigration(t *testing.T) {
	all, err := migrations()
	if err != nil || len(all) != Schema {
		t.Errorf("there are %d migrations, %v, and Schema is %d", len(all), err, Schema)
	}
}
