// Package gather batches the work of concurrent callers (group commit).
package gather

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Queue lets concurrent callers share batches of work (group commit). A single caller never
// waits for others. When a caller gives up, its waiting item is dropped and its memory freed;
// an item that was sent is finished even if nobody waits for it any more.
//
// Set the exported fields before you use it. Any number of goroutines may use it.
type Queue[T member] struct {
	// Send does the work of a batch, even if its callers have given up. At most Workers calls
	// of it run at a time, however long they take.
	Send func(batch []T)
	// Start takes the place of Send if the work has two parts, such as a write and a sync. It
	// does the first part and returns the second, which runs while Start has the next batch.
	// Unlike Send, it may not change the batch.
	Start func(batch []T) (finish func())
	// Lead takes the place of Send, in the caller's goroutine, for a lone caller whose context
	// nobody cancels: waking a worker and being woken by it can take as long as the work. It
	// returns at ctx's deadline at the latest. Nil, as it must be if Start is set: workers send
	// every item.
	Lead func(ctx context.Context, item T)
	// Workers is how many batches may be in flight at a time.
	Workers int
	// MaxBatch is the most items in a batch. A batch also ends with the item that brings its
	// total size to MaxBytes.
	MaxBatch, MaxBytes int
	// Work counts the running workers, so that you can wait for them to end.
	Work *sync.WaitGroup
	// Room bounds the items that wait or are in flight. Several queues may share one.
	Room *Room

	// Key says what an item is about. Only one item of each key is in flight at a time, so no
	// batch waits for another batch of this process. Nil: items are independent of each other.
	Key func(item T) [32]byte
	// Answers reports whether the result of an item that was sent also answers a waiting item
	// of the same key; if so, it has copied the result to it. So many duplicates cost one call
	// (singleflight). It isn't called for items that came after the sent one left the queue,
	// because its result may be older than they are. Nil: every item is sent.
	Answers func(sent, waiting T) bool
	// Apart reports whether an item needs a batch of its own. Nil: none does.
	Apart func(item T) bool
	// Failed reports whether a sent item ended without an answer from the server. Nil: none
	// does.
	Failed func(item T) bool

	mu      sync.Mutex
	waiting []T // in order of arrival
	flying  [][]T
	joined  uint64 // how many have arrived
	sent    map[[32]byte]T
	sizes   Sizes     // of the batches that were sent
	items   uint64    // that they had
	out     int       // batches in flight
	since   time.Time // when it became busy; see Load.Since
	heard   time.Time // when an item was last answered
	failed  time.Time // when the last batch ended, if it had no answer
	running int       // workers, plus a caller who leads
	late    bool      // the last leading caller left at their deadline; see endLead
	closed  bool
	watch   *time.Timer // gives up items past their deadline; nil until there is one
	next    time.Time   // when it fires next; zero: it doesn't
}

// Item is the queue's state for one caller and its item. Embed it in your items; pass each to
// Do only once.
type Item struct {
	key      [32]byte
	deadline time.Time // of a caller that nothing else stops; zero: a context watches over it
	err      error     // why the queue gave it up
	done     sync.WaitGroup

	number uint64 // its place in the order of arrival
	behind uint64 // how many had arrived by the time it left the queue
	// finished: it has its result. settled: its caller has got that, or err.
	finished, settled bool
}

func (i *Item) item() *Item { return i }

// member is a type that embeds [Item].
type member interface {
	comparable
	Size() int
	item() *Item
}

// deadlined is a context that nobody cancels: it ends at its deadline. Waiting under one costs
// nothing, because the queue has one timer for all of them.
type deadlined interface {
	Deadline() (time.Time, bool)
	NeverCancelled()
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
// long as ctx allows; Room limits how many wait. If ctx ends before the item is sent, it never
// will be, and the error is an [ErrNotSent]; if ctx ends later, the result is unknown.
func (q *Queue[T]) Do(ctx context.Context, item T) error {
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	size := int64(item.Size())
	if !q.Room.enter(size) {
		return notSent(ErrFull)
	}
	defer q.Room.leave(size)
	i := item.item()
	if q.Key != nil {
		i.key = q.Key(item)
	}
	i.done.Add(1)
	d, limited := ctx.(deadlined)
	if limited {
		i.deadline, _ = d.Deadline()
	}
	leads, err := q.join(item, limited)
	if err != nil {
		return err
	}
	if leads {
		q.lead(ctx, item)
		return nil
	}
	if !limited && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { q.leave(item, ctx.Err()) })
		defer stop()
	}
	i.done.Wait()
	return i.err
}

func notSent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// join queues an item, unless its caller may lead and is alone.
func (q *Queue[T]) join(item T, mayLead bool) (leads bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, notSent(ErrClosed)
	}
	i := item.item()
	q.joined++
	i.number = q.joined
	if len(q.waiting)+q.out == 0 && time.Since(q.failed) > again {
		q.since = time.Now()
	}
	if mayLead && q.Lead != nil && !q.late && len(q.waiting)+q.running == 0 {
		q.running++
		q.out++
		q.Work.Add(1)
		q.send(item)
		q.sizes.add(1)
		q.items++
		return true, nil
	}
	q.waiting = append(q.waiting, item)
	q.watchUntil(i.deadline)
	q.startWorker()
	return false, nil
}

// Sizes counts batches by size: [i] counts batches of more than 2^(i-1) and up to 2^i items.
// The last also counts all larger ones.
type Sizes [16]uint64

// add counts a batch of n items.
func (s *Sizes) add(n int) { s[min(bits.Len(uint(n-1)), len(s)-1)]++ }

// again is how soon callers retry if their items got no answer: an engine pauses for up to half
// of that. Until then, they count as waiting.
const again = time.Second

// Load says how busy a queue is, and was.
type Load struct {
	// Full is how full the queue is, from 0 to 1. At 1 it accepts nothing.
	Full float64
	// Batches counts the sent batches by size, and Items is the number of items in all of them.
	Batches Sizes
	Items   uint64
	// Since is when the queue became busy: since then, some item has always been waiting or in
	// flight. Zero while it is idle. Answered is when an item last got an answer; zero: never.
	Since, Answered time.Time
}

// Silent returns how long items have waited without any of them getting an answer.
func (l Load) Silent() time.Duration {
	switch {
	case l.Since.IsZero():
		return 0
	case l.Answered.After(l.Since):
		return time.Since(l.Answered)
	}
	return time.Since(l.Since)
}

// Load returns the queue's present load.
func (q *Queue[T]) Load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := Load{Full: q.Room.full(), Batches: q.sizes, Items: q.items, Answered: q.heard}
	if len(q.waiting)+q.out > 0 {
		l.Since = q.since
	}
	return l
}

// startWorker starts a worker unless all of them are running. The caller holds q.mu.
func (q *Queue[T]) startWorker() {
	if q.running < q.Workers {
		q.running++
		q.Work.Go(q.drain)
	}
}

// settle notes that an item has its result, or why the queue gives it up, and reports whether
// to wake its caller, which is true only the first time. The caller holds q.mu.
func (i *Item) settle(err error) (tell bool) {
	if tell = !i.settled; tell {
		i.settled, i.err = true, err
	}
	return tell
}

// giveUp settles an item without a result.
func (i *Item) giveUp(why error) {
	if i.settle(why) {
		i.done.Done()
	}
}

// leave gives an item up: if it is still waiting, it is never sent.
func (q *Queue[T]) leave(item T, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := slices.Index(q.waiting, item); n >= 0 {
		q.waiting = slices.Delete(q.waiting, n, n+1)
		why = notSent(why)
	}
	item.item().giveUp(why)
}

// watchUntil schedules a check of the items for when the first deadline has passed. Most items
// are done by then, and their deadlines cost nothing. The caller holds q.mu.
func (q *Queue[T]) watchUntil(deadline time.Time) {
	switch {
	case deadline.IsZero(), !q.next.IsZero() && !deadline.Before(q.next):
		return
	case q.watch == nil:
		q.watch = time.AfterFunc(time.Until(deadline), q.expire)
	default:
		q.watch.Reset(time.Until(deadline))
	}
	q.next = deadline
}

// expire gives up the items that are past their deadline.
func (q *Queue[T]) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next = time.Time{}
	now := time.Now()
	over := func(i *Item) bool { return !i.deadline.IsZero() && !now.Before(i.deadline) }
	q.waiting = slices.DeleteFunc(q.waiting, func(item T) bool {
		i := item.item()
		if over(i) {
			i.giveUp(notSent(context.DeadlineExceeded))
			return true
		}
		q.watchUntil(i.deadline)
		return false
	})
	for _, batch := range q.flying {
		for _, item := range batch {
			if i := item.item(); over(i) {
				i.giveUp(context.DeadlineExceeded)
			} else {
				q.watchUntil(i.deadline)
			}
		}
	}
}

// Len returns how many items are waiting, and how many workers are running.
func (q *Queue[T]) Len() (waiting, running int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting), q.running
}

// drain is a worker: it sends batches until no waiting item may be sent.
func (q *Queue[T]) drain() {
	for {
		q.gather()
		batch := q.take()
		if len(batch) == 0 {
			return
		}
		if q.Start == nil {
			q.Send(slices.Clone(batch)) // a copy, which Send may reorder
			q.finish(batch)
			continue
		}
		second := q.Start(batch)
		q.Work.Go(func() {
			second()
			q.finish(batch)
		})
	}
}

// gather yields until no more callers join: the end of a batch wakes many at once, and most
// have another item. BenchmarkGather shows the gain.
func (q *Queue[T]) gather() {
	for before := -1; ; {
		waiting, _ := q.Len()
		if waiting == before || waiting >= q.MaxBatch {
			return
		}
		before = waiting
		runtime.Gosched()
	}
}

// take takes the next batch off the queue. A worker that gets none ends: the keys of the
// remaining items are in flight, and the workers that finish those continue with them.
func (q *Queue[T]) take() (batch []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes, full := 0, false
	another := false // remaining items may be sent now, in another batch
	left := q.waiting[:0]
	for n, item := range q.waiting {
		if full = full || len(batch) == q.MaxBatch || bytes >= q.MaxBytes; full {
			left, another = append(left, q.waiting[n:]...), true
			break
		}
		i := item.item()
		apart := q.Apart != nil && q.Apart(item)
		if _, sent := q.sent[i.key]; sent {
			left = append(left, item)
			continue
		}
		if apart && len(batch) > 0 {
			left, another = append(left, item), true
			continue
		}
		q.send(item)
		if batch == nil {
			batch = make([]T, 0, min(len(q.waiting), q.MaxBatch))
		}
		batch = append(batch, item)
		bytes += item.Size()
		full = apart
	}
	clear(q.waiting[len(left):])
	q.waiting = left
	switch {
	case len(batch) == 0:
		q.running--
		return nil
	case another:
		q.startWorker()
	}
	q.flying = append(q.flying, batch)
	q.out++
	q.sizes.add(len(batch))
	q.items += uint64(len(batch))
	return batch
}

// send notes that an item is in flight from now on. The caller holds q.mu.
func (q *Queue[T]) send(item T) {
	i := item.item()
	i.behind = q.joined
	if q.Key == nil {
		return
	}
	if q.sent == nil {
		q.sent = map[[32]byte]T{}
	}
	q.sent[i.key] = item
}

// finish wakes the callers of a batch, and of waiting items that it also answers. It wakes them
// all at the end; otherwise they would run into a lock that it still holds.
func (q *Queue[T]) finish(batch []T) {
	for _, item := range q.results(batch) {
		item.item().done.Done()
	}
}

// results settles a batch, and returns the items whose callers to wake.
func (q *Queue[T]) results(batch []T) (tell []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.late = false
	q.out--
	if q.Failed == nil || slices.ContainsFunc(batch, func(item T) bool { return !q.Failed(item) }) {
		q.heard, q.failed = time.Now(), time.Time{}
	} else {
		q.failed = time.Now()
	}
	q.flying = slices.DeleteFunc(q.flying, func(b []T) bool { return &b[0] == &batch[0] })
	for _, item := range batch {
		item.item().finished = true
	}
	if q.Answers != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(item T) bool {
			i := item.item()
			sent, ok := q.sent[i.key]
			if !ok {
				return false
			}
			first := sent.item()
			answered := first.finished && i.number <= first.behind && q.Answers(sent, item)
			if answered && i.settle(nil) {
				tell = append(tell, item)
			}
			return answered
		})
	}
	for _, item := range batch {
		i := item.item()
		if q.Key != nil {
			if q.sent[i.key] != item {
				panic("gather: two items of a key were in flight")
			}
			delete(q.sent, i.key)
		}
	}
	batch = slices.DeleteFunc(batch, func(item T) bool { return !item.item().settle(nil) })
	return append(batch, tell...)
}

// Close refuses new items and gives up the waiting ones. Batches in flight continue; use Work
// to wait for them.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, item := range q.waiting {
		item.item().giveUp(notSent(ErrClosed))
	}
	q.waiting = nil
}
