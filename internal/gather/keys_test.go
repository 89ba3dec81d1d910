package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// named is an item about a key, with its result.
type named struct {
	Item
	key    byte
	name   string
	answer string
}

func (*named) Size() int { return 1 }

// keyed is a queue of items about keys. Each batch ends when the test says so.
type keyed struct {
	Queue[*named]
	t       *testing.T
	work    sync.WaitGroup
	callers sync.WaitGroup
	mu      sync.Mutex
	sent    []string
	gates   []chan struct{}
}

func newKeyed(t *testing.T, workers int) *keyed {
	k := &keyed{t: t}
	k.Work, k.Room = &k.work, NewRoom()
	k.Workers, k.MaxBatch, k.MaxBytes = workers, 4, 100
	k.Key = func(item *named) [32]byte { return [32]byte{item.key} }
	k.Answers = func(sent, waiting *named) bool {
		waiting.answer = "that of " + sent.name
		return true
	}
	k.Send = func(batch []*named) {
		names, gate := "", make(chan struct{})
		for _, item := range batch {
			names += item.name
			item.answer = "its own"
		}
		k.mu.Lock()
		k.sent, k.gates = append(k.sent, names), append(k.gates, gate)
		k.mu.Unlock()
		<-gate
	}
	return k
}

// come sends an item and checks its result at the end.
func (k *keyed) come(key byte, name, want string) { k.comeWith(k.t.Context(), key, name, want) }

func (k *keyed) comeWith(ctx context.Context, key byte, name, want string) {
	k.callers.Go(func() {
		item := &named{key: key, name: name}
		if err := k.Do(ctx, item); err != nil || item.answer != want {
			k.t.Errorf("%s gets %q, %v, want %q", name, item.answer, err, want)
		}
	})
	synctest.Wait()
}

// end ends the n-th batch.
func (k *keyed) end(n int) {
	close(k.gates[n])
	synctest.Wait()
}

// done waits for all items, and checks which batches were sent.
func (k *keyed) done(want ...string) {
	k.t.Helper()
	k.callers.Wait()
	k.work.Wait()
	if got := fmt.Sprint(k.sent); got != fmt.Sprint(want) {
		k.t.Errorf("batches of %v, want %v", got, want)
	}
	waiting, running := k.Len()
	if items, bytes := k.Room.items.Load(), k.Room.bytes.Load(); waiting+running+len(k.Queue.sent) > 0 || items+bytes > 0 {
		k.t.Errorf("afterwards %d wait, %d run, and there are %d with %d bytes", waiting, running, items, bytes)
	}
}

func TestOneItemOfAKeyIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 2)
		k.Answers = nil
		k.come(1, "a", "its own")
		k.come(1, "b", "its own") // its worker finds nothing to send
		k.come(2, "c", "its own")
		k.end(0)
		k.end(1)
		k.end(2)
		k.done("a", "c", "b")
	})
}

func TestDuplicatesThatWaitAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		k.come(1, "a", "its own")
		k.come(2, "b", "its own")
		k.come(2, "c", "that of b")
		k.come(2, "d", "that of b")
		k.end(0)                  // b is taken
		k.come(2, "e", "its own") // too late to be answered by it
		k.end(1)
		k.end(2)
		k.done("a", "b", "e")
	})
}

func TestWhatIsNotAnsweredIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		k.Answers = func(sent, waiting *named) bool { return false }
		k.come(1, "a", "its own")
		k.come(2, "b", "its own")
		k.come(2, "c", "its own")
		k.end(0)
		k.end(1)
		k.end(2)
		k.done("a", "b", "c")
	})
}

func TestWhatIsSentByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		k.Apart = func(item *named) bool { return item.key == 3 }
		for i, name := range []string{"a", "b", "c", "d"} {
			k.come(byte(i+1), name, "its own")
		}
		for n := range 3 {
			k.end(n)
		}
		k.done("a", "bd", "c")
	})
}

// While a batch hangs, other items go to the idle worker.
func TestNobodyWaitsBesideAnIdleWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 2)
		for i, name := range []string{"a", "b", "c"} {
			k.come(byte(i+1), name, "its own")
		}
		k.end(1)
		k.end(2)
		k.come(4, "d", "its own")
		k.end(3)
		k.end(0)
		k.done("a", "b", "c", "d")
	})
}

// A worker that finds nothing to send ends. It is started again as soon as the waiting items
// may be sent and don't fit into one batch, because the batch is full or because an item needs
// one of its own.
func TestItemsThatDoNotFitStartAnotherWorker(t *testing.T) {
	for _, order := range []string{"xy", "yx"} {
		t.Run("in the order "+order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeyed(t, 2)
				k.Answers = nil
				k.Apart = func(item *named) bool { return item.name == "x" }
				for i, name := range []string{"p", "q", "a", "b"} {
					k.come(byte(i+1), name, "its own")
				}
				k.end(0)
				k.come(3, order[:1], "its own")
				k.come(4, order[1:], "its own")
				k.end(1) // its worker ends
				k.end(2)
				if _, running := k.Len(); running != 2 {
					t.Errorf("%d workers run, want 2", running)
				}
				for n := 3; n < len(k.gates); n++ {
					k.end(n)
				}
				k.done("p", "q", "ab", order[:1], order[1:])
			})
		})
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		k.come(1, "a", "its own")
		k.callers.Go(func() {
			if err := k.Do(t.Context(), &named{key: 2}); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrClosed) {
				t.Errorf("who waits gets %v", err)
			}
		})
		synctest.Wait()
		k.Close()
		if err := k.Do(t.Context(), &named{key: 3}); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrClosed) {
			t.Errorf("who comes later gets %v", err)
		}
		k.end(0)
		k.done("a")
	})
}
