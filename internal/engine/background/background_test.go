package background

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseWaitsForWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var over atomic.Bool
		if !g.Go(func() { <-time.After(time.Minute); over.Store(true) }) {
			t.Fatal("an open group refuses work")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(short); !errors.Is(err, context.DeadlineExceeded) || over.Load() {
			t.Errorf("the first Close returned %v, and the work is over: %v", err, over.Load())
		}
		if g.Go(func() { t.Error("a closed group runs work") }) {
			t.Error("a closed group takes work")
		}
		if err := g.Close(t.Context()); err != nil || !over.Load() {
			t.Errorf("the second Close returned %v, and the work is over: %v", err, over.Load())
		}
	})
}

// Work that comes while somebody closes the group is either waited for or refused. The race
// detector shows whether the group's own state is ordered.
func TestWorkBesideClose(t *testing.T) {
	for range 200 {
		var g Group
		ran, taken := new(atomic.Int64), make(chan bool, 4)
		for range cap(taken) {
			go func() { taken <- g.Go(func() { ran.Add(1) }) }()
		}
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, want := ran.Load(), int64(0)
		for range cap(taken) {
			if <-taken {
				want++
			}
		}
		if after != want {
			t.Fatalf("%d works were over after Close, and it took %d", after, want)
		}
	}
}
