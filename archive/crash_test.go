package archive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
)

// session opens an archive and writes batches until something fails. It returns
// how many were acknowledged.
func session(t *testing.T, d *disk, first, batches int) (acknowledged int) {
	a, err := open(d, "dir")
	if err != nil {
		if !errors.Is(err, errDisk) {
			t.Fatal(err)
		}
		return 0
	}
	for i := range batches {
		if err := a.Write(t.Context(), batch(first+i, 3)); err != nil {
			if !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			return i
		}
	}
	return batches
}

// operations counts those of a session that goes well.
func operations(t *testing.T, start func() *disk, first, batches int) int {
	d := start()
	d.ops = 0
	if n := session(t, d, first, batches); n != batches {
		t.Fatalf("%d of %d batches were written", n, batches)
	}
	return d.ops
}

// TestPowerCuts cuts the power at every operation of a session, on a new archive
// and on one that has records. What was acknowledged is there afterwards, the
// batch that was not is there as a whole or not at all, and the archive goes on.
func TestPowerCuts(t *testing.T) {
	clause.Proves(t, "MAP-EXP.3")
	const batches = 3
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	for _, before := range []int{0, 2} {
		start := func() *disk {
			d := newDisk()
			if n := session(t, d, 1, before); n != before {
				t.Fatal(n)
			}
			return d.cut(rand.New(rand.NewPCG(0, 0)))
		}
		total := operations(t, start, before+1, batches)
		half := 0
		for failAt := 1; failAt <= total; failAt++ {
			for seed := range seeds {
				name := fmt.Sprintf("operation %d of %d after %d batches, seed %d", failAt, total, before, seed)
				d := start()
				d.ops, d.failAt, d.after = 0, failAt, seed%2 == 0
				acknowledged := before + session(t, d, before+1, batches)
				left := d.cut(rand.New(rand.NewPCG(seed, uint64(failAt))))
				var unopened []string
				_ = read(left, "dir", func(rec semel.Record) error { // the end may be torn
					unopened = append(unopened, rec.ID.Key)
					return nil
				})
				if want := expected(acknowledged); len(unopened) < len(want) || !slices.Equal(unopened[:len(want)], want) {
					t.Fatalf("%s: %d batches were acknowledged, and before Open %q is read", name, acknowledged, unopened)
				}
				a, err := open(left, "dir")
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got := keys(t, left, "dir")
				old, new := expected(acknowledged), expected(acknowledged+1)
				switch {
				case slices.Equal(got, new):
					half++
				case !slices.Equal(got, old):
					t.Fatalf("%s: %d batches were acknowledged, and %q is read", name, acknowledged, got)
				}
				for _, file := range left.names() {
					if isTemp(file) {
						t.Fatalf("%s: %s is left", name, file)
					}
				}
				if err := verify(left, "dir"); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := a.Write(t.Context(), batch(99, 2)); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if again := keys(t, left, "dir"); !slices.Equal(again, append(got, keysOf(batch(99, 2))...)) {
					t.Fatalf("%s: after one more batch %q is read", name, again)
				}
				if err := verify(left, "dir"); err != nil {
					t.Fatalf("%s: after one more batch: %v", name, err)
				}
			}
		}
		t.Logf("after %d batches: the power was cut %d times; %d times a batch was there that had not been acknowledged", before, int(seeds)*total, half)
		if half == 0 {
			t.Error("no cut came between a segment and its line, so nothing is proved about that")
		}
	}
}

// expected are the keys of the first batches.
func expected(batches int) []string {
	var list []string
	for i := range batches {
		list = append(list, keysOf(batch(i+1, 3))...)
	}
	return list
}

// TestPowerCutsWhileRecovering cuts the power again while Open tidies up.
func TestPowerCutsWhileRecovering(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := newDisk()
		total := operations(t, newDisk, 1, 3)
		d.failAt, d.after = 1+rng.IntN(total), rng.IntN(2) == 0
		acknowledged := session(t, d, 1, 3)
		for range 3 {
			d = d.cut(rng)
			d.failAt, d.after = 1+rng.IntN(8), rng.IntN(2) == 0
			if _, err := open(d, "dir"); err != nil && !errors.Is(err, errDisk) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		d = d.cut(rng)
		mustOpen(t, d, "dir")
		got := keys(t, d, "dir")
		if !slices.Equal(got, expected(acknowledged)) && !slices.Equal(got, expected(acknowledged+1)) {
			t.Fatalf("seed %d: %d batches were acknowledged, and %q is read", seed, acknowledged, got)
		}
		must(t, verify(d, "dir"))
	}
}

// TestFailuresOfTheDisk lets one operation fail and the archive go on: the batch is
// written again by its caller, as the engine does at the next sweep.
func TestFailuresOfTheDisk(t *testing.T) {
	total := operations(t, newDisk, 1, 3)
	failed := 0
	for failAt := 1; failAt <= total; failAt++ {
		for _, after := range []bool{false, true} {
			d := newDisk()
			d.failAt, d.once, d.after = failAt, true, after
			a, err := open(d, "dir")
			if err != nil {
				failed++
				a = mustOpen(t, d, "dir")
			}
			for i := range 3 {
				for try := 0; ; try++ {
					err := a.Write(t.Context(), batch(i+1, 3))
					if err == nil {
						break
					}
					if failed++; try > 0 || !errors.Is(err, errDisk) {
						t.Fatalf("operation %d: try %d of batch %d: %v", failAt, try, i+1, err)
					}
				}
				// What is acknowledged is durable, whatever failed before.
				left := d.cut(rand.New(rand.NewPCG(1, uint64(failAt))))
				mustOpen(t, left, "dir")
				must(t, verify(left, "dir"))
				got := keys(t, left, "dir")
				for _, key := range expected(i + 1) {
					if !slices.Contains(got, key) {
						t.Fatalf("operation %d: %s was acknowledged and is not there: %s", failAt, key, strings.Join(got, " "))
					}
				}
			}
		}
	}
	if failed < total {
		t.Errorf("%d operations failed a call, of %d", failed, total)
	}
}
