package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/gather"
)

// A batch has up to so many writes, and ends with the one by which it has so many bytes:
// while the server runs it, it does nothing else.
const (
	maxBatch      = 64
	maxBatchBytes = 256 << 10
)

// flights is how many batches are on their way at a time, and fair how many writes are
// enough for a second one. Few callers, up to direct, send each write by itself, one
// behind the other: to wait for each other would cost them more than it saves.
const (
	flights = 2
	fair    = 16
	direct  = 8
)

// batcher lets concurrent writes share runs of a script, for half of what a run takes
// the server is the same for one write and for many. A caller that is alone waits for
// nobody.
type batcher struct {
	// run sends writes, all in one run, and gives each its answer.
	run func(ctx context.Context, batch []*write)
	// work has those who do so.
	work *sync.WaitGroup

	mu      sync.Mutex
	queue   []*write
	running int // batches that are on their way, or about to be
	out     int // writes in them
	crowd   gather.Crowd
}

// write is one write on its way.
type write struct {
	keys, args [3]string
	client     rueidis.Client // that has sent it
	again      bool           // a run that may have made it was refused
	answer     rueidis.RedisMessage
	err        error
	done       chan struct{} // nil where nobody waits
}

func (w *write) size() int { return len(w.args[0]) + 256 }

// do sends a write and waits for its answer. When ctx ends first, the result of what was
// sent is unknown: it is not called back.
func (b *batcher) do(ctx context.Context, w *write) error {
	b.mu.Lock()
	if b.running < direct && len(b.queue) == 0 && !b.crowd.Several() {
		b.running++
		b.note(1)
		b.mu.Unlock()
		b.run(ctx, []*write{w})
		b.end(1)
		return w.err
	}
	w.done = make(chan struct{})
	b.queue = append(b.queue, w)
	b.hire()
	b.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		b.leave(w)
		return ctx.Err()
	}
}

// leave takes a write back that was not sent yet.
func (b *batcher) leave(w *write) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
}

// note takes note of a batch that is sent. The caller holds b.mu.
func (b *batcher) note(n int) {
	b.out += n
	b.crowd.Note(n)
}

// end is called when a batch was answered.
func (b *batcher) end(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.out -= n
	b.hire()
}

// hire has the queue sent if that is worthwhile. The caller holds b.mu.
func (b *batcher) hire() {
	if n := len(b.queue); n > 0 && (b.running == 0 || b.running < flights && n >= min(b.out, fair)) {
		b.running++
		b.work.Go(b.next)
	}
}

// next sends one batch.
func (b *batcher) next() {
	gather.Until(func() uint64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return uint64(len(b.queue))
	})
	b.mu.Lock()
	batch := b.take()
	if len(batch) == 0 { // another has taken it, or all have left
		b.running--
		b.mu.Unlock()
		return
	}
	b.note(len(batch))
	b.mu.Unlock()
	b.run(context.Background(), batch)
	for _, w := range batch {
		close(w.done)
	}
	b.end(len(batch))
}

// take takes a batch off the queue. The caller holds b.mu.
func (b *batcher) take() []*write {
	n, bytes := 0, 0
	for n < min(len(b.queue), maxBatch) && bytes < maxBatchBytes {
		bytes += b.queue[n].size()
		n++
	}
	batch := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return batch
}

// send sends writes on keys of one slot, or of one server, in one run of the script,
// which nothing else comes between. Where the server breaks it off, each is sent by
// itself, so that one that can't be made does not keep the others from being made; some
// may have been made by then.
func (s *Store) send(ctx context.Context, batch []*write) {
	c := s.link.client()
	keys, args := make([]string, 0, 3*len(batch)), make([]string, 0, 3*len(batch))
	for _, w := range batch {
		keys, args = append(keys, w.keys[:]...), append(args, w.args[:]...)
	}
	answers, err := eval(ctx, c, scriptWrite, keys, args...).ToArray()
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("%d answers to %d writes", len(answers), len(batch))
	}
	if len(batch) > 1 && brokenOff(err) {
		for i, w := range batch {
			w.again = true
			s.send(ctx, batch[i:i+1])
		}
		return
	}
	for i, w := range batch {
		w.client, w.err = c, err
		if err == nil {
			w.answer = answers[i]
		}
	}
}

// brokenOff reports that a run of a script ended at one of its writes. Errors of other
// kinds are about the server, and would come again for each.
func brokenOff(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && (strings.HasPrefix(e.Error(), "WRONGTYPE ") || strings.HasPrefix(e.Error(), "ERR "))
}
