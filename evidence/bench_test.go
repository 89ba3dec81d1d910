package evidence_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
)

// discarding is a store that keeps no evidence.
type discarding struct{ semel.Store }

func (discarding) AppendEvidence(context.Context, []store.Entry) error { return nil }

// BenchmarkEntry makes the entries of a claim and of its end.
func BenchmarkEntry(b *testing.B) {
	r := newRig(b, nil)
	c := call("acme", "order-1", "payload")
	ans := r.do(b, c, string(make([]byte, 1024)))
	done := ans.Record
	claim := *done
	claim.State, claim.Disposition, claim.Result = semel.Processing, 0, semel.Result{}
	op := &semel.Operation{Name: "op", Evidence: semel.EvidenceDecisions}
	b.Run("claimed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.log.Changed(op, &semel.Record{}, &claim, store.ChangeClaimed)
		}
	})
	b.Run("ended", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.log.Changed(op, &claim, done, store.ChangeEnded)
		}
	})
	l, err := evidence.New(discarding{r.store}, r.keys, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("counted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Decided(context.Background(), op, &c, &semel.Answer{Decision: semel.Replay, Record: done}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkBlocks shows what the size of the blocks is worth against that in which io.Copy
// reads. Half of the time of a verification goes into what is repeated here.
func BenchmarkBlocks(b *testing.B) {
	r := newRig(b, nil)
	r.fill(b, 0, 20_000)
	r.integrate(b)
	export := r.export(b, nil)
	count := func(size int) func(int64) {
		return func(int64) {
			if n, err := evidence.CountEntries(bytes.NewReader(export), size); err != nil || n < 20_000 {
				b.Fatal(n, err)
			}
		}
	}
	turns.Worth(b, 1, count(evidence.BlockSize), count(32<<10))
}

// BenchmarkCalls makes calls by 64 callers a processor: without evidence, and with that of
// every decision, while the log is signed once a second. The log is complete at the end.
func BenchmarkCalls(b *testing.B) {
	for name, level := range map[string]semel.EvidenceLevel{"without": semel.EvidenceNone, "with": semel.EvidenceDecisions} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, nil, semel.Operation{Name: "op", Evidence: level})
			running, stop := context.WithCancel(b.Context())
			var signer sync.WaitGroup
			signer.Go(func() { _ = r.log.Run(running) }) // which ends because it is stopped
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.do(b, call("acme", fmt.Sprint(n.Add(1)), "payload"), "result")
				}
			})
			stop()
			signer.Wait()
			r.integrate(b)
		})
	}
}
