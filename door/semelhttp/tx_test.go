package semelhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pgstore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// txWorld is a guarded handler that writes orders in the transaction of its call.
type txWorld struct {
	t     *testing.T
	pool  *pgxpool.Pool
	guard http.Handler
	store *pgstore.Store
	runs  atomic.Int32
}

func newTxWorld(t *testing.T, rt semelhttp.Route, handler func(w http.ResponseWriter, r *http.Request, tx pgx.Tx)) *txWorld {
	t.Helper()
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t))
	w := &txWorld{t: t}
	var err error
	if w.store, err = pgstore.Open(t.Context(), url, &pgstore.Options{Migrate: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	if w.pool, err = pgxpool.New(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	if _, err := w.pool.Exec(t.Context(), "CREATE TABLE orders (id serial, note text)"); err != nil {
		t.Fatal(err)
	}
	engine, err := semel.New(w.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	rt.Operation.Name, rt.Anonymous = "orders.create", semelhttp.AnonymousShare
	if rt.Tx == nil {
		rt.Tx = pgstore.Transactions(w.pool)
	}
	w.guard = guard.Handler(rt, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.runs.Add(1)
		tx, ok := pgstore.TxFrom(r.Context())
		if !ok {
			t.Error("the handler has no transaction")
			return
		}
		handler(rw, r, tx)
	}))
	return w
}

func (w *txWorld) request(key string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("a lamp"))
	r.Header.Set("Idempotency-Key", key)
	return r
}

func (w *txWorld) send(key string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.guard.ServeHTTP(rec, w.request(key))
	return rec
}

func (w *txWorld) orders() (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// want checks an answer, the number of runs so far, and the rows.
func (w *txWorld) want(rec *httptest.ResponseRecorder, status, runs, orders int) {
	w.t.Helper()
	if rec.Code != status || int(w.runs.Load()) != runs || w.orders() != orders {
		w.t.Errorf("%d after %d runs, %d orders; want %d, %d, %d: %s", rec.Code, w.runs.Load(), w.orders(), status, runs, orders, rec.Body)
	}
}

// insert writes one order.
func insert(r *http.Request, tx pgx.Tx) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, err = tx.Exec(r.Context(), "INSERT INTO orders (note) VALUES ($1)", string(body))
	}
	return err
}

func answering(status int, body string) func(http.ResponseWriter, *http.Request, pgx.Tx) {
	return func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
		if err := insert(r, tx); err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestTxRoute(t *testing.T) {
	t.Parallel()
	t.Run("rows and answer commit together, and a duplicate gets the answer", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, answering(201, "made"))
		w.want(w.send("k"), 201, 1, 1)
		again := w.send("k")
		w.want(again, 201, 1, 1)
		if again.Body.String() != "made" || again.Header().Get("Idempotency-Replayed") != "true" || again.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("the replay is %v, %s", again.Header(), again.Body)
		}
	})
	t.Run("a refusal is recorded, and its rows are not", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, answering(409, "sold out"))
		w.want(w.send("k"), 409, 1, 0)
		again := w.send("k")
		w.want(again, 409, 1, 0)
		if again.Body.String() != "sold out" {
			t.Error(again.Body)
		}
	})
	t.Run("a statement that failed does not keep the refusal from being recorded", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			if _, err := tx.Exec(r.Context(), "SELECT 1/0"); err == nil {
				t.Error("it did not fail")
			}
			http.Error(w, "no", http.StatusUnprocessableEntity)
		})
		w.want(w.send("k"), 422, 1, 0)
		w.want(w.send("k"), 422, 1, 0)
	})
	t.Run("what says nothing about the call leaves nothing", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, answering(429, "later"))
		w.want(w.send("k"), 429, 1, 0)
		w.want(w.send("k"), 429, 2, 0)
	})
	for _, status := range []int{408, 502, 503, 504, 524} {
		t.Run(strconv.Itoa(status)+" proves nothing, but what it took back wasn't done", func(t *testing.T) {
			w := newTxWorld(t, semelhttp.Route{Operation: semel.Operation{OnFailure: semel.ReplayFailure}}, answering(status, "lost"))
			w.want(w.send("k"), status, 1, 0)
			w.want(w.send("k"), status, 2, 0)
		})
	}
	t.Run("a failure takes its rows back, and the next delivery runs", func(t *testing.T) {
		fail := true
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			status := 201
			if fail {
				status = 500
			}
			answering(status, "x")(w, r, tx)
		})
		w.want(w.send("k"), 500, 1, 0)
		fail = false
		w.want(w.send("k"), 201, 2, 1)
		w.want(w.send("k"), 201, 2, 1)
	})
	t.Run("a failure that is to be replayed is", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{Operation: semel.Operation{OnFailure: semel.ReplayFailure}}, answering(500, "broken"))
		w.want(w.send("k"), 500, 1, 0)
		again := w.send("k")
		w.want(again, 500, 1, 0)
		if again.Body.String() != "broken" {
			t.Error(again.Body)
		}
	})
	t.Run("a panic takes its rows back and holds nothing", func(t *testing.T) {
		fail := true
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			answering(201, "x")(w, r, tx)
			if fail {
				panic(http.ErrAbortHandler)
			}
		})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not pass")
				}
			}()
			w.send("k")
		}()
		fail = false
		w.want(w.send("k"), 201, 2, 1)
	})
	t.Run("a proof that nothing happened, or a doubt, rolls everything back", func(t *testing.T) {
		for _, conclude := range []func(context.Context, string, semelhttp.Refusal){semelhttp.Refuted, semelhttp.Silent, semelhttp.Held} {
			w := newTxWorld(t, semelhttp.Route{}, func(_ http.ResponseWriter, r *http.Request, tx pgx.Tx) {
				if err := insert(r, tx); err != nil {
					t.Error(err)
				}
				conclude(r.Context(), "it says so", semelhttp.Refusal{Status: 502, Code: "x", Title: "X", Detail: "x"})
			})
			w.want(w.send("k"), 502, 1, 0)
			w.want(w.send("k"), 502, 2, 0)
		}
	})
}

// Whatever a handler leaves open was rolled back, and its caller gets no success.
func TestTxRouteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	money := semel.Operation{Financial: true, OnExpiry: semel.DeleteExpired}
	for name, c := range map[string]struct {
		op     semel.Operation
		answer func(http.ResponseWriter, *http.Request)
		status int
	}{
		"no answer about money":                {money, func(http.ResponseWriter, *http.Request) {}, 503},
		"a panic that was recovered, silently": {semel.Operation{}, func(_ http.ResponseWriter, r *http.Request) { semelhttp.Panicked(r.Context()) }, 503},
		"a panic that was recovered, by a 500": {semel.Operation{}, func(w http.ResponseWriter, r *http.Request) { semelhttp.Panicked(r.Context()); w.WriteHeader(500) }, 500},
		"a success that says it may be another": {semel.Operation{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Semel-Effect", "unknown")
			w.WriteHeader(201)
		}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTxWorld(t, semelhttp.Route{Operation: c.op}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
				if err := insert(r, tx); err != nil {
					t.Error(err)
				}
				c.answer(w, r)
			})
			w.want(w.send("k"), c.status, 1, 0)
			w.want(w.send("k"), c.status, 2, 0)
		})
	}
	t.Run("no answer elsewhere is net/http's", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, func(_ http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			if err := insert(r, tx); err != nil {
				t.Error(err)
			}
		})
		w.want(w.send("k"), 200, 1, 1)
		w.want(w.send("k"), 200, 1, 1)
	})
}

func TestTxRouteAnswers(t *testing.T) {
	t.Parallel()
	t.Run("one that is too large rolls everything back", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{Operation: semel.Operation{MaxResult: 100}}, answering(201, strings.Repeat("x", 200)))
		rec := w.send("k")
		w.want(rec, 500, 1, 0)
		if !strings.Contains(rec.Body.String(), string(door.CodeAnswerTooLarge)) {
			t.Error(rec.Body)
		}
	})
	t.Run("one that is flushed is kept like others", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			w.WriteHeader(http.StatusEarlyHints)
			answering(201, "a")(w, r, tx)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "b")
		})
		first := w.send("k")
		w.want(first, 201, 1, 1)
		if first.Flushed || w.send("k").Body.String() != "ab" {
			t.Error("it left before it was recorded")
		}
	})
	t.Run("a connection is not handed over", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, _ *http.Request, _ pgx.Tx) {
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijacking gives %v", err)
			}
			w.WriteHeader(http.StatusSwitchingProtocols)
		})
		w.want(w.send("k"), 500, 1, 0)
	})
	t.Run("one that is not to be kept is given once", func(t *testing.T) {
		w := newTxWorld(t, semelhttp.Route{KeepNothing: true}, answering(201, "secret"))
		first := w.send("k")
		w.want(first, 201, 1, 1)
		if first.Body.String() != "secret" {
			t.Error(first.Body)
		}
		w.want(w.send("k"), 410, 1, 1)
	})
}

func TestTxRouteUnderWay(t *testing.T) {
	t.Parallel()
	t.Run("a caller that hangs up stops neither the handler nor the commit", func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			hangUp()
			answering(201, "made")(w, r, tx)
		})
		w.guard.ServeHTTP(httptest.NewRecorder(), w.request("k").WithContext(ctx))
		again := w.send("k")
		w.want(again, 201, 1, 1)
	})
	t.Run("an answer after the deadline is late, and everything is rolled back", func(t *testing.T) {
		t.Parallel()
		slow := true
		w := newTxWorld(t, semelhttp.Route{Timeout: 3 * time.Second}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			answering(201, "made")(w, r, tx)
			if slow {
				<-r.Context().Done()
			}
		})
		w.want(w.send("k"), 503, 1, 0)
		slow = false
		w.want(w.send("k"), 201, 2, 1)
	})
	t.Run("a duplicate meanwhile is in flight, or waits for the answer", func(t *testing.T) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			close(begun)
			<-goOn
			answering(201, "made")(w, r, tx)
		})
		var done sync.WaitGroup
		done.Go(func() { w.send("k") })
		<-begun
		if rec := w.send("k"); rec.Code != 409 || !strings.Contains(rec.Body.String(), "in_flight") {
			t.Errorf("%d, %s", rec.Code, rec.Body)
		}
		done.Go(func() {
			r := w.request("k")
			r.Header.Set("Prefer", "wait=10")
			rec := httptest.NewRecorder()
			w.guard.ServeHTTP(rec, r)
			if rec.Code != 201 || rec.Header().Get("Idempotency-Replayed") != "true" {
				t.Errorf("who waits gets %d, %s", rec.Code, rec.Body)
			}
		})
		close(goOn)
		done.Wait()
		w.want(w.send("k"), 201, 1, 1)
	})
	t.Run("what the database rolls back because of others runs again on the same body", func(t *testing.T) {
		var w *txWorld
		var failed atomic.Bool
		rt := semelhttp.Route{Tx: transactor(func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
			return pgstore.Transactions(w.pool).DoTx(ctx, engine, call, func(ctx context.Context) (semel.Result, error) {
				res, err := fn(ctx)
				if !failed.Swap(true) {
					return res, &pgconn.PgError{Code: "40001"}
				}
				return res, err
			})
		})}
		w = newTxWorld(t, rt, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			w.Header().Add("X-Run", "one")
			answering(201, "made")(w, r, tx)
		})
		rec := w.send("k")
		w.want(rec, 201, 2, 1)
		var note string
		if err := w.pool.QueryRow(t.Context(), "SELECT note FROM orders").Scan(&note); err != nil || note != "a lamp" || len(rec.Header()["X-Run"]) != 1 || rec.Body.String() != "made" {
			t.Errorf("%q, %v, %v, %s", note, err, rec.Header(), rec.Body)
		}
	})
	t.Run("a connection that dies before the commit leaves nothing, and the next delivery runs", func(t *testing.T) {
		die, pid := true, uint32(0)
		w := newTxWorld(t, semelhttp.Route{}, func(w http.ResponseWriter, r *http.Request, tx pgx.Tx) {
			answering(201, "made")(w, r, tx)
			if die {
				pid = tx.Conn().PgConn().PID()
				_ = tx.Conn().PgConn().Conn().Close() // as with the process
			}
		})
		w.want(w.send("k"), 503, 1, 0)
		// Until the server notices, the call is in flight.
		for there := true; there; {
			if err := w.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&there); err != nil {
				t.Fatal(err)
			}
		}
		die = false
		w.want(w.send("k"), 201, 2, 1)
	})
}

// transactor is a Transactor made of a function.
type transactor func(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error)

func (transactor) Check(*semel.Engine) error { return nil }

func (f transactor) DoTx(ctx context.Context, engine *semel.Engine, call semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
	return f(ctx, engine, call, fn)
}

// A body that is too large for memory is in a file, which each run reads from its beginning.
func TestEachRunInATransactionGetsTheWholeBody(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	twice := transactor(func(ctx context.Context, _ *semel.Engine, _ semel.Call, fn func(context.Context) (semel.Result, error)) (semel.Answer, error) {
		_, _ = fn(ctx) // another transaction has undone it
		res, err := fn(ctx)
		return semel.Answer{Decision: semel.Execute, Record: &semel.Record{State: semel.Completed, Result: res}}, err
	})
	body, runs := strings.Repeat("0123456789", 30_000), 0
	h := guard.Handler(semelhttp.Route{Operation: semel.Operation{Name: "a"}, Tx: twice, Anonymous: semelhttp.AnonymousShare}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
			t.Errorf("run %d reads %d bytes, %v", runs, len(got), err)
		}
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", "k")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if rec.Code != http.StatusCreated || runs != 2 {
		t.Errorf("%d after %d runs: %s", rec.Code, runs, rec.Body)
	}
}

func TestTxRouteIsRefused(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := semelhttp.New(engine, nil)
	if err != nil {
		t.Fatal(err)
	}
	next := http.NotFoundHandler()
	for want, rt := range map[string]semelhttp.Route{
		"not in PostgreSQL": {Operation: semel.Operation{Name: "a"}, Tx: pgstore.Transactions(nil)},
		"Tx and FailOpen":   {Operation: semel.Operation{Name: "b"}, Tx: transactor(nil), FailOpen: true},
		"to be confirmed":   {Operation: semel.Operation{Name: "c", Confirmation: &semel.ConfirmationPolicy{}}, Tx: transactor(nil)},
	} {
		if _, err := guard.Handle(rt, next); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
