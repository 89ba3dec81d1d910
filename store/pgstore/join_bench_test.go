package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// BenchmarkDuplicate is what a duplicate waits while a transaction has the call: by
// the lock that is tried, and by the primary key with a lock timeout, the way that
// was not taken.
func BenchmarkDuplicate(b *testing.B) {
	e := newJoinEnv(b)
	e.server.Exec(b, e.name, "CREATE TABLE claims (n int PRIMARY KEY)")
	running, finish := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := e.do(b.Context(), orderCall("held"), func(_ context.Context, q queries) (semel.Result, error) {
			// The other way: the claim is in the table, and not committed.
			err := q.exec("INSERT INTO claims VALUES (1)")
			close(running)
			<-finish
			return semel.Result{}, err
		})
		done <- err
	}()
	<-running
	b.Run("tried lock", func(b *testing.B) {
		for b.Loop() {
			if _, err := e.do(b.Context(), orderCall("held"), nil); !errors.Is(err, semel.ErrInFlight) {
				b.Fatal(err)
			}
		}
	})
	b.Run("lock timeout of 100 ms", func(b *testing.B) {
		for b.Loop() {
			err := pgx.BeginFunc(b.Context(), e.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "INSERT INTO claims SELECT 1 FROM set_config('lock_timeout', '100ms', true) ON CONFLICT DO NOTHING")
				return err
			})
			if sqlState(err) != "55P03" {
				b.Fatal(err)
			}
		}
	})
	close(finish)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDo is one call with one row, by 1 and 16 callers: the bare transaction,
// the same within Do, and the same within a leased attempt.
func BenchmarkDo(b *testing.B) {
	e := newJoinEnv(b)
	var n atomic.Int64
	insert := func(ctx context.Context, key string) error {
		return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return byPgx{ctx, tx}.exec("INSERT INTO orders VALUES ($1)", key) })
	}
	for _, way := range []struct {
		name string
		run  func(ctx context.Context, key string) error
	}{
		{"bare transaction", insert},
		{"Do", func(ctx context.Context, key string) error {
			_, err := e.do(ctx, orderCall(key), order(key))
			return err
		}},
		{"leased attempt and transaction", func(ctx context.Context, key string) error {
			_, err := e.engine.Do(ctx, orderCall(key), func(ctx context.Context, _ semel.Execution) (semel.Result, error) {
				return semel.Result{Data: []byte("made " + key)}, insert(ctx, key)
			})
			return err
		}},
	} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s by %d", way.name, callers), func(b *testing.B) {
				b.SetParallelism(max(callers/2, 1))
				if callers == 1 {
					for b.Loop() {
						if err := way.run(b.Context(), fmt.Sprint(n.Add(1))); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := way.run(b.Context(), fmt.Sprint(n.Add(1))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
