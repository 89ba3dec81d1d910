// Package gather batches the work of concurrent callers (group commit).
package gather

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// Queue lets concurrent callers share batches of work (group commit). A single caller never
// waits for others. When a caller gives up, its waiting item is dropped and its memory freed;
// an item that was sent is finished whether anybody waits for it or not.
//
// Set the exported fields before you use it. Any number of goroutines may use it.
type Queue[T interface{ Size() int }] struct {
	// Send does the work of a batch, even if its callers have given up. At most Workers
	// calls of it run at a time, however long they take.
	Send func(batch []T)
	// Start takes the place of Send if the work has two parts, such as a write and a sync. It
	// does the first and returns the second, which is done while Start has the next batch.
	Start func(batch []T) (finish func())
	// Workers is how many batches may be in flight at a time.
	Workers int
	// MaxBatch is how many items a batch has at most. A batch also ends with the item that
	// brings the sum of the sizes to MaxBytes.
	MaxBatch, MaxBytes int
	// Work counts the running workers, so that you can wait for them to end.
	Work *sync.WaitGroup
	// Room bounds the items that wait or are in flight. Several queues may share one.
	Room *Room

	// Key says what an item is about. Only one item of a key is in flight at a time, so no
	// batch waits for another of this process. Nil: items are independent of each other.
	Key func(item T) [32]byte
	// Answers reports whether the result of an item that was sent also answers a waiting item
	// of the same key; if so, it has copied the result to it. So many duplicates cost one
	// (singleflight). It isn't called for items that came after the first was taken, because
	// its result may be older than they are. Nil: every item is sent.
	Answers func(sent, waiting T) bool
	// Apart reports whether an item is sent in a batch of its own. Nil: none is.
	Apart func(item T) bool

	mu      sync.Mutex
	waiting []*caller[T] // in order of arrival
	joined  uint64       // how many have arrived
	sent    map[[32]byte]*caller[T]
	running int // workers
	closed  bool
}

// caller is a call of Do that waits for its item.
type caller[T any] struct {
	item T
	key  [32]byte
	err  error
	done chan struct{} // closed when the item is finished, or err says why it never will be

	number   uint64 // its place in the order of arrival
	behind   uint64 // how many had arrived when it was taken
	finished bool
}

// ErrNotSent is in an error of Do if the item wasn't sent and never will be.
var ErrNotSent = errors.New("it was not sent")

// The reasons for an [ErrNotSent], besides the caller's context: the Room is full, or the queue
// is closed.
var (
	ErrFull   = errors.New("too many wait")
	ErrClosed = errors.New("the queue is closed")
)

// Do returns nil once Send has finished a batch with the item. The item waits for its turn as
// long as ctx allows, while Room bounds how many do. If ctx ends before the item is
// sent, it never is, and the error is an [ErrNotSent]; if ctx ends later, the result is
// unknown.
func (q *Queue[T]) Do(ctx context.Context, item T) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	size := int64(item.Size())
	if !q.Room.enter(size) {
		return notSent(ErrFull)
	}
	defer q.Room.leave(size)
	c := &caller[T]{item: item, done: make(chan struct{})}
	if q.Key != nil {
		c.key = q.Key(item)
	}
	if !q.join(c) {
		return notSent(ErrClosed)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if q.leave(c) {
			return notSent(ctx.Err())
		}
		return ctx.Err()
	}
}

func notSent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// join queues a caller, and reports whether the queue is open.
func (q *Queue[T]) join(c *caller[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.joined++
	c.number = q.joined
	q.waiting = append(q.waiting, c)
	q.startWorker()
	return true
}

// startWorker starts a worker unless all of them run. The caller holds q.mu.
func (q *Queue[T]) startWorker() {
	if q.running < q.Workers {
		q.running++
		q.Work.Go(q.drain)
	}
}

// leave takes an item out of the queue, and reports whether it was still there.
func (q *Queue[T]) leave(c *caller[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// Len returns how many items wait, and how many workers run.
func (q *Queue[T]) Len() (waiting, running int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.running
}

// drain is a worker: it sends batches until no waiting item may be sent.
func (q *Queue[T]) drain() {
	for {
		// The end of a batch wakes many callers at once. They are runnable now, and join first.
		runtime.Gosched()
		callers := q.take()
		if len(callers) == 0 {
			return
		}
		batch := make([]T, len(callers))
		for i, c := range callers {
			batch[i] = c.item
		}
		if q.Start == nil {
			q.Send(batch)
			q.finish(callers)
			continue
		}
		second := q.Start(batch)
		q.Work.Go(func() {
			second()
			q.finish(callers)
		})
	}
}

// take takes the next batch off the queue. A worker that gets none ends: the items left have
// keys that are in flight, and the workers that finish those go on with them.
func (q *Queue[T]) take() (batch []*caller[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes, full := 0, false
	another := false // items that are left may be sent now, in another batch
	left := q.waiting[:0]
	for i, c := range q.waiting {
		if full = full || len(batch) == q.MaxBatch || bytes >= q.MaxBytes; full {
			left, another = append(left, q.waiting[i:]...), true
			break
		}
		apart := q.Apart != nil && q.Apart(c.item)
		if q.sent[c.key] != nil {
			left = append(left, c)
			continue
		}
		if apart && len(batch) > 0 {
			left, another = append(left, c), true
			continue
		}
		if q.Key != nil {
			if q.sent == nil {
				q.sent = map[[32]byte]*caller[T]{}
			}
			q.sent[c.key] = c
		}
		c.behind = q.joined
		batch = append(batch, c)
		bytes += c.item.Size()
		full = apart
	}
	clear(q.waiting[len(left):])
	if q.waiting = left; len(left) == 0 {
		q.waiting = nil
	}
	switch {
	case len(batch) == 0:
		q.running--
	case another:
		q.startWorker()
	}
	return batch
}

// finish wakes the callers of a batch, and those of waiting items that it answers too.
func (q *Queue[T]) finish(batch []*caller[T]) {
	q.mu.Lock()
	for _, c := range batch {
		c.finished = true
	}
	if q.Answers != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(c *caller[T]) bool {
			first := q.sent[c.key]
			answered := first != nil && first.finished && c.number <= first.behind && q.Answers(first.item, c.item)
			if answered {
				close(c.done)
			}
			return answered
		})
	}
	if q.Key != nil {
		for _, c := range batch {
			if q.sent[c.key] != c {
				panic("gather: two items of a key were in flight")
			}
			delete(q.sent, c.key)
		}
	}
	q.mu.Unlock()
	for _, c := range batch {
		close(c.done)
	}
}

// Close refuses new items and gives up those that wait. Batches in flight go on; wait for
// them by Work.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, c := range q.waiting {
		c.err = notSent(ErrClosed)
		close(c.done)
	}
	q.waiting = nil
}
