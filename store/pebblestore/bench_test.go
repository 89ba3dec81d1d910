package pebblestore

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/codec"
)

const (
	benchCallers = 256
	benchResult  = 1024
)

// concurrently divides the iterations of a benchmark among callers.
func concurrently(b *testing.B, callers int, f func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	n := int64(b.N)
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > n {
					return
				}
				if err := f(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func benchCall(i int) semel.Call {
	return semel.Call{
		Tenant: "tenant", Principal: "principal", Operation: "payments.charge", Key: "key-" + strconv.Itoa(i),
		Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte("payload")),
	}
}

// answers gives every call other bytes, of which a compressor makes about half,
// as answers are.
type answers []byte

func newAnswers() answers {
	raw := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(raw)
	return answers(hex.AppendEncode(nil, raw))
}

func (a answers) of(i int) []byte {
	at := i * 7919 % (len(a) - benchResult)
	return a[at : at+benchResult : at+benchResult]
}

// BenchmarkGroupCommit is begin and complete of new keys through an engine, both
// durable, by 256 callers, on the disk of the machine.
func BenchmarkGroupCommit(b *testing.B) {
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		b.Fatal(err)
	}
	data := newAnswers()
	b.ReportAllocs()
	before, had := s.counts().batches, bytesWritten(b, s)
	concurrently(b, benchCallers, func(i int) error { return benchPair(b.Context(), e, i, data.of(i)) })
	b.ReportMetric(float64(2*b.N)/float64(s.counts().batches-before), "writes/batch")
	each := bytesWritten(b, s).share(had, b.N)
	b.ReportMetric(float64(each.log), "log-B/op")
	b.ReportMetric(float64(each.tables), "tables-B/op")
}

// benchPair is begin and complete of a new key.
func benchPair(ctx context.Context, e *semel.Engine, i int, answer []byte) error {
	ans, err := e.Begin(ctx, benchCall(i))
	if err != nil {
		return err
	}
	return ans.Attempt.Complete(ctx, semel.Result{Data: answer})
}

// BenchmarkBareLoop is what Pebble alone does with the same two synced writes:
// a claim and an outcome under one key, as the store encodes them.
func BenchmarkBareLoop(b *testing.B) {
	pairs := encodedPairs(b, 4096)
	o := (*Options)(nil).withDefaults()
	db, err := pebble.Open(b.TempDir(), o.pebble(&logger{o.Logger, exit}))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.ReportAllocs()
	concurrently(b, benchCallers, func(i int) error {
		call := benchCall(i)
		id := semel.ID{Tenant: call.Tenant, Principal: call.Principal, Operation: call.Operation, Key: call.Key}
		key := id.Digest()
		pair := &pairs[i%len(pairs)]
		if err := db.Set(key[:], pair.claim, pebble.Sync); err != nil {
			return err
		}
		return db.Set(key[:], pair.outcome, pebble.Sync)
	})
}

type encodedPair struct{ claim, outcome []byte }

// encodedPairs are claims and their outcomes as the engine writes them.
func encodedPairs(b *testing.B, n int) []encodedPair {
	b.Helper()
	s, err := Open("bench", &Options{FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "payments.charge"}}})
	if err != nil {
		b.Fatal(err)
	}
	encode := func(id semel.ID) []byte {
		rec, err := s.Get(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		v, err := codec.Append(nil, rec)
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
	data := newAnswers()
	pairs := make([]encodedPair, n)
	for i := range pairs {
		ans, err := e.Begin(b.Context(), benchCall(i))
		if err != nil {
			b.Fatal(err)
		}
		pairs[i].claim = encode(ans.Record.ID)
		if err := ans.Attempt.Complete(b.Context(), semel.Result{Data: data.of(i)}); err != nil {
			b.Fatal(err)
		}
		pairs[i].outcome = encode(ans.Record.ID)
	}
	return pairs
}
