package gather

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// newLed is a queue of items about keys whose callers may lead. The names of what they send
// begin with a star.
func newLed(t *testing.T, workers int) *keyed {
	k := newKeyed(t, workers)
	k.Lead = func(ctx context.Context, item *named) {
		item.name = "*" + item.name
		k.Send([]*named{item})
	}
	return k
}

// bounded comes with a context that nobody cancels.
func (k *keyed) bounded(key byte, name, want string) {
	k.comeWith(until{k.t.Context(), time.Now().Add(time.Minute)}, key, name, want)
}

func TestACallerWhoIsAloneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 2)
		k.come(1, "a", "its own") // their context may be cancelled
		k.bounded(2, "b", "its own")
		k.end(0)
		k.end(1)
		k.bounded(3, "c", "its own")
		k.bounded(4, "d", "its own") // goes to the other worker
		k.end(2)
		k.bounded(5, "e", "its own") // d is on its way
		k.end(3)
		k.end(4)
		k.bounded(6, "f", "its own")
		k.end(5)
		k.done("a", "b", "*c", "d", "e", "*f")
	})
}

// The item of a caller who leads is the one of its key that is on its way, though a worker is
// idle.
func TestWhoComesBehindACallerWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 2)
		k.bounded(1, "a", "its own")
		k.bounded(1, "b", "its own") // too late to be answered by it
		k.bounded(1, "c", "that of b")
		if len(k.sent) != 1 {
			t.Errorf("of one key are on their way %v", k.sent)
		}
		k.end(0)
		k.end(1)
		k.done("*a", "b")
	})
}

// At most Workers batches are on their way, with that of a caller who leads.
func TestACallerWhoLeadsCountsAsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 1)
		k.bounded(1, "a", "its own")
		k.bounded(2, "b", "its own")
		k.bounded(3, "c", "its own")
		if len(k.sent) != 1 {
			t.Errorf("on their way are %v", k.sent)
		}
		k.end(0)
		k.end(1)
		k.done("*a", "bc")
	})
}

// A server may go on for a caller who has left. So the next ones wait for a worker, until one
// has had an answer.
func TestNobodyLeadsAfterOneWhoLeftAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 2)
		k.bounded(1, "a", "its own")
		<-time.After(time.Minute)
		k.end(0)
		k.bounded(2, "b", "its own")
		k.end(1)
		k.bounded(3, "c", "its own")
		k.end(2)
		k.done("*a", "b", "*c")
	})
}

// A server of HTTP recovers from a panic of a handler, which may call an engine.
func TestAPanicOfACallerWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 1)
		lead := k.Lead
		k.Lead = func(ctx context.Context, item *named) {
			lead(ctx, item)
			panic("a bug")
		}
		k.callers.Go(func() {
			defer func() {
				if recover() != "a bug" {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = k.Do(until{t.Context(), time.Now().Add(time.Minute)}, &named{key: 1, name: "a"})
		})
		synctest.Wait()
		k.bounded(1, "b", "its own") // a has no result, and came before it
		k.end(0)
		k.end(1)
		k.done("*a", "b")
	})
}

func TestCloseBesideACallerWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 1)
		k.bounded(1, "a", "its own")
		k.Close()
		ended := false
		go func() {
			k.work.Wait()
			ended = true
		}()
		synctest.Wait()
		if ended {
			t.Error("Work does not wait for who leads")
		}
		k.end(0)
		if !ended {
			t.Error("Work does not end with who leads")
		}
		err := k.Do(until{t.Context(), time.Now().Add(time.Minute)}, &named{key: 2})
		if !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrClosed) {
			t.Errorf("who comes later gets %v", err)
		}
		k.done("*a")
	})
}

func TestWhoLeadsTakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLed(t, 1)
		k.Room = &Room{MaxItems: 1, MaxBytes: 100}
		k.bounded(1, "a", "its own")
		if err := k.Do(t.Context(), &named{key: 2}); !errors.Is(err, ErrFull) {
			t.Errorf("beside them there is room: %v", err)
		}
		k.end(0)
		k.done("*a")
	})
}
