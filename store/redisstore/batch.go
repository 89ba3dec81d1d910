package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

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
	// run sends writes, all in one run, and gives each its answer. It ends when there is
	// one or the connection is given up, whoever has gone by then: so no more than flights
	// are ever on their way, however long a server hangs.
	run func(batch []*write)
	// work has those who do so.
	work *sync.WaitGroup
	room *room // for those who wait

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

// room bounds the writes of a store whose callers wait, in number and in bytes.
type room struct{ writes, bytes atomic.Int64 }

// More callers than maxWaiting can't be served in the time that one of them waits, and
// would take the memory of those who can.
const (
	maxWaiting      = 1 << 14
	maxWaitingBytes = 64 << 20
)

var errFull = errors.New("too many writes wait for the server")

// enter reports whether there was room for a write, which then leaves.
func (r *room) enter(w *write) bool {
	if r.writes.Add(1) <= maxWaiting && r.bytes.Load() < maxWaitingBytes {
		r.bytes.Add(int64(w.size()))
		return true
	}
	r.writes.Add(-1)
	return false
}

func (r *room) leave(w *write) {
	r.writes.Add(-1)
	r.bytes.Add(-int64(w.size()))
}

// do sends a write and waits for its answer. When ctx ends before it was sent, it is not;
// later, its result is unknown: it is not called back.
func (b *batcher) do(ctx context.Context, w *write) error {
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	if !b.room.enter(w) {
		return notApplied(errFull)
	}
	defer b.room.leave(w)
	b.mu.Lock()
	if b.running < flights && len(b.queue) == 0 && b.peak.of() <= flights {
		b.running++
		b.sent(1)
		b.work.Go(func() { b.fly([]*write{w}) })
	} else {
		b.queue = append(b.queue, w)
		b.hire()
	}
	b.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return b.leave(ctx, w)
	}
}

// leave is for a caller whose context has ended: a write that was not sent yet is taken
// back.
func (b *batcher) leave(ctx context.Context, w *write) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		return notApplied(ctx.Err())
	}
	select {
	case <-w.done:
		return w.err
	default:
		return ctx.Err()
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
	b.run(batch)
	for _, w := range batch {
		w.done <- struct{}{}
	}
	b.end(len(batch))
}

// take takes a batch off the queue, which counts as on its way. The caller holds b.mu.
func (b *batcher) take() []*write {
	n, bytes := 0, 0
	for share := min(b.share(), len(b.queue)); n < share && bytes < maxBatchBytes; n++ {
		if claimedIn(b.queue[:n], b.queue[n]) {
			break
		}
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

// claimedIn reports whether a write is an update of a record that a batch has a claim of:
// they may not be in the same one, because the script takes claims back by deleting what
// is there.
func claimedIn(batch []*write, w *write) bool {
	return !w.claims() && slices.ContainsFunc(batch, func(other *write) bool { return other.claims() && other.record == w.record })
}
