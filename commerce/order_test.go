package commerce_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pgstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func newOrders(t *testing.T, m *commerce.Mandates) *commerce.Orders {
	t.Helper()
	orders, err := commerce.NewOrders(m, semel.Operation{})
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

// TestOrderOnce: a mandate is ordered once, by its buyer, and only in time; the order that
// was placed can be asked for also when the mandate is over.
func TestOrderOnce(t *testing.T) {
	clause.Proves(t, "MAP-ORD.1", "MAP-CART.4")
	in(t, func(t *testing.T, engine *semel.Engine, m *commerce.Mandates) {
		orders := newOrders(t, m)
		first := made(t, m, alice, "s1", cart)
		runs := 0
		place := func(b commerce.Buyer, mandate string) (string, error) {
			ans, err := orders.Place(t.Context(), b, mandate, func(_ context.Context, _ semel.Execution, got commerce.Mandate) (semel.Result, error) {
				runs++
				return semel.Result{Data: []byte("order of " + got.Hash)}, nil
			})
			if err != nil {
				return "", err
			}
			return string(ans.Record.Result.Data), nil
		}
		want := func(when, mandate string, n int) {
			t.Helper()
			if got, err := place(alice, mandate); err != nil || got != "order of "+first.Hash || runs != n {
				t.Errorf("%s: %s, %v, placed %d times", when, got, err, runs)
			}
		}
		refused := func(when string, b commerce.Buyer, mandate string, code semel.Code, expired bool) {
			t.Helper()
			for range 2 { // the second gets what was recorded
				if _, err := place(b, mandate); !errors.Is(err, &semel.Error{Code: code}) || errors.Is(err, commerce.ErrMandateExpired) != expired {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
		want("in time", first.ID, 1)
		want("again", first.ID, 1)
		refused("by another user", commerce.Buyer{Tenant: "acme", User: "bob"}, first.ID, semel.CodeRejected, false)
		refused("of no mandate", alice, "nothing", semel.CodeRejected, false)
		second := made(t, m, alice, "s2", cart)

		pass(30 * time.Minute)
		want("again, after the mandate", first.ID, 1)
		refused("too late", alice, second.ID, semel.CodeRejected, true)
		third := made(t, m, alice, "s2", cart)
		want("by a new mandate of the same cart", third.ID, 2)
		refused("by the old mandate", alice, second.ID, semel.CodeRejected, true)
	})
}

// TestOrderThatFailed: an order that was begun in time and proved to have done nothing isn't
// placed after the mandate's end.
func TestOrderThatFailed(t *testing.T) {
	clause.Proves(t, "MAP-CART.4")
	in(t, func(t *testing.T, _ *semel.Engine, m *commerce.Mandates) {
		orders := newOrders(t, m)
		mandate := made(t, m, alice, "s1", cart).ID
		place := func() error {
			_, err := orders.Place(t.Context(), alice, mandate, func(context.Context, semel.Execution, commerce.Mandate) (semel.Result, error) {
				return semel.Result{}, semel.Aborted(errors.New("no connection"))
			})
			return err
		}
		if err := place(); !errors.Is(err, &semel.Error{Code: semel.CodeAborted}) {
			t.Error(err)
		}
		pass(30 * time.Minute)
		if err := place(); !errors.Is(err, commerce.ErrMandateExpired) {
			t.Error(err)
		}
	})
}

func TestOrdersOutliveMandates(t *testing.T) {
	m, err := commerce.NewMandates(newEngine(t), commerce.MandateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commerce.NewOrders(m, semel.Operation{Window: 29 * time.Minute}); err == nil {
		t.Error("an order may be forgotten before its mandate")
	}
}

// TestOrderInTheDatabase: two nodes place the order in the transaction of its call, and the
// database's own constraint refuses a second order where the engine isn't asked, or was told
// to forget.
func TestOrderInTheDatabase(t *testing.T) {
	clause.Proves(t, "MAP-ORD.1")
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t))
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE orders (id serial PRIMARY KEY, cart_mandate_id text NOT NULL UNIQUE)"); err != nil {
		t.Fatal(err)
	}
	type node struct {
		engine   *semel.Engine
		mandates *commerce.Mandates
		orders   *commerce.Orders
	}
	nodes := make([]node, 2)
	for i := range nodes {
		st, err := pgstore.Open(t.Context(), url, &pgstore.Options{Migrate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		engine, err := semel.New(st, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engine.Close(context.Background()) })
		mandates, err := commerce.NewMandates(engine, commerce.MandateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = node{engine, mandates, newOrders(t, mandates)}
	}
	mandate := made(t, nodes[0].mandates, alice, "s1", cart).ID
	insert := func(ctx context.Context, n node) (semel.Result, error) {
		tx, ok := pgstore.TxFrom(ctx)
		if !ok {
			return semel.Result{}, errors.New("there is no transaction")
		}
		m, err := n.mandates.Require(ctx, nil, alice, mandate)
		if err != nil {
			return semel.Result{}, err
		}
		_, err = tx.Exec(ctx, "INSERT INTO orders (cart_mandate_id) VALUES ($1)", m.ID)
		return semel.Result{Data: []byte("placed")}, err
	}
	place := func(n node) error {
		call, err := n.orders.Call(alice, mandate)
		if err != nil {
			return err
		}
		call.Wait = 10 * time.Second
		_, err = pgstore.Transactions(pool).DoTx(t.Context(), n.engine, call, func(ctx context.Context) (semel.Result, error) { return insert(ctx, n) })
		return err
	}
	orders := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			if err := place(nodes[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	if group.Wait(); orders() != 1 {
		t.Fatalf("%d orders", orders())
	}

	twice := func(err error) bool {
		refused, ok := errors.AsType[*pgconn.PgError](err)
		return ok && refused.Code == "23505"
	}
	// Without the engine: the statement itself.
	if _, err := pool.Exec(t.Context(), "INSERT INTO orders (cart_mandate_id) VALUES ($1)", mandate); !twice(err) {
		t.Errorf("the database took a second order: %v", err)
	}
	// An engine that knows nothing of the first order: it has another operation.
	other, err := commerce.NewOrders(nodes[0].mandates, semel.Operation{Name: "commerce.order@2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := place(node{nodes[0].engine, nodes[0].mandates, other}); !twice(err) || orders() != 1 {
		t.Errorf("%v, %d orders", err, orders())
	}
}
