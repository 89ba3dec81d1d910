//go:build !race

// The race detector allocates, too.

package enginetest

import (
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/memstore"
)

// A delivery costs few allocations. What they are is in BenchmarkExecute and BenchmarkReplay;
// one of an execution's is its key.
func TestAllocations(t *testing.T) {
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "op"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, fp, res, n := t.Context(), payload("payload"), semel.Result{Data: make([]byte, 100)}, 0
	begin := func(key string) semel.Answer {
		ans, err := e.Begin(ctx, semel.Call{Tenant: "t", Principal: "p", Operation: "op", Key: key, Fingerprint: fp})
		if err != nil {
			t.Fatal(err)
		}
		return ans
	}
	least := func(f func()) float64 { // of three, because the goroutines of tests before this one may allocate too
		return min(testing.AllocsPerRun(1000, f), testing.AllocsPerRun(1000, f), testing.AllocsPerRun(1000, f))
	}
	execute := least(func() {
		n++
		if err := begin(strconv.Itoa(1_000_000+n)).Attempt.Complete(ctx, res); err != nil {
			t.Fatal(err)
		}
	})
	replay := least(func() {
		if ans := begin("1000001"); ans.Decision != semel.Replay {
			t.Fatal(ans.Decision)
		}
	})
	if execute > 6 || replay > 1 {
		t.Errorf("begin and complete have %.0f allocations, want 6 at most; a replay has %.0f, want 1", execute, replay)
	}
}
