package gather

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const workers, maxBatch, maxBytes = 4, 32, 4 << 10

// item has a size.
type item struct {
	Item
	size int
}

func (i *item) Size() int { return i.size }

func sized(n int) *item { return &item{size: n} }

// held is a queue whose batches end when gate is closed.
type held struct {
	Queue[*item]
	gate  chan struct{}
	work  sync.WaitGroup
	mu    sync.Mutex
	sizes []int
}

func newHeld() *held {
	h := &held{gate: make(chan struct{})}
	h.Work = &h.work
	h.Room = &Room{MaxItems: 1000, MaxBytes: 1 << 20}
	h.Workers, h.MaxBatch, h.MaxBytes = workers, maxBatch, maxBytes
	h.Send = func(batch []*item) {
		h.mu.Lock()
		h.sizes = append(h.sizes, len(batch))
		h.mu.Unlock()
		<-h.gate
	}
	return h
}

func TestConcurrentCallersShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		const callersInAll = workers + 10 + 3*maxBatch
		for range callersInAll {
			callers.Go(func() {
				if err := h.Do(t.Context(), sized(0)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if len(h.sizes) != workers || slices.Max(h.sizes) != 1 {
			t.Errorf("on their way are batches of %v", h.sizes)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		sum := 0
		for _, n := range h.sizes {
			sum += n
			if n > maxBatch {
				t.Errorf("a batch of %d", n)
			}
		}
		if sum != callersInAll || len(h.sizes) > workers+4 {
			t.Errorf("%d items in batches of %v", sum, h.sizes)
		}
		if h.running != 0 || len(h.waiting) != 0 {
			t.Errorf("afterwards %d run, and %d wait", h.running, len(h.waiting))
		}
		var want Sizes
		for _, n := range h.sizes {
			i := 0
			for 1<<i < n {
				i++
			}
			want[i]++
		}
		if l := h.Load(); l.Batches != want || l.Items != callersInAll || l.Full != 0 {
			t.Errorf("counted %+v, want %v", l, want)
		}
	})
}

func TestLoadSaysHowFullTheRoomIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		for _, size := range []int{0, h.MaxBytes, 1 << 18, 1 << 18} {
			callers.Go(func() { _ = h.Do(t.Context(), sized(size)) })
			synctest.Wait()
		}
		if l := h.Load(); l.Full < 0.5 || l.Full > 0.51 {
			t.Errorf("of a room of 1000 items and a MiB, 4 items with little more than half of it fill %v", l.Full)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		var sizes Sizes
		for _, n := range []int{1, 2, 3, 4, 5, 1 << 14, 1<<14 + 1, 1 << 20} {
			sizes.add(n)
		}
		if want := (Sizes{1, 1, 2, 1, 14: 1, 15: 2}); sizes != want {
			t.Errorf("counted %v, want %v", sizes, want)
		}
	})
}

func TestABatchIsOfSoManyBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		send := func(size int) {
			callers.Go(func() {
				if err := h.Do(t.Context(), sized(size)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for range workers {
			send(0)
		}
		for range 4 {
			send(maxBytes / 2)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		if sizes := h.sizes[workers:]; !slices.Equal(sizes, []int{2, 2}) {
			t.Errorf("batches of %v", sizes)
		}
	})
}

func TestWhoGivesUpTakesBackWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		for range workers {
			callers.Go(func() { _ = h.Do(t.Context(), sized(0)) })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Do(ctx, sized(0)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotSent) {
			t.Errorf("it ends with %v", err)
		}
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		if len(h.sizes) != workers || len(h.waiting) > 0 {
			t.Errorf("batches of %v, %d in the queue", h.sizes, len(h.waiting))
		}
	})
}

func TestWhoWaitsTooManyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		var callers sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			callers.Go(func() {
				_ = h.Do(ctx, sized(512<<10))
			})
			synctest.Wait()
		}
		if err := h.Do(t.Context(), sized(0)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrFull) {
			t.Errorf("beside so many bytes it ends with %v", err)
		}
		cancel()
		callers.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		for range 1000 {
			callers.Go(func() { _ = h.Do(ctx, sized(0)) })
		}
		synctest.Wait()
		if err := h.Do(t.Context(), sized(0)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrFull) {
			t.Errorf("beside so many others it ends with %v", err)
		}
		cancel()
		callers.Wait()
		if items, bytes := h.Room.items.Load(), h.Room.bytes.Load(); len(h.waiting) > 0 || items+bytes > 0 {
			t.Errorf("%d wait, and there are %d with %d bytes", len(h.waiting), items, bytes)
		}
		close(h.gate)
		h.work.Wait()
	})
}

// While the second part of a batch is being done, the first of the next one is. Callers are
// told after the second.
func TestWorkInTwoParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		started, second := 0, make(chan struct{})
		k.Start = func(batch []*named) func() {
			started++
			return func() {
				<-second
				for _, item := range batch {
					item.answer = "its own"
				}
			}
		}
		k.come(1, "a", "its own")
		k.come(2, "b", "its own")
		if waiting, _ := k.Len(); started != 2 || waiting != 0 {
			t.Errorf("%d batches were started, and %d wait", started, waiting)
		}
		close(second)
		k.done()
	})
}

// until is a context that only its deadline ends.
type until struct {
	context.Context
	at time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.at, true }
func (u until) NeverCancelled()             {}
func (u until) Done() <-chan struct{}       { panic("it costs a timer") }

func (u until) Err() error {
	if time.Now().Before(u.at) {
		return nil
	}
	return context.DeadlineExceeded
}

func TestADeadlineEndsWithoutATimerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		start := time.Now()
		var callers sync.WaitGroup
		send := func(after time.Duration, sent bool) {
			callers.Go(func() {
				err := h.Do(until{t.Context(), start.Add(after)}, sized(0))
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotSent) == sent || time.Since(start) != after {
					t.Errorf("after %v it ends with %v", time.Since(start), err)
				}
			})
			synctest.Wait()
		}
		for n := range workers {
			send(10*time.Second+time.Duration(n), true)
		}
		send(20*time.Second, false)
		send(5*time.Second, false) // it ends before those that came earlier
		callers.Wait()
		callers.Go(func() {
			if err := h.Do(until{t.Context(), time.Now().Add(time.Hour)}, sized(0)); err != nil {
				t.Errorf("one that is sent in time ends with %v", err)
			}
		})
		synctest.Wait()
		close(h.gate)
		callers.Wait()
		h.work.Wait()
		if sizes := len(h.sizes); sizes != workers+1 || len(h.waiting) > 0 || len(h.flying) > 0 {
			t.Errorf("%d batches were sent, %d items wait, %d batches are in flight", sizes, len(h.waiting), len(h.flying))
		}
	})
}
