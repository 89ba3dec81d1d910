package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

// queries is what a test does in a transaction, by either way to use a database.
type queries interface {
	exec(sql string, args ...any) error
}

type byPgx struct {
	ctx context.Context
	tx  pgx.Tx
}

func (q byPgx) exec(sql string, args ...any) error {
	_, err := q.tx.Exec(q.ctx, sql, args...)
	return err
}

type bySQL struct {
	ctx context.Context
	tx  *sql.Tx
}

func (q bySQL) exec(sql string, args ...any) error {
	_, err := q.tx.ExecContext(q.ctx, sql, args...)
	return err
}

// joinEnv is an application that keeps rows next to the records.
type joinEnv struct {
	t      testing.TB
	server *pgtest.Server
	name   string
	store  *Store
	engine *semel.Engine
	pool   *pgxpool.Pool
	db     *sql.DB
	// do runs a call by the way that is tested.
	do func(ctx context.Context, call semel.Call, fn func(ctx context.Context, q queries) (semel.Result, error)) (semel.Answer, error)
}

func newJoinEnv(t testing.TB) *joinEnv {
	t.Helper()
	return joinEnvOn(t, pgtest.Shared(t))
}

func joinEnvOn(t testing.TB, server *pgtest.Server) *joinEnv {
	t.Helper()
	return joinEnvAt(t, server, server.URL)
}

// joinEnvAt reaches the databases of a server at the addresses that url says.
func joinEnvAt(t testing.TB, server *pgtest.Server, url func(database string) string) *joinEnv {
	t.Helper()
	e := &joinEnv{t: t, server: server, name: server.Database(t)}
	at := url(e.name)
	e.store = mustOpen(t, at, &Options{Migrate: true, ListenURL: server.URL(e.name)})
	t.Cleanup(func() { mustClose(t, e.store) })
	ops := []semel.Operation{{Name: "order"}, {Name: "again", OnFailure: semel.RetryFailure}}
	var err error
	if e.engine, err = semel.New(e.store, &semel.Options{Operations: ops}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 20
	if e.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.pool.Close)
	if e.db, err = sql.Open("pgx", at); err != nil {
		t.Fatal(err)
	}
	e.db.SetMaxOpenConns(20)
	t.Cleanup(func() {
		if err := e.db.Close(); err != nil {
			t.Error(err)
		}
	})
	server.Exec(t, e.name, "CREATE TABLE orders (cart text)") // nothing unique
	e.viaPgx(pgx.TxOptions{})
	return e
}

func (e *joinEnv) viaPgx(opts pgx.TxOptions) {
	begin := Begin(func(ctx context.Context) (pgx.Tx, error) { return e.pool.BeginTx(ctx, opts) })
	e.do = func(ctx context.Context, call semel.Call, fn func(context.Context, queries) (semel.Result, error)) (semel.Answer, error) {
		return Do(ctx, e.engine, begin, call, func(ctx context.Context, tx pgx.Tx) (semel.Result, error) { return fn(ctx, byPgx{ctx, tx}) })
	}
}

func (e *joinEnv) viaSQL(opts *sql.TxOptions) {
	e.do = func(ctx context.Context, call semel.Call, fn func(context.Context, queries) (semel.Result, error)) (semel.Answer, error) {
		return DoSQL(ctx, e.engine, e.db, opts, call, func(ctx context.Context, tx *sql.Tx) (semel.Result, error) { return fn(ctx, bySQL{ctx, tx}) })
	}
}

// order is a handler that makes one row.
func order(cart string) func(context.Context, queries) (semel.Result, error) {
	return func(_ context.Context, q queries) (semel.Result, error) {
		return semel.Result{Data: []byte("made " + cart)}, q.exec("INSERT INTO orders VALUES ($1)", cart)
	}
}

// failing is a handler that makes one row and then returns err.
func failing(cart string, err error) func(context.Context, queries) (semel.Result, error) {
	return func(ctx context.Context, q queries) (semel.Result, error) {
		if _, err := order(cart)(ctx, q); err != nil {
			return semel.Result{}, err
		}
		return semel.Result{Data: []byte("why")}, err
	}
}

func orderCall(key string) semel.Call { return semel.Call{Operation: "order", Key: key} }

func (e *joinEnv) wantRows(cart string, want int) {
	e.t.Helper()
	var n int
	if err := e.pool.QueryRow(e.t.Context(), "SELECT count(*) FROM orders WHERE cart = $1", cart).Scan(&n); err != nil || n != want {
		e.t.Errorf("%d rows of %s, %v; want %d", n, cart, err, want)
	}
}

// stored is the record of a call; absent if there is none.
func (e *joinEnv) stored(call semel.Call) semel.Record {
	e.t.Helper()
	rec, err := e.engine.Lookup(e.t.Context(), semel.ID{Tenant: call.Tenant, Principal: call.Principal, Operation: call.Operation, Key: call.Key})
	if err != nil && !errors.Is(err, semel.ErrNotFound) {
		e.t.Fatal(err)
	}
	return rec
}

func (e *joinEnv) exec(query string) error {
	_, err := e.pool.Exec(e.t.Context(), query)
	return err
}

func (e *joinEnv) must(ans semel.Answer, err error) semel.Answer {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	return ans
}

// ways are all ways to run a call, each at every isolation level, and through a pooler.
func ways(t *testing.T, body func(t *testing.T, e *joinEnv)) {
	for _, level := range []struct {
		pgx pgx.TxIsoLevel
		sql sql.IsolationLevel
	}{{pgx.ReadCommitted, sql.LevelReadCommitted}, {pgx.RepeatableRead, sql.LevelRepeatableRead}, {pgx.Serializable, sql.LevelSerializable}} {
		name := strings.ReplaceAll(string(level.pgx), " ", "_")
		t.Run("by_pgx_"+name, func(t *testing.T) {
			t.Parallel()
			e := newJoinEnv(t)
			e.viaPgx(pgx.TxOptions{IsoLevel: level.pgx})
			body(t, e)
		})
		t.Run("by_database_sql_"+name, func(t *testing.T) {
			t.Parallel()
			e := newJoinEnv(t)
			e.viaSQL(&sql.TxOptions{Isolation: level.sql})
			body(t, e)
		})
	}
	pooled := func(t *testing.T) *joinEnv {
		server := pgtest.Shared(t)
		pooler := server.Pooler(t, 50)
		return joinEnvAt(t, server, func(database string) string {
			return pooler.URL(database) + "&default_query_exec_mode=exec" // the application prepares nothing
		})
	}
	t.Run("by_pgx_through_a_pooler", func(t *testing.T) {
		t.Parallel()
		body(t, pooled(t))
	})
	t.Run("by_database_sql_through_a_pooler", func(t *testing.T) {
		t.Parallel()
		e := pooled(t)
		e.viaSQL(nil)
		body(t, e)
	})
}

// counting is a store around another, as the service has one to count calls. opaque doesn't
// show what it wraps.
type (
	counting struct{ semel.Store }
	opaque   struct{ semel.Store }
)

func (c counting) Unwrap() semel.Store { return c.Store }

func TestTransactionsOfAWrappedStore(t *testing.T) {
	e := newJoinEnv(t)
	transactions := Transactions(e.pool)
	for _, c := range []struct {
		name  string
		store semel.Store
		code  semel.Code
	}{
		{"one that lets itself be seen through", counting{counting{e.store}}, ""},
		{"one that doesn't", counting{opaque{e.store}}, semel.CodeUnsupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine, err := semel.New(c.store, &semel.Options{Operations: []semel.Operation{{Name: "order"}}})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close(context.WithoutCancel(t.Context()))
			_, err = transactions.DoTx(t.Context(), engine, orderCall("wrapped"), func(ctx context.Context) (semel.Result, error) {
				tx, ok := TxFrom(ctx)
				if !ok {
					return semel.Result{}, errors.New("there is no transaction")
				}
				_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ('wrapped')")
				return semel.Result{}, err
			})
			checked := transactions.Check(engine)
			if c.code == "" && (err != nil || checked != nil) || c.code != "" && (!errors.Is(err, &semel.Error{Code: c.code}) || !errors.Is(checked, &semel.Error{Code: c.code})) {
				t.Errorf("%v, and checked %v", err, checked)
			}
		})
	}
	e.wantRows("wrapped", 1)
}

func TestDo(t *testing.T) {
	clause.Proves(t, "G-TX")
	ways(t, func(t *testing.T, e *joinEnv) {
		t.Run("a duplicate gets the outcome and another payload a conflict", func(t *testing.T) {
			e.t = t
			call := orderCall("replay")
			first := e.must(e.do(t.Context(), call, order("replay")))
			if first.Decision != semel.Execute || first.Record.State != semel.Completed || string(first.Record.Result.Data) != "made replay" {
				t.Fatalf("first: %+v", first)
			}
			again := e.must(e.do(t.Context(), call, order("replay")))
			if again.Decision != semel.Replay || string(again.Record.Result.Data) != "made replay" {
				t.Fatalf("again: %+v", again)
			}
			call.Fingerprint = semel.FingerprintOf(semel.SchemeRaw, []byte("other"))
			if ans, err := e.do(t.Context(), call, order("replay")); !errors.Is(err, semel.ErrConflict) || ans.Decision != semel.Conflict {
				t.Fatalf("another payload: %+v, %v", ans, err)
			}
			e.wantRows("replay", 1)
		})
		t.Run("fifty duplicates at once have one effect", func(t *testing.T) {
			e.t = t
			var executed, answered atomic.Int64
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					for {
						ans, err := e.do(t.Context(), orderCall("fifty"), order("fifty"))
						switch {
						case errors.Is(err, semel.ErrInFlight):
							continue
						case err != nil:
							t.Error(err)
						case ans.Decision == semel.Execute:
							executed.Add(1)
						case ans.Decision == semel.Replay:
							answered.Add(1)
						}
						return
					}
				})
			}
			wg.Wait()
			if executed.Load() != 1 || answered.Load() != 49 {
				t.Errorf("%d executed and %d were answered", executed.Load(), answered.Load())
			}
			e.wantRows("fifty", 1)
		})
		t.Run("a duplicate is told at once while the first runs, and one that waits gets the outcome", func(t *testing.T) {
			e.t = t
			running, finish := make(chan struct{}), make(chan struct{})
			end := sync.OnceFunc(func() { close(finish) })
			defer end() // for whoever waits after a failure here
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := e.do(t.Context(), orderCall("slow"), func(ctx context.Context, q queries) (semel.Result, error) {
					close(running)
					<-finish
					return order("slow")(ctx, q)
				})
				if err != nil {
					t.Error(err)
				}
			})
			<-running
			ans, err := e.do(t.Context(), orderCall("slow"), order("slow"))
			if !errors.Is(err, semel.ErrInFlight) || ans.RetryAfter <= 0 {
				t.Errorf("while it runs: %+v, %v", ans, err)
			}
			waiting := orderCall("slow")
			waiting.Wait = 20 * time.Second
			wg.Go(func() {
				ans, err := e.do(t.Context(), waiting, order("slow"))
				if err != nil || ans.Decision != semel.Replay {
					t.Errorf("who waited got %+v, %v", ans, err)
				}
			})
			await(t, "a delivery that waits", func() bool { return e.store.watch.Len() == 1 })
			end()
			wg.Wait()
			e.wantRows("slow", 1)
		})
		t.Run("a refusal is kept and what was written is not", func(t *testing.T) {
			e.t = t
			cause := errors.New("no credit")
			ans, err := e.do(t.Context(), orderCall("reject"), failing("reject", semel.Rejected("credit", cause)))
			if !errors.Is(err, cause) || !errors.Is(err, &semel.Error{Code: semel.CodeRejected}) || ans.Record.Disposition != semel.DispositionRejected {
				t.Fatalf("first: %+v, %v", ans, err)
			}
			ans, err = e.do(t.Context(), orderCall("reject"), order("reject"))
			if ans.Decision != semel.Replay || !errors.Is(err, &semel.Error{Code: semel.CodeRejected}) || string(ans.Record.Result.Data) != "why" {
				t.Fatalf("again: %+v, %v", ans, err)
			}
			e.wantRows("reject", 0)
		})
		t.Run("a failure is kept, and the policy says what comes next", func(t *testing.T) {
			e.t = t
			if _, err := e.do(t.Context(), orderCall("fail"), failing("fail", semel.Failure(errors.New("broken")))); !errors.Is(err, &semel.Error{Code: semel.CodeFailed}) {
				t.Fatal(err)
			}
			if ans, err := e.do(t.Context(), orderCall("fail"), order("fail")); ans.Decision != semel.Replay || err == nil {
				t.Fatalf("again: %+v, %v", ans, err)
			}
			e.wantRows("fail", 0)
			call := semel.Call{Operation: "again", Key: "fail2"}
			// A statement that the server refuses leaves a transaction that only
			// the savepoint can save.
			if _, err := e.do(t.Context(), call, func(_ context.Context, q queries) (semel.Result, error) {
				return semel.Result{}, semel.Failure(q.exec("SELECT 1/0"))
			}); !errors.Is(err, &semel.Error{Code: semel.CodeFailed}) {
				t.Fatal(err)
			}
			ans := e.must(e.do(t.Context(), call, order("fail2")))
			if ans.Decision != semel.Execute || ans.Record.Attempt != 2 || len(ans.Record.Earlier) != 1 {
				t.Fatalf("the second attempt: %+v", ans.Record)
			}
			e.wantRows("fail2", 1)
		})
		t.Run("a plain error, an aborted and an unknown attempt leave nothing", func(t *testing.T) {
			e.t = t
			for key, err := range map[string]error{"plain": errors.New("broken"), "abort": semel.Aborted(errors.New("not now")), "unknown": semel.Unknown(errors.New("what?"))} {
				if ans, got := e.do(t.Context(), orderCall(key), failing(key, err)); got == nil || ans.Decision != semel.Execute {
					t.Fatalf("%s: %+v, %v", key, ans, got)
				}
				if rec := e.stored(orderCall(key)); rec.State.Terminal() || !rec.Revision.IsZero() {
					t.Fatalf("%s left %+v", key, rec)
				}
				e.wantRows(key, 0)
				e.must(e.do(t.Context(), orderCall(key), order(key)))
				e.wantRows(key, 1)
			}
		})
		t.Run("a panic leaves nothing and goes on", func(t *testing.T) {
			e.t = t
			func() {
				defer func() {
					if r := recover(); r != "boom" {
						t.Errorf("recovered %v", r)
					}
				}()
				_, _ = e.do(t.Context(), orderCall("panic"), func(ctx context.Context, q queries) (semel.Result, error) {
					_, _ = order("panic")(ctx, q)
					panic("boom")
				})
			}()
			if rec := e.stored(orderCall("panic")); !rec.Revision.IsZero() {
				t.Errorf("the panic left %+v", rec)
			}
			e.wantRows("panic", 0)
		})
		t.Run("a caller that hangs up leaves nothing", func(t *testing.T) {
			e.t = t
			ctx, cancel := context.WithCancel(t.Context())
			_, err := e.do(ctx, orderCall("gone"), func(ctx context.Context, q queries) (semel.Result, error) {
				_, err := order("gone")(ctx, q)
				cancel()
				return semel.Result{}, errors.Join(err, ctx.Err())
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if rec := e.stored(orderCall("gone")); !rec.Revision.IsZero() {
				t.Errorf("it left %+v", rec)
			}
			e.wantRows("gone", 0)
			e.must(e.do(t.Context(), orderCall("gone"), order("gone")))
		})
		t.Run("a connection that is killed before the commit leaves nothing", func(t *testing.T) {
			e.t = t
			fired := 0
			_, err := e.do(t.Context(), orderCall("killed"), func(ctx context.Context, q queries) (semel.Result, error) {
				res, err := order("killed")(ctx, q)
				if err != nil {
					return res, err
				}
				fired += e.killWriters()
				return res, nil
			})
			if fired != 1 || !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
				t.Fatalf("%d connections were killed: %v", fired, err)
			}
			if rec := e.stored(orderCall("killed")); !rec.Revision.IsZero() {
				t.Errorf("it left %+v", rec)
			}
			e.wantRows("killed", 0)
			e.must(e.do(t.Context(), orderCall("killed"), order("killed")))
			e.wantRows("killed", 1)
		})
		t.Run("a transaction that is rolled back because of others runs again whole", func(t *testing.T) {
			e.t = t
			runs := 0
			ans := e.must(e.do(t.Context(), orderCall("rerun"), func(ctx context.Context, q queries) (semel.Result, error) {
				runs++
				res, err := order("rerun")(ctx, q)
				if err == nil && runs < 3 {
					err = q.exec("DO $$ BEGIN RAISE EXCEPTION 'they met' USING ERRCODE = '" + []string{"40001", "40P01"}[runs-1] + "'; END $$")
				}
				return res, err
			}))
			if runs != 3 || ans.Record.Attempt != 1 {
				t.Errorf("%d runs, %+v", runs, ans.Record)
			}
			e.wantRows("rerun", 1)
		})
		t.Run("calls that change one row at once all have their effect once", func(t *testing.T) {
			e.t = t
			noError(t, e.exec("CREATE TABLE counter AS SELECT 0 AS n"))
			var runs atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for k := range 5 {
						for {
							_, err := e.do(t.Context(), orderCall(fmt.Sprint("counter", i, k)), func(_ context.Context, q queries) (semel.Result, error) {
								runs.Add(1)
								return semel.Result{}, q.exec("UPDATE counter SET n = n + 1")
							})
							if errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
								continue // it has met the others too often, and nothing is left of it
							}
							if err != nil {
								t.Error(err)
							}
							break
						}
					}
				})
			}
			wg.Wait()
			var n int
			if err := e.pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil || n != 40 {
				t.Errorf("the counter is at %d after 40 calls, %v", n, err)
			}
			t.Logf("%d runs for 40 calls", runs.Load())
		})
		t.Run("one that is always rolled back ends and leaves nothing", func(t *testing.T) {
			e.t = t
			runs := 0
			_, err := e.do(t.Context(), orderCall("never"), func(_ context.Context, q queries) (semel.Result, error) {
				runs++
				return semel.Result{}, fmt.Errorf("wrapped: %w", q.exec("DO $$ BEGIN RAISE EXCEPTION 'they met' USING ERRCODE = '40001'; END $$"))
			})
			if !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) || runs < 2 || runs > 20 {
				t.Errorf("%d runs, %v", runs, err)
			}
			if rec := e.stored(orderCall("never")); !rec.Revision.IsZero() {
				t.Errorf("it left %+v", rec)
			}
		})
	})
}

// killWriters ends the connections of the application that are in a transaction.
func (e *joinEnv) killWriters() (n int) {
	e.t.Helper()
	conn := e.server.Conn(e.t, "postgres")
	err := conn.QueryRow(e.t.Context(), `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
		WHERE datname = $1 AND state = 'idle in transaction'`, e.name).Scan(&n)
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}
