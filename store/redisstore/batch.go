package redisstore

import (
	"context"
	"fmt"
	"slices"
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

// flights is how many batches are on their way at a time: a server that has several is
// busy while those whose batch was answered go on. Each batch gets its share of the writes
// there are, or else all callers end up in the same one, and they and the server take
// turns instead of working side by side. Up to flights callers send each write by itself,
// one behind the other: to wait for each other would cost them more than it saves.
const flights = 4

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
	peak    peak
}

// peak is how many writes there were at a time, in the queue and on their way, at most
// and of late.
type peak struct {
	last, now int // in the last window, and in this one so far
	batches   int // of this window
}

// window is how many batches are one.
const window = 64

// note takes note of how many there are when a batch is sent.
func (p *peak) note(n int) {
	if p.batches++; p.batches == window {
		*p = peak{last: p.now}
	}
	p.now = max(p.now, n)
}

func (p *peak) of() int { return max(p.last, p.now) }

// do sends a write and waits for its answer. When ctx ends first, the result of what was
// sent is unknown: it is not called back.
func (b *batcher) do(ctx context.Context, w *write) error {
	b.mu.Lock()
	if b.running < flights && len(b.queue) == 0 && b.peak.of() <= flights {
		b.running++
		b.sent(1)
		b.mu.Unlock()
		b.run(ctx, []*write{w})
		b.end(1)
		return w.err
	}
	if w.done == nil {
		w.done = make(chan struct{}, 1)
	}
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

// sent takes note of a batch that is sent. The caller holds b.mu.
func (b *batcher) sent(n int) {
	b.out += n
	b.peak.note(len(b.queue) + b.out)
}

// end is called when a batch was answered.
func (b *batcher) end(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.out -= n
	b.hire()
}

// share is how many writes a batch has, as far as there are so many. The caller holds b.mu.
func (b *batcher) share() int {
	return min(max(b.peak.of()/flights, 2), maxBatch)
}

// hire has the queue sent if that is worthwhile. The caller holds b.mu.
func (b *batcher) hire() {
	switch n := len(b.queue); {
	case n > 0 && b.running == 0:
		b.running++
		b.work.Go(b.gather)
	case b.running < flights && n >= b.share():
		b.running++
		batch := b.take()
		b.work.Go(func() { b.fly(batch) })
	}
}

// gather sends a batch of those who come now.
func (b *batcher) gather() {
	gather.Until(func() uint64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return uint64(len(b.queue))
	})
	b.mu.Lock()
	batch := b.take()
	if len(batch) == 0 { // others have taken them, or all have left
		b.running--
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	b.fly(batch)
}

// fly sends a batch that was taken.
func (b *batcher) fly(batch []*write) {
	b.run(context.Background(), batch)
	for _, w := range batch {
		w.done <- struct{}{}
	}
	b.end(len(batch))
}

// take takes a batch off the queue, which counts as on its way. The caller holds b.mu.
func (b *batcher) take() []*write {
	n, bytes := 0, 0
	for share := min(b.share(), len(b.queue)); n < share && bytes < maxBatchBytes; n++ {
		bytes += b.queue[n].size()
	}
	batch := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	if n > 0 {
		b.sent(n)
	}
	return batch
}

// send sends writes of one shard in one run of the script, which nothing else comes
// between.
func (s *Store) send(ctx context.Context, batch []*write) {
	c := s.link.client()
	answers, err := s.evalWrites(ctx, c, batch)
	if err == nil {
		err = s.settle(c, batch, answers)
	}
	for _, w := range batch {
		w.client, w.err = c, err
	}
}

// settle takes the answers of scriptWrite.
func (s *Store) settle(c rueidis.Client, batch []*write, answers []rueidis.RedisMessage) error {
	if len(answers)%2 == 0 {
		return fmt.Errorf("%d answers to %d writes", len(answers), len(batch))
	}
	if token, err := answers[0].ToString(); err != nil || token != batch[0].token() {
		return s.mixedUp(c, fmt.Sprintf("%d writes", len(batch)))
	}
	for _, w := range batch {
		w.made = true
	}
	for others := answers[1:]; len(others) > 0; others = others[2:] {
		n, err := others[0].ToInt64()
		if err != nil || n < 1 || n > int64(len(batch)) {
			return s.mixedUp(c, fmt.Sprintf("%d writes", len(batch)))
		}
		w := batch[n-1]
		w.made, w.there = false, others[1]
	}
	return nil
}
