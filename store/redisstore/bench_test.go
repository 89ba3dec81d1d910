package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// BenchmarkAgainstBare measures what the engine on this store costs beside bare
// Redis, SET NX and then SET of values as large under keys as long, by the same
// client: operations per second of both in turn, and their ratio.
func BenchmarkAgainstBare(b *testing.B) {
	for _, appendfsync := range []string{"always", "everysec"} {
		srv := redistest.Start(b, appendfsync)
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d callers", appendfsync, callers), func(b *testing.B) {
				prefix := fresh()
				s := mustOpen(b, srv.URL(), &Options{Prefix: prefix})
				e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "bench"}}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = e.Close(context.Background()) })
				result := semel.Result{Data: bytes.Repeat([]byte("r"), 1024)}
				var n atomic.Int64
				engine := func(ctx context.Context) error {
					ans, err := e.Begin(ctx, semel.Call{Tenant: "tenant", Principal: "principal", Operation: "bench", Key: strconv.FormatInt(n.Add(1), 10)})
					if err != nil {
						return err
					}
					return ans.Attempt.Complete(ctx, result)
				}
				claim, outcome := sizes(b, e, result)
				c := s.link.client()
				bare := func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
					defer cancel()
					key := fmt.Sprintf("%s:bare:%040d", prefix, n.Add(1))
					if err := c.Do(ctx, c.B().Set().Key(key).Value(claim).Nx().Build()).Error(); err != nil {
						return err
					}
					return c.Do(ctx, c.B().Set().Key(key).Value(outcome).Build()).Error()
				}
				var took [2]time.Duration
				const slice = 2000
				left := b.N
				b.ResetTimer()
				for left > 0 {
					part := max(min(left, slice), callers)
					for i, step := range []func(context.Context) error{engine, bare} {
						took[i] += spend(b, callers, part, step)
					}
					left -= part
				}
				b.ReportMetric(float64(b.N)/took[0].Seconds(), "engine/s")
				b.ReportMetric(float64(b.N)/took[1].Seconds(), "bare/s")
				b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
			})
		}
	}
}

// spend runs steps by so many callers at once.
func spend(b *testing.B, callers, steps int, step func(context.Context) error) time.Duration {
	var left atomic.Int64
	left.Store(int64(steps))
	start := time.Now()
	done := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for err == nil && left.Add(-1) >= 0 {
				err = step(b.Context())
			}
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

// sizes are values as large as a claim and its outcome.
func sizes(b *testing.B, e *semel.Engine, result semel.Result) (claim, outcome string) {
	b.Helper()
	ans, err := e.Begin(b.Context(), semel.Call{Tenant: "tenant", Principal: "principal", Operation: "bench", Key: "size"})
	if err != nil {
		b.Fatal(err)
	}
	size := func() string {
		rec := ans.Attempt.Record()
		v, err := codec.Append(nil, rec)
		if err != nil {
			b.Fatal(err)
		}
		return rueidis.BinaryString(v)
	}
	claim = size()
	if err := ans.Attempt.Complete(b.Context(), result); err != nil {
		b.Fatal(err)
	}
	return claim, size()
}

// BenchmarkWorkers shows what further runs in flight are worth to 256 callers.
func BenchmarkWorkers(b *testing.B) {
	showQueue(b, 256, func(q *gather.Queue[*write]) { q.Workers = 1 })
}

// BenchmarkMaxBatch shows what runs of up to 128 writes are worth to 256 callers, against 32.
func BenchmarkMaxBatch(b *testing.B) {
	showQueue(b, 256, func(q *gather.Queue[*write]) { q.MaxBatch = 32 })
}

// showQueue shows what the settings of the queue are worth to so many callers who write new
// records.
func showQueue(b *testing.B, callers int, change func(*gather.Queue[*write])) {
	srv := redistest.Start(b, "always")
	claims := func(change func(*gather.Queue[*write])) func(n int64) {
		s := mustOpen(b, srv.URL(), &Options{Prefix: fresh()})
		change(s.queues[0])
		return func(n int64) {
			if _, applied, err := s.Apply(b.Context(), store.Write{Record: new(small(strconv.FormatInt(n, 10)))}); !applied || err != nil {
				b.Error(applied, err)
			}
		}
	}
	turns.Worth(b, callers, claims(func(*gather.Queue[*write]) {}), claims(change))
}
