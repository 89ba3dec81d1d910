package pgstore

import (
	"testing"

	"github.com/semelhq/semel"
)

// queued is a committer that nothing is sent by, with writes in its queue.
func queued(creates, updates int) *committer {
	c := &committer{max: 256, busy: map[digest]*op{}, locked: map[digest]bool{}}
	for i := range creates + updates {
		o := &op{id: digest{byte(i), byte(i >> 8)}, done: make(chan struct{})}
		if i >= creates {
			o.write.Expect = semel.Revision{1}
		}
		c.await(o, &c.queue)
		c.busy[o.id] = o
	}
	return c
}

func count(batch []*op) (creates, updates int) {
	for _, o := range batch {
		if o.creates() {
			creates++
		} else {
			updates++
		}
	}
	return creates, updates
}

func TestLargeBatchesAreOfOneSort(t *testing.T) {
	for _, c := range []struct {
		creates, updates         int
		wantCreates, wantUpdates int
	}{
		{3, 4, 3, 4}, // few go together
		{20, 10, 20, 0},
		{10, 20, 0, 20},
		{300, 10, 256, 0},
	} {
		creates, updates := count(queued(c.creates, c.updates).pick())
		if creates != c.wantCreates || updates != c.wantUpdates {
			t.Errorf("of %d and %d are taken %d and %d", c.creates, c.updates, creates, updates)
		}
	}
}

func TestNoWriteWaitsForItsSortForEver(t *testing.T) {
	c := queued(1, 40)
	for range patience + 2 {
		c.batches++
		if creates, _ := count(c.pick()); creates == 1 {
			return
		}
		for range 40 { // there are always more of the others
			c.await(&op{write: semel.Write{Expect: semel.Revision{1}}, arrived: c.batches}, &c.queue)
		}
	}
	t.Error("the one that is not of the sort of the others was never taken")
}
