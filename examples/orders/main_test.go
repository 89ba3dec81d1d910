package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/clause"
)

// TestMain makes the test's own program a worker, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// private starts a server for the test.
func private(t *testing.T) *server {
	t.Helper()
	s, err := startServer(t.Context())
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("SEMEL_REQUIRE_SERVICES") != "1" {
		t.Skip("there is no PostgreSQL server: install the package postgresql")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestOrders(t *testing.T) {
	clause.Proves(t, "MAP-ORD.1", "MAP-FLOW.5")
	s := private(t)
	t.Run("every order is made once while the workers are killed", func(t *testing.T) {
		var out bytes.Buffer
		ok, err := run(t.Context(), []string{"--json", "--database", s.url(), "--orders", "300", "--kills", "6"}, &out)
		var sum summary
		if err := errors.Join(err, json.Unmarshal(out.Bytes(), &sum)); err != nil || !ok {
			t.Fatalf("%v\n%s", err, &out)
		}
		// The numbers, and not only the example's own verdict on them.
		if sum.Rows != 300 || sum.Counted != 300 || sum.Kills != 6 || sum.Deadlocks != 0 || sum.Held != 0 || sum.Differing != 0 {
			t.Errorf("%+v", sum)
		}
		if sum.Executed+sum.Duplicates != 1500 || sum.Deliveries <= 1500 {
			t.Errorf("the answers don't add up, or no kill cost a delivery: %+v", sum)
		}
	})
	t.Run("it removes what it made", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), s.url())
		if err != nil {
			t.Fatal(err)
		}
		var n int
		err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'orders\\_%'").Scan(&n)
		if err := errors.Join(err, conn.Close(t.Context())); err != nil || n != 0 {
			t.Errorf("%d schemas are left, %v", n, err)
		}
	})
	t.Run("the database refuses a second order of a cart by itself", func(t *testing.T) {
		schema, err := newSchema(t.Context(), s.url())
		if err != nil {
			t.Fatal(err)
		}
		shop, err := openShop(t.Context(), s.url(), schema, false)
		if err != nil {
			t.Fatal(err)
		}
		first, ans, err := shop.create(t.Context(), order{Cart: "c", Cents: 5})
		if err != nil || ans.Decision != semel.Execute {
			t.Fatalf("%+v, %v", ans, err)
		}
		if again, ans, err := shop.create(t.Context(), order{Cart: "c", Cents: 5}); err != nil || again != first || ans.Decision != semel.Replay {
			t.Errorf("again: %+v, %+v, %v", again, ans, err)
		}
		if _, _, err := shop.create(t.Context(), order{Cart: "c", Cents: 6}); !errors.Is(err, semel.ErrConflict) {
			t.Errorf("another payload: %v", err)
		}
		_, err = shop.pool.Exec(t.Context(), "INSERT INTO orders (cart, cents) VALUES ('c', 5)")
		if pe, ok := errors.AsType[*pgconn.PgError](err); !ok || pe.Code != "23505" {
			t.Errorf("a second row: %v", err)
		}
		if err := errors.Join(shop.remove(t.Context()), shop.close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func TestFaults(t *testing.T) {
	good := summary{Orders: 10, Rows: 10, Counted: 10, Executed: 9, Duplicates: 41, Kills: 2}
	o := options{orders: 10, copies: 5, kills: 2}
	if faults := good.faults(&o); len(faults) > 0 {
		t.Fatalf("a good run: %v", faults)
	}
	for name, spoil := range map[string]func(*summary){
		"a row too many":             func(s *summary) { s.Rows++ },
		"an order counted twice":     func(s *summary) { s.Counted++ },
		"an answer missing":          func(s *summary) { s.Duplicates-- },
		"an order made twice":        func(s *summary) { s.Executed, s.Duplicates = 11, 39 },
		"an answer that differs":     func(s *summary) { s.Differing++ },
		"a deadlock":                 func(s *summary) { s.Deadlocks++ },
		"a record without an end":    func(s *summary) { s.Held++ },
		"a kill that did not happen": func(s *summary) { s.Kills-- },
	} {
		t.Run("it tells of "+strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			bad := good
			spoil(&bad)
			if faults := bad.faults(&o); len(faults) != 1 {
				t.Errorf("faults: %v", faults)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"--orders", "0"}, {"--workers", "-1"}, {"--orders", "2", "--kills", "100"}, {"--what"}} {
		if ok, err := run(t.Context(), args, &bytes.Buffer{}); ok || err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
