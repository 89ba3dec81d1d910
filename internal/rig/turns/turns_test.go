package turns

import (
	"context"
	"slices"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	keys := map[string]bool{}
	load := func(i int, name string) Load {
		return Load{name, 1, func(_ context.Context, c *Caller) error {
			if key := c.Key(); keys[key] {
				t.Errorf("%s is not new", key)
			} else {
				keys[key] = true
			}
			if i == 0 {
				c.Took(time.Hour)
				c.Took(3 * time.Hour)
			}
			return nil
		}}
	}
	var results []Result
	got := testing.Benchmark(func(b *testing.B) { results = Compare(b, load(0, "ours"), load(1, "theirs")) })
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	if ours := results[0]; ours.P50 < time.Hour || ours.Max != 3*time.Hour || ours.PerSecond <= 0 {
		t.Errorf("a step that says how long its operations took: %+v", ours)
	}
	if theirs := results[1]; theirs.Max > time.Minute || theirs.P50 > theirs.P99 || theirs.P99 > theirs.Max {
		t.Errorf("a step that doesn't: %+v", theirs)
	}
	for _, metric := range []string{"ours/s", "theirs/s", "ratio", "theirs-p99-µs", "ours-allocs"} {
		if got.Extra[metric] <= 0 {
			t.Errorf("%s is %v in %v", metric, got.Extra[metric], got.Extra)
		}
	}
}

func TestSidesTakeTurnsBackwardsInEveryOtherRound(t *testing.T) {
	var all []int
	for round := range 4 {
		all = append(all, order(round, 2)...)
	}
	if want := []int{0, 1, 1, 0, 0, 1, 1, 0}; !slices.Equal(all, want) {
		t.Errorf("the order is %v, want %v", all, want)
	}
}
