package evidence_test

import (
	"context"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
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
	b.Run("replayed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Decided(context.Background(), op, &c, &semel.Answer{Decision: semel.Replay, Record: done}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
