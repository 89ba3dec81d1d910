package pgstore

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// TestNewFromAPool: the store goes where the application's pool goes, takes none of
// its connections, and leaves its settings behind.
func TestNewFromAPool(t *testing.T) {
	server := pgtest.Shared(t)
	config, err := pgxpool.ParseConfig(server.URL(server.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	var asked, prepared atomic.Int32
	right := config.ConnConfig.Database
	config.MaxConns = 1
	config.ConnConfig.Database = "there_is_none"
	config.ConnConfig.RuntimeParams["statement_timeout"] = "1"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		asked.Add(1)
		c.Database = right
		return nil
	}
	config.AfterConnect = func(context.Context, *pgx.Conn) error { prepared.Add(1); return nil }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Release()
	own := prepared.Load()
	s, err := New(t.Context(), pool, &Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	var timeout string
	if err := s.reads.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&timeout); err != nil || timeout != "0" {
		t.Errorf("statements end after %s, %v", timeout, err)
	}
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "order"}}})
	if err != nil {
		t.Fatal(err)
	}
	ans, err := e.Do(t.Context(), semel.Call{Operation: "order", Key: "k"}, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{}, nil
	})
	if err != nil || ans.Decision != semel.Execute {
		t.Errorf("%v, %v", ans.Decision, err)
	}
	if asked.Load() < 2 || prepared.Load() != own {
		t.Errorf("BeforeConnect was called %d times, and AfterConnect %d times by the store", asked.Load(), prepared.Load()-own)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
