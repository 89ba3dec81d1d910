package pebblestore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// At the end of their window, calls that are remembered for longer are written once each, many to a
// batch, as expired records are purged.
func TestAnswersAreForgottenInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := openEnv(t, "store", &Options{FS: vfs.NewMem()})
		s := env.Store.(*Store)
		e, err := semel.New(s, &semel.Options{Operations: []semel.Operation{{Name: "op", Window: time.Hour, Remember: 24 * time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(t.Context())
		const calls = 1000
		for i := range calls {
			ans, err := e.Begin(t.Context(), semel.Call{Operation: "op", Key: fmt.Sprint(i)})
			if err != nil || ans.Attempt == nil || ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte("x")}) != nil {
				t.Fatal(ans.Decision, err)
			}
		}
		<-time.After(2 * time.Hour)
		written := func() (items, batches uint64) {
			q := s.Queues()[0]
			for _, n := range q.Batches {
				batches += n
			}
			return q.Items, batches
		}
		items, batches := written()
		forgotten := 0
		for range 10 {
			n, err := e.Sweep(t.Context())
			if forgotten += n.Forgotten; err != nil {
				t.Fatal(err)
			}
		}
		items2, batches2 := written()
		t.Logf("%d writes in %d batches", items2-items, batches2-batches)
		if forgotten != calls || items2-items != calls || batches2-batches > calls/10 {
			t.Errorf("%d calls were forgotten by %d writes in %d batches", forgotten, items2-items, batches2-batches)
		}
	})
}
