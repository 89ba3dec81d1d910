package turns

import (
	"context"
	"slices"
	"testing"
)

func TestAlternate(t *testing.T) {
	load := func(order *[]string, name string, rate float64) func() float64 {
		return func() float64 {
			*order = append(*order, name)
			return rate
		}
	}
	t.Run("the order is ABBA", func(t *testing.T) {
		var order []string
		var told []int
		pairs := Alternate(t.Context(), 3, func(round int) { told = append(told, round) }, load(&order, "A", 1), load(&order, "B", 2))
		if !slices.Equal(order, []string{"A", "B", "B", "A", "A", "B"}) || !slices.Equal(told, []int{1, 2, 3}) {
			t.Errorf("order %q, told %v", order, told)
		}
		if !slices.Equal(pairs, []Pair{{1, 2}, {1, 2}, {1, 2}}) {
			t.Errorf("pairs = %v", pairs)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		pairs := Alternate(ctx, 3, func(int) { cancel() }, load(&order, "A", 1), load(&order, "B", 2))
		if len(pairs) != 1 || len(order) != 2 {
			t.Errorf("pairs = %v, order %q", pairs, order)
		}
	})
}

func TestMedian(t *testing.T) {
	rounds := []Pair{{9, 10}, {1, 2}, {8, 10}, {1, 0}}
	if got := Median(rounds); got != 0.8 {
		t.Errorf("median of three = %v", got)
	}
	if got := Median(rounds[:2]); got != 0.7 {
		t.Errorf("median of two = %v", got)
	}
	if got := Median(nil); got != 0 {
		t.Errorf("median of none = %v", got)
	}
	if got := (Pair{1, 0}).Ratio(); got != 0 {
		t.Errorf("ratio to nothing = %v", got)
	}
}
