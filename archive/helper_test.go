package archive

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

var epoch = store.InstantOf(time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC))

// batch is n records that follow from a number.
func batch(number, n int) []semel.Record {
	recs := make([]semel.Record, n)
	for i := range recs {
		at := epoch.Add(time.Duration(number*1000+i) * time.Second)
		recs[i] = semel.Record{
			ID:       semel.ID{Tenant: "t", Operation: "op", Key: fmt.Sprintf("%d/%d", number, i)},
			Revision: store.Revision{1, byte(number >> 8), byte(number), byte(i)},
			State:    semel.Completed, Disposition: semel.DispositionCompleted, Fence: int64(number), Origin: int64(number), Attempt: 1,
			CreatedAt: at, UpdatedAt: at, StartedAt: at, EndedAt: at, ExpiresAt: at.Add(time.Hour),
			Result: semel.Result{Data: fmt.Appendf(nil, "<result> %d of %d", i, number)},
		}
	}
	return recs
}

func mustOpen(t *testing.T, fs files, dir string) *Archive {
	t.Helper()
	a, err := open(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keys reads the keys of an archive, in order.
func keys(t *testing.T, fs files, dir string) []string {
	t.Helper()
	var list []string
	must(t, read(fs, dir, func(rec semel.Record) error {
		list = append(list, rec.ID.Key)
		return nil
	}))
	return list
}

// keysOf are those of batches.
func keysOf(batches ...[]semel.Record) []string {
	var list []string
	for _, rec := range slices.Concat(batches...) {
		list = append(list, rec.ID.Key)
	}
	return list
}
