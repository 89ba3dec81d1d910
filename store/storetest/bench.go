package storetest

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
)

// Bench measures the engine on a store, by the same code for every store:
//
//   - begin and complete: a new key each time, with a result of 1 KiB;
//   - replay: duplicates of one completed key;
//   - contention: 50 deliveries of each key, of which one executes.
//
// Each runs with one caller and with 64 per processor, which shows what the store gains by
// group commit. Open makes a new, empty store and closes it by b.Cleanup.
func Bench(b *testing.B, open func(b *testing.B) semel.Store) {
	loads := []struct {
		name string
		// step makes the n-th call of the benchmark.
		step func(ctx context.Context, e *semel.Engine, n int64) error
	}{
		{"begin and complete", benchExecute},
		{"replay", benchReplay},
		{"contention", benchContention},
	}
	for _, load := range loads {
		for _, callers := range []int{1, 64} {
			name := load.name + "/1 caller"
			if callers > 1 {
				name = load.name + "/" + strconv.Itoa(callers) + " callers per processor"
			}
			b.Run(name, func(b *testing.B) {
				e, err := semel.New(open(b), &semel.Options{Operations: []semel.Operation{opHold}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = e.Close(context.WithoutCancel(b.Context())) })
				if err := benchExecute(b.Context(), e, 0); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				var n atomic.Int64
				if callers == 1 {
					for b.Loop() {
						if err := load.step(b.Context(), e, n.Add(1)); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.SetParallelism(callers)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := load.step(b.Context(), e, n.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

var benchResult = semel.Result{Data: bytes.Repeat([]byte("r"), 1024)}

func benchExecute(ctx context.Context, e *semel.Engine, n int64) error {
	ans, err := e.Begin(ctx, call(opHold, "key-"+strconv.FormatInt(n, 10)))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Execute {
		return errors.New("a new key got " + string(ans.Decision))
	}
	return ans.Attempt.Complete(ctx, benchResult)
}

func benchReplay(ctx context.Context, e *semel.Engine, _ int64) error {
	ans, err := e.Begin(ctx, call(opHold, "key-0"))
	if err != nil {
		return err
	}
	if ans.Decision != semel.Replay || len(ans.Record.Result.Data) != len(benchResult.Data) {
		return errors.New("a duplicate got " + string(ans.Decision))
	}
	return nil
}

func benchContention(ctx context.Context, e *semel.Engine, n int64) error {
	ans, err := e.Begin(ctx, call(opHold, "contended-"+strconv.FormatInt(n/50, 10)))
	if err != nil {
		return err
	}
	switch ans.Decision {
	case semel.Execute:
		return ans.Attempt.Complete(ctx, benchResult)
	case semel.Replay, semel.InFlight:
		return nil
	}
	return errors.New("a contended key got " + string(ans.Decision))
}
