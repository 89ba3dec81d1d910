package enginetest

import (
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

func benchEngine(b *testing.B) (*semel.Engine, *memstore.Store) {
	b.Helper()
	st := memstore.New()
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
	if err != nil {
		b.Fatal(err)
	}
	return e, st
}

// execute begins and completes the i-th new key.
func execute(b *testing.B, e *semel.Engine, fp semel.Fingerprint, res semel.Result, i int) *semel.Attempt {
	ans, err := e.Begin(b.Context(), semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: strconv.Itoa(1_000_000_000 + i), Fingerprint: fp})
	if err != nil || ans.Decision != semel.Execute {
		b.Fatal(ans.Decision, err)
	}
	if err := ans.Attempt.Complete(b.Context(), res); err != nil {
		b.Fatal(err)
	}
	return ans.Attempt
}

// BenchmarkExecute is begin and complete of new keys in a process that purges as
// many records as it keeps. Purging is not timed; what it leaves to the collector
// is.
func BenchmarkExecute(b *testing.B) {
	e, st := benchEngine(b)
	fp, res := payload("payload"), semel.Result{Data: make([]byte, 100)}
	refs := make([]store.Ref, 0, 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rec := execute(b, e, fp, res, i).Record()
		if refs = append(refs, store.Ref{ID: rec.ID, Revision: rec.Revision}); len(refs) == cap(refs) {
			b.StopTimer()
			if n, err := st.Purge(b.Context(), refs); n != len(refs) || err != nil {
				b.Fatal(n, err)
			}
			refs = refs[:0]
			b.StartTimer()
		}
	}
}

// BenchmarkExecuteGrowing is the same with nothing purged: the operating system
// has to find new memory for every record.
func BenchmarkExecuteGrowing(b *testing.B) {
	e, _ := benchEngine(b)
	fp, res := payload("payload"), semel.Result{Data: make([]byte, 100)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		execute(b, e, fp, res, i)
	}
}

// BenchmarkReplay answers a duplicate from the memory store.
func BenchmarkReplay(b *testing.B) {
	e, _ := benchEngine(b)
	ctx := b.Context()
	call := semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: "key", Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("payload"))}
	ans, err := e.Begin(ctx, call)
	if err != nil {
		b.Fatal(err)
	}
	if err := ans.Attempt.Complete(ctx, semel.Result{Data: make([]byte, 100)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		ans, err := e.Begin(ctx, call)
		if err != nil || ans.Decision != semel.Replay {
			b.Fatal(ans.Decision, err)
		}
	}
}
