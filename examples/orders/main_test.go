package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/stage"
)

// TestMain lets this test binary be the example, too.
func TestMain(m *testing.M) {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return serve(ctx, l, args[0])
	})
	if !isNode {
		os.Exit(pgtest.Main(m))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// deliver delivers an order, and returns the status and the body of the answer.
func deliver(ctx context.Context, url string, n int) (status int, body string) {
	order := fmt.Sprintf(`{"cart":"cart-mandate-%d","cents":%d}`, n, 100+n)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(order))
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

func TestOrders(t *testing.T) {
	clause.Proves(t, "MAP-ORD.1", "MAP-FLOW.5")
	if testing.Short() {
		t.Skip("processes are not started with -short")
	}
	server := pgtest.Shared(t)
	t.Run("every order is made once while the processes are killed", func(t *testing.T) {
		storm(t, server.URL(server.Database(t)), 300, 6)
	})
	t.Run("ten processes make the tables at once", func(t *testing.T) {
		database := server.Database(t)
		for round := range 8 {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					_, closeAll, err := open(t.Context(), server.URL(database))
					if err == nil {
						err = closeAll()
					}
					if err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			wg.Wait()
			server.Exec(t, database, "DROP TABLE orders, statistics; DROP SCHEMA semel CASCADE")
		}
	})
	t.Run("the database refuses a second order of a cart by itself", func(t *testing.T) {
		shop, closeAll, err := open(t.Context(), server.URL(server.Database(t)))
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
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
}

// storm delivers each order five times at once, to three processes that are killed at even
// distances and started again, and counts in the database.
func storm(t *testing.T, database string, orders, kills int) {
	const copies = 5
	var nodes [3]*stage.Node
	for i := range nodes {
		n, err := stage.StartSelf(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Kill)
		nodes[i] = n
	}
	var receipts stage.Counts
	var executed, again atomic.Int64
	load := stage.Load{
		Senders: 18, Pause: 20 * time.Millisecond, Times: kills,
		Try: func(ctx context.Context, n int) (bool, error) {
			status, body := deliver(ctx, nodes[rand.IntN(len(nodes))].URL(), n)
			switch status {
			case http.StatusCreated:
				executed.Add(1)
			case http.StatusOK:
			case 0, http.StatusServiceUnavailable:
				again.Add(1)
				return false, nil
			default:
				return false, fmt.Errorf("order %d: %d %s", n, status, body)
			}
			receipts.Add(fmt.Sprint(n), body)
			return true, nil
		},
		Disturb: func(ctx context.Context) error { return nodes[rand.IntN(len(nodes))].Crash(ctx) },
	}
	for n := range orders {
		for range copies { // one behind the other, so that they run at once
			load.Calls = append(load.Calls, n)
		}
	}
	if err := load.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes { // the server counts the deadlocks of a session when it ends
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var rows, counted, held, deadlocks int
	err = conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders), (SELECT sum(orders) FROM statistics),
		(SELECT count(*) FROM semel.semel_records WHERE held OR state = 'processing'),
		(SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())`).Scan(&rows, &counted, &held, &deadlocks)
	if err != nil || rows != orders || counted != orders || held != 0 || deadlocks != 0 {
		t.Errorf("%d orders, %d in the statistics, %d held, %d deadlocks, %v", rows, counted, held, deadlocks, err)
	}
	if differing := receipts.Differing(); receipts.Sum() != orders*copies || len(differing) > 0 || executed.Load() > int64(orders) {
		t.Errorf("%d answers, %d by the delivery that made the order; %q got different ones", receipts.Sum(), executed.Load(), differing)
	}
	if again.Load() == 0 {
		t.Error("no kill cost a delivery")
	}
	t.Logf("%d orders, each delivered %d times and %d more, %d kills: %d rows", orders, copies, again.Load(), kills, rows)
}
