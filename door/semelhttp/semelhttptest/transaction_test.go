package semelhttptest_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelhttp/semelhttptest"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/pgstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestTransactions: a route whose handler writes in the transaction of its call is tested
// on the database that it writes to.
func TestTransactions(t *testing.T) {
	server := pgtest.Shared(t)
	pool, err := pgxpool.New(t.Context(), server.URL(server.Database(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	st, err := pgstore.New(t.Context(), pool, &pgstore.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := pool.Exec(t.Context(), "CREATE TABLE charges (body text)"); err != nil {
		t.Fatal(err)
	}
	s := semelhttptest.NewOn(t, st)
	h := s.Guard.Handler(semelhttp.Route{Tx: pgstore.Transactions(pool), Operation: semel.Operation{Name: "charge"}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx, ok := pgstore.TxFrom(r.Context())
			if !ok {
				t.Fatal("the handler has no transaction")
			}
			if _, err := tx.Exec(r.Context(), "INSERT INTO charges VALUES ('one')"); err != nil {
				t.Error(err)
			}
			if r.Header.Get("Idempotency-Key") == "refused" {
				http.Error(w, "sold out", http.StatusConflict)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "charged")
		}))
	rows := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM charges").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}

	first, again := s.Post(h, "order-1", `{}`), s.Post(h, "order-1", `{}`)
	if first.Code != 201 || again.Code != 201 || again.Body.String() != "charged" || !semelhttptest.Replayed(again) || rows() != 1 {
		t.Errorf("%d, %d %s, %d rows", first.Code, again.Code, again.Body, rows())
	}
	if w := s.Post(h, "refused", `{}`); w.Code != 409 || rows() != 1 {
		t.Errorf("a refusal: %d, %d rows", w.Code, rows())
	}
	if s.Store != nil {
		t.Error("there is a store in memory, too")
	}
}

// TestOnlyItsOwnClockMoves: on a store of one's own nothing could be moved.
func TestOnlyItsOwnClockMoves(t *testing.T) {
	probe := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		semelhttptest.NewOn(probe, semelhttptest.New(t, nil).Store).Advance(time.Hour)
	}()
	<-done
	if probe.fatal == "" {
		t.Error("a clock was moved that nobody can move")
	}
}

// recorder takes the fatal error of a test in its place.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatal(args ...any) {
	r.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}
