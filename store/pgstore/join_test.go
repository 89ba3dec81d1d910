package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// ownedTx is a transaction of a test, by either way.
type ownedTx struct {
	queries
	begin    func(call semel.Call) (semel.Answer, semel.TxAttempt, error)
	commit   func() error
	rollback func() error
	link     link
}

// owned begins transactions of the test by both ways.
func owned(t *testing.T, body func(t *testing.T, e *joinEnv, begin func() ownedTx)) {
	t.Run("by pgx", func(t *testing.T) {
		e := newJoinEnv(t)
		body(t, e, func() ownedTx {
			tx, err := e.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return ownedTx{
				byPgx{t.Context(), tx},
				func(call semel.Call) (semel.Answer, semel.TxAttempt, error) {
					return WithTx(t.Context(), e.engine, tx, call)
				},
				func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) }, pgxLink(tx),
			}
		})
	})
	t.Run("by database/sql", func(t *testing.T) {
		e := newJoinEnv(t)
		body(t, e, func() ownedTx {
			tx, err := e.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return ownedTx{
				bySQL{t.Context(), tx},
				func(call semel.Call) (semel.Answer, semel.TxAttempt, error) {
					return WithSQLTx(t.Context(), e.engine, tx, call)
				},
				tx.Commit, tx.Rollback, sqlLink(tx, nil),
			}
		})
	})
}

func noError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWithTx(t *testing.T) {
	clause.Proves(t, "G-TX")
	owned(t, func(t *testing.T, e *joinEnv, begin func() ownedTx) {
		t.Run("what is committed with the outcome is replayed", func(t *testing.T) {
			tx := begin()
			noError(t, tx.exec("SET LOCAL lock_timeout = '7s'"))
			ans, a, err := tx.begin(orderCall("owned"))
			if err != nil || ans.Decision != semel.Execute || a.Number() != 1 {
				t.Fatalf("%+v, %v", ans, err)
			}
			noError(t, tx.exec("INSERT INTO orders VALUES ('owned')"), a.Complete(t.Context(), semel.Result{Data: []byte("r")}),
				tx.exec("DO $$ BEGIN ASSERT current_setting('lock_timeout') = '7s'; END $$"))
			if err := a.Complete(t.Context(), semel.Result{}); !errors.Is(err, &semel.Error{Code: semel.CodeAlreadyEnded}) {
				t.Errorf("a second end: %v", err)
			}
			other := begin()
			if ans, a, err := other.begin(orderCall("owned")); err != nil || a != nil || ans.Decision != semel.InFlight || ans.RetryAfter <= 0 {
				t.Errorf("before the commit: %+v, %v", ans, err)
			}
			noError(t, other.rollback())
			for _, boundTo := range []string{"a stranger", "another"} {
				stranger := orderCall("owned")
				stranger.BoundTo = boundTo
				other := begin()
				if ans, a, err := other.begin(stranger); err != nil || a != nil || ans.Decision != semel.InFlight || ans.Record.BoundTo != "" {
					t.Errorf("a stranger: %+v, %v", ans, err)
				}
				noError(t, other.rollback())
			}
			noError(t, tx.commit())
			a.Committed()
			third := begin()
			if ans, a, err := third.begin(orderCall("owned")); err != nil || a != nil || ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "r" {
				t.Errorf("after the commit: %+v, %v", ans, err)
			}
			noError(t, third.rollback())
			e.wantRows("owned", 1)
		})
		t.Run("what is rolled back leaves nothing", func(t *testing.T) {
			tx := begin()
			_, a, err := tx.begin(orderCall("back"))
			noError(t, err, tx.exec("INSERT INTO orders VALUES ('back')"), a.Complete(t.Context(), semel.Result{}), tx.rollback())
			if rec := e.stored(orderCall("back")); !rec.Revision.IsZero() {
				t.Errorf("it left %+v", rec)
			}
			e.wantRows("back", 0)
			e.must(e.do(t.Context(), orderCall("back"), order("back")))
		})
		t.Run("a refusal is kept", func(t *testing.T) {
			tx := begin()
			_, a, err := tx.begin(orderCall("refused"))
			noError(t, err, a.Reject(t.Context(), store.Failure{Code: "no"}, semel.Result{}), tx.commit())
			if rec := e.stored(orderCall("refused")); rec.Disposition != semel.DispositionRejected || rec.Failure.Code != "no" {
				t.Errorf("it left %+v", rec)
			}
		})
		t.Run("one call begun twice in a transaction is a mistake", func(t *testing.T) {
			tx := begin()
			_, a, err := tx.begin(orderCall("nested"))
			noError(t, err)
			if _, b, err := tx.begin(orderCall("nested")); b != nil || !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
				t.Errorf("again: %v", err)
			}
			ans, b, err := tx.begin(orderCall("neighbour"))
			if err != nil || ans.Decision != semel.Execute {
				t.Fatalf("another call: %+v, %v", ans, err)
			}
			noError(t, a.Complete(t.Context(), semel.Result{}), b.Complete(t.Context(), semel.Result{}))
			if _, b, err := tx.begin(orderCall("nested")); b != nil || !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
				t.Errorf("after its end: %v", err)
			}
			noError(t, tx.commit())
		})
		t.Run("a savepoint that is taken back takes the call with it", func(t *testing.T) {
			tx := begin()
			noError(t, tx.exec("SAVEPOINT before"))
			_, a, err := tx.begin(orderCall("undone"))
			noError(t, err, a.Complete(t.Context(), semel.Result{}), tx.exec("ROLLBACK TO SAVEPOINT before"))
			_, b, err := tx.begin(orderCall("undone"))
			if err != nil || b == nil {
				t.Fatalf("again: %v", err)
			}
			noError(t, b.Complete(t.Context(), semel.Result{}), tx.commit())
		})
		t.Run("an attempt that is committed without an end is settled as abandoned", func(t *testing.T) {
			noError(t, e.engine.Register(semel.Operation{Name: "short", Lease: 10 * time.Millisecond}))
			call := semel.Call{Operation: "short", Key: "forgotten"}
			tx := begin()
			_, _, err := tx.begin(call)
			noError(t, err, tx.commit())
			await(t, "the call is held", func() bool {
				ans, err := e.do(t.Context(), call, order("forgotten"))
				return ans.Decision == semel.Held && errors.Is(err, semel.ErrHeld)
			})
			e.wantRows("forgotten", 0)
		})
		t.Run("a read-only call is not recorded", func(t *testing.T) {
			noError(t, e.engine.Register(semel.Operation{Name: "read", Class: semel.ReadOnly}))
			call := semel.Call{Operation: "read", Key: "k"}
			tx := begin()
			_, a, err := tx.begin(call)
			noError(t, err, a.Complete(t.Context(), semel.Result{}), tx.commit())
			if ans := e.must(e.do(t.Context(), call, order("read"))); ans.Decision != semel.Execute {
				t.Errorf("%+v", ans)
			}
		})
	})
}

func TestSharedKeys(t *testing.T) {
	ways(t, func(t *testing.T, e *joinEnv) {
		t.Run("a call that an engine has leased is in flight, and one that it has held is held", func(t *testing.T) {
			ans, err := e.engine.Begin(t.Context(), orderCall("leased"))
			noError(t, err)
			if got, err := e.do(t.Context(), orderCall("leased"), order("leased")); !errors.Is(err, semel.ErrInFlight) || got.Record.Fence != ans.Attempt.Fence() {
				t.Errorf("while it is leased: %+v, %v", got, err)
			}
			noError(t, ans.Attempt.Hold(t.Context(), "who knows"))
			if got, err := e.do(t.Context(), orderCall("leased"), order("leased")); !errors.Is(err, semel.ErrHeld) || got.Decision != semel.Held {
				t.Errorf("while it is held: %+v, %v", got, err)
			}
			e.wantRows("leased", 0)
		})
		t.Run("an engine replays what a transaction has committed", func(t *testing.T) {
			e.must(e.do(t.Context(), orderCall("tx first"), order("tx first")))
			ans, err := e.engine.Begin(t.Context(), orderCall("tx first"))
			if err != nil || ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "made tx first" {
				t.Errorf("%+v, %v", ans, err)
			}
		})
		t.Run("an engine that claims while a transaction runs has the call, and the transaction leaves nothing", func(t *testing.T) {
			failed := semel.Call{Operation: "again", Key: "failed before"}
			if _, err := e.do(t.Context(), failed, failing("overtaken", semel.Failure(errors.New("broken")))); err == nil {
				t.Fatal("it did not fail")
			}
			for _, call := range []semel.Call{orderCall("overtaken"), failed} { // without a record before, and with one
				runs := 0
				ans, err := e.do(t.Context(), call, func(ctx context.Context, q queries) (semel.Result, error) {
					runs++
					res, err := order("overtaken")(ctx, q)
					other, berr := e.engine.Begin(t.Context(), call)
					noError(t, berr, other.Attempt.Complete(t.Context(), semel.Result{Data: []byte("theirs")}))
					return res, err
				})
				if err != nil || runs != 1 || ans.Decision != semel.Replay || string(ans.Record.Result.Data) != "theirs" {
					t.Errorf("%d runs: %+v, %v", runs, ans, err)
				}
			}
			e.wantRows("overtaken", 0)
		})
	})
}

// lossyTx is a transaction whose commit is not answered.
type lossyTx struct {
	pgx.Tx
	commit func(ctx context.Context, tx pgx.Tx)
}

func (l lossyTx) Commit(ctx context.Context) error {
	l.commit(ctx, l.Tx)
	return io.ErrUnexpectedEOF
}

func TestLostCommit(t *testing.T) {
	t.Parallel()
	e := newJoinEnv(t)
	var lost atomic.Int64
	// losing runs a call whose first commits are done by commit, and not answered.
	losing := func(key string, times int64, commit func(ctx context.Context, tx pgx.Tx)) (semel.Answer, error) {
		lost.Store(0)
		begin := Begin(func(ctx context.Context) (pgx.Tx, error) {
			tx, err := e.pool.Begin(ctx)
			if err != nil || lost.Load() == times {
				return tx, err
			}
			return lossyTx{tx, func(ctx context.Context, tx pgx.Tx) {
				lost.Add(1)
				commit(ctx, tx)
			}}, nil
		})
		return Do(t.Context(), e.engine, begin, orderCall(key), func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
			return order(key)(ctx, byPgx{ctx, tx})
		})
	}
	t.Run("a commit that was carried out is found", func(t *testing.T) {
		ans := e.must(losing("done", 1, func(ctx context.Context, tx pgx.Tx) { noError(t, tx.Commit(ctx)) }))
		if lost.Load() != 1 || ans.Decision != semel.Execute || ans.Record.State != semel.Completed {
			t.Errorf("%d lost, %+v", lost.Load(), ans)
		}
		e.wantRows("done", 1)
	})
	t.Run("one that was carried out, and whose message was settled meanwhile, is found", func(t *testing.T) {
		ans := e.must(losing("settled", 1, func(ctx context.Context, tx pgx.Tx) {
			noError(t, tx.Commit(ctx))
			later := e.stored(orderCall("settled"))
			before := later.Revision
			later.Revision[0]++ // what a dispatcher has written
			put(t, e.store, later, before)
		}))
		if ans.Decision != semel.Execute || ans.Record.State != semel.Completed {
			t.Errorf("%+v", ans)
		}
		e.wantRows("settled", 1)
	})
	t.Run("one that never arrived is found out, and the call runs again", func(t *testing.T) {
		ans := e.must(losing("never", 2, func(ctx context.Context, tx pgx.Tx) { noError(t, tx.Rollback(ctx)) }))
		if lost.Load() != 2 || ans.Decision != semel.Execute {
			t.Errorf("%d lost, %+v", lost.Load(), ans)
		}
		e.wantRows("never", 1)
	})
	t.Run("one that is still under way is waited for", func(t *testing.T) {
		var wg sync.WaitGroup
		ans := e.must(losing("late", 1, func(ctx context.Context, tx pgx.Tx) {
			asked := e.store.reads.Stat().AcquireCount()
			wg.Go(func() {
				await(t, "it is asked for", func() bool { return e.store.reads.Stat().AcquireCount() > asked+2 })
				noError(t, tx.Commit(ctx))
			})
		}))
		wg.Wait()
		if ans.Decision != semel.Execute {
			t.Errorf("%+v", ans)
		}
		e.wantRows("late", 1)
	})
	t.Run("one that stays under way is unknown, and a delivery afterwards finds it", func(t *testing.T) {
		release := make(chan struct{})
		var wg sync.WaitGroup
		_, err := losing("unknown", 1, func(ctx context.Context, tx pgx.Tx) {
			wg.Go(func() {
				<-release
				noError(t, tx.Commit(ctx))
			})
		})
		if !errors.Is(err, semel.ErrUnknown) || errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
			t.Errorf("while it is under way: %v", err)
		}
		close(release)
		wg.Wait()
		if ans := e.must(e.do(t.Context(), orderCall("unknown"), order("unknown"))); ans.Decision != semel.Replay {
			t.Errorf("afterwards: %+v", ans)
		}
		e.wantRows("unknown", 1)
	})
	t.Run("a commit that a constraint refuses leaves nothing", func(t *testing.T) {
		e.server.Exec(t, e.name, "CREATE TABLE checked (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		_, err := e.do(t.Context(), orderCall("deferred"), func(_ context.Context, q queries) (semel.Result, error) {
			return semel.Result{}, errors.Join(q.exec("INSERT INTO checked VALUES (1)"), q.exec("INSERT INTO checked VALUES (1)"))
		})
		if sqlState(err) != "23505" || !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
			t.Errorf("%v", err)
		}
		if rec := e.stored(orderCall("deferred")); !rec.Revision.IsZero() {
			t.Errorf("it left %+v", rec)
		}
	})
}

// TestKilledCommit has the server lose the connection of a transaction while its
// commit waits for a standby: it is committed there, and its client can't know.
func TestKilledCommit(t *testing.T) {
	clause.Proves(t, "G-TX")
	t.Parallel()
	server := pgtest.Start(t, nil)
	e := joinEnvOn(t, server)
	conn := server.Conn(t, "postgres")
	exec := func(query string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	exec("SET synchronous_commit = 'local'")
	var wg sync.WaitGroup
	probe := server.Conn(t, e.name)
	wg.Go(func() {
		ans, err := e.do(t.Context(), orderCall("killed"), func(ctx context.Context, q queries) (semel.Result, error) {
			exec("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
			exec("SELECT pg_reload_conf()")
			wg.Go(func() {
				for range 1000 { // until one waits
					if _, err := probe.Exec(t.Context(), "INSERT INTO orders VALUES ('probe')"); err != nil {
						t.Error(err)
						return
					}
				}
			})
			await(t, "commits wait", func() bool {
				var waits bool
				err := conn.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&waits)
				return err == nil && waits
			})
			return order("killed")(ctx, q)
		})
		if err != nil || ans.Decision != semel.Execute || ans.Record.State != semel.Completed {
			t.Errorf("%+v, %v", ans, err)
		}
	})
	killed := 0
	killer := server.Conn(t, "postgres")
	await(t, "the call's commit waits", func() bool {
		err := killer.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
			WHERE datname = $1 AND wait_event = 'SyncRep' AND query ILIKE 'commit%'`, e.name).Scan(&killed)
		noError(t, err)
		return killed > 0
	})
	exec("ALTER SYSTEM RESET synchronous_standby_names")
	exec("SELECT pg_reload_conf()")
	wg.Wait()
	if killed != 1 {
		t.Errorf("%d connections were killed", killed)
	}
	e.wantRows("killed", 1)
}

func TestJoinMistakes(t *testing.T) {
	e := newJoinEnv(t)
	t.Run("an engine on another store can't take part", func(t *testing.T) {
		engine, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "order"}}})
		noError(t, err)
		_, err = Do(t.Context(), engine, e.pool, orderCall("k"), nil)
		if !errors.Is(err, &semel.Error{Code: semel.CodeUnsupported}) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a transaction in another database is refused", func(t *testing.T) {
		other := newJoinEnv(t)
		_, err := Do(t.Context(), e.engine, other.pool, orderCall("elsewhere"), func(context.Context, pgx.Tx) (semel.Result, error) {
			t.Error("it ran")
			return semel.Result{}, nil
		})
		if !errors.Is(err, &semel.Error{Code: semel.CodeUnsupported}) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a handler can't end the transaction of pgx", func(t *testing.T) {
		e.must(Do(t.Context(), e.engine, e.pool, orderCall("ends"), func(ctx context.Context, tx pgx.Tx) (semel.Result, error) {
			if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
				t.Error("it could")
			}
			return order("ends")(ctx, byPgx{ctx, tx})
		}))
		e.wantRows("ends", 1)
	})
	t.Run("a handler that ends the transaction of database/sql is told that the outcome is unknown", func(t *testing.T) {
		_, err := DoSQL(t.Context(), e.engine, e.db, nil, orderCall("ends sql"), func(_ context.Context, tx *sql.Tx) (semel.Result, error) {
			return semel.Result{}, tx.Commit()
		})
		if !errors.Is(err, semel.ErrUnknown) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a handler that ignores a failed statement commits nothing", func(t *testing.T) {
		_, err := e.do(t.Context(), orderCall("ignores"), func(ctx context.Context, q queries) (semel.Result, error) {
			res, err := order("ignores")(ctx, q)
			_ = q.exec("SELECT 1/0")
			return res, err
		})
		if sqlState(err) != "25P02" {
			t.Errorf("%v", err)
		}
		e.wantRows("ignores", 0)
	})
	t.Run("a store that is closed runs nothing", func(t *testing.T) {
		closed := newJoinEnv(t)
		mustClose(t, closed.store)
		_, err := closed.do(t.Context(), orderCall("closed"), func(context.Context, queries) (semel.Result, error) {
			t.Error("it ran")
			return semel.Result{}, nil
		})
		if !errors.Is(err, &semel.Error{Code: semel.CodeStoreUnavailable}) {
			t.Errorf("%v", err)
		}
	})
}
