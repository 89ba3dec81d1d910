package dueindex

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// The index gives every record that is due once, the earliest second first, in pages between
// which others come and go.
func TestTheIndexIsInOrder(t *testing.T) {
	seed := thorough.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	at := func() store.Instant { return store.Instant(rng.IntN(30)) * store.Instant(time.Second) / 3 }
	var x Index
	type entry struct {
		rec *store.Record
		due int
	}
	var all []*entry
	change := func(spare int) {
		if n := spare + rng.IntN(len(all)-spare+1); n < len(all) {
			x.Replace(all[n].rec, all[n].due, nil)
			all = slices.Delete(all, n, n+1)
		} else {
			en := &entry{rec: &store.Record{NextAt: at()}}
			en.due = x.Add(en.rec)
			all = append(all, en)
		}
	}
	for range 20_000 {
		change(0)
		if rng.IntN(100) > 0 {
			continue
		}
		stay, until, got := len(all)/2, at(), map[int]int{} // the first half stays
		for i, en := range all[:stay] {
			en.rec.Attempt = i + 1
		}
		after, last := Place{second: -1}, int64(0)
		for more := true; more; {
			var recs []store.Record
			recs, after, more = x.Page(after, until, 1+rng.IntN(8), paging.New(t.Context()))
			for _, rec := range recs {
				if got[rec.Attempt]++; rec.NextAt > until || second(rec.NextAt) < last {
					t.Fatalf("seed %d: a record is due at %d, until %d and after %d s", seed, rec.NextAt, until, last)
				}
				last = second(rec.NextAt)
			}
			if len(all) > stay {
				change(stay)
			}
		}
		for i, en := range all[:stay] {
			want := 0
			if en.rec.NextAt != 0 && en.rec.NextAt <= until {
				want = 1
			}
			if got[i+1] != want {
				t.Fatalf("seed %d: a record that is due at %d is listed %d times until %d", seed, en.rec.NextAt, got[i+1], until)
			}
		}
		for _, en := range all {
			en.rec.Attempt = 0
		}
	}
	for _, en := range all {
		x.Replace(en.rec, en.due, nil)
	}
	if x.Forget(at().Add(30 * time.Second)); len(x.seconds)+len(x.order) > 0 {
		t.Errorf("at the end there are %d seconds", len(x.order))
	}
}
