package semel_test

import (
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

func benchEngine(b *testing.B) *semel.Engine {
	b.Helper()
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkExecute is begin and complete of a new key on the memory store.
func BenchmarkExecute(b *testing.B) {
	e := benchEngine(b)
	ctx := b.Context()
	fp := semel.FingerprintOf(semel.SchemeRaw, []byte("payload"))
	res := semel.Result{Data: make([]byte, 100)}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		ans, err := e.Begin(ctx, semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: strconv.Itoa(1_000_000_000 + i), Fingerprint: fp})
		if err != nil || ans.Decision != semel.Execute {
			b.Fatal(ans.Decision, err)
		}
		if err := ans.Attempt.Complete(ctx, res); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkReplay answers a duplicate from the memory store.
func BenchmarkReplay(b *testing.B) {
	e := benchEngine(b)
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
