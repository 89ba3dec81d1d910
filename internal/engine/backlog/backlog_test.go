package backlog

import (
	"slices"
	"testing"
)

func TestWorkStaysUntilItIsDone(t *testing.T) {
	var b Backlog[int]
	for i, want := range []bool{true, false, false} {
		if added, first := b.Add(i, 3); !added || first != want {
			t.Errorf("%d: added %v, first %v", i, added, first)
		}
	}
	if all := b.Take(); !slices.Equal(all, []int{0, 1, 2}) {
		t.Errorf("took %v", all)
	}
	if added, _ := b.Add(3, 3); added {
		t.Error("what was taken has left room")
	}
	b.PutBack([]int{2})
	if added, first := b.Add(3, 3); !added || first {
		t.Errorf("added %v, first %v", added, first)
	}
	if all := b.Take(); !slices.Equal(all, []int{2, 3}) {
		t.Errorf("took %v", all)
	}
	b.PutBack(nil)
	if all := b.Take(); len(all) != 0 {
		t.Errorf("took %v at the end", all)
	}
	if _, first := b.Add(4, 3); !first {
		t.Error("nobody works on what came after the end")
	}
}
