package memstore

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/store"
)

// The index gives what sorting all records gives, while many come and go, of which some are
// due at the same time.
func TestTheIndexIsASortedList(t *testing.T) {
	seed := thorough.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	const times = 300
	var x dueIndex
	var all []*semel.Record
	for step := range 20_000 {
		if rng.IntN(20_000) > step || len(all) == 0 { // more and more are removed
			rec := &semel.Record{ID: semel.ID{Key: strconv.Itoa(step)}, NextAt: store.Instant(rng.IntN(times))}
			all = append(all, rec)
			x.add(rec)
		} else {
			n := rng.IntN(len(all))
			x.remove(all[n])
			all = slices.Delete(all, n, n+1)
		}
		if step%100 != 0 && len(all) > 0 {
			continue
		}
		from, until, most := place{store.Instant(rng.IntN(times)), &semel.ID{Key: strconv.Itoa(step / 2)}}, store.Instant(rng.IntN(times)), rng.IntN(2*maxPart)
		want := slices.DeleteFunc(slices.Clone(all), func(rec *semel.Record) bool {
			return rec.NextAt == 0 || rec.NextAt > until || dueAt(rec).compare(from) <= 0
		})
		slices.SortFunc(want, func(a, b *semel.Record) int { return dueAt(a).compare(dueAt(b)) })
		if got := x.after(from, until, most); !slices.Equal(got, want[:min(most, len(want))]) {
			t.Fatalf("seed %d, step %d: of %d records %d are found, want %d", seed, step, len(all), len(got), min(most, len(want)))
		}
	}
	for _, rec := range all {
		x.remove(rec)
	}
	if len(x.parts) > 0 {
		t.Errorf("at the end there are %d parts", len(x.parts))
	}
}
