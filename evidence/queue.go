package evidence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// maxBatch bounds the entries of one write, which a store holds in memory at once.
const maxBatch = 1024

var (
	errBusy    = errors.New("evidence: too many entries wait to be written")
	errUnknown = errors.New("evidence: it is not known whether the entry is durable")
	errClosed  = errors.New("evidence: the log is closed")
)

// queue writes entries that belong to no record, many in one step. The goroutine
// that writes lives only while there is something to write.
type queue struct {
	store logStore
	opts  *Options

	room chan struct{} // has an element for each entry that may still wait

	mu      sync.Mutex
	batches []*batch      // to be written, in this order
	urgent  chan struct{} // tells the writer not to wait for more
	writing bool
	closed  bool
	done    context.Context
	stop    context.CancelFunc
	idle    chan struct{} // closed while nobody writes
}

type batch struct {
	entries []store.Entry
	urgent  bool          // somebody waits
	written chan struct{} // closed when it is durable
}

func (q *queue) init(store logStore, opts *Options) {
	q.store, q.opts = store, opts
	q.room, q.urgent = make(chan struct{}, opts.MaxQueue), make(chan struct{}, 1)
	for range opts.MaxQueue {
		q.room <- struct{}{}
	}
	q.done, q.stop = context.WithCancel(context.Background())
	q.idle = make(chan struct{})
	close(q.idle)
}

// add queues an entry and, if the delivery has to wait for it, returns once it is durable. An
// error says that the answer may not be given; the entry may be there nonetheless.
func (q *queue) add(ctx context.Context, entry store.Entry, durable bool) error {
	b, err := q.join(ctx, entry, durable)
	if err != nil || !durable {
		return err
	}
	return q.await(ctx, b.written, errUnknown)
}

// await waits until ready has something or is closed. It returns late if that takes too long.
func (q *queue) await(ctx context.Context, ready <-chan struct{}, late error) error {
	select {
	case <-ready: // without a timer
		return nil
	default:
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", late, ctx.Err())
	case <-q.done.Done():
	case <-time.After(q.opts.MaxWait):
	}
	return late
}

// join puts an entry into a batch once there is room.
func (q *queue) join(ctx context.Context, entry store.Entry, durable bool) (*batch, error) {
	if err := q.await(ctx, q.room, errBusy); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.room <- struct{}{}
		return nil, errClosed
	}
	var b *batch
	if n := len(q.batches); n > 0 && len(q.batches[n-1].entries) < maxBatch {
		b = q.batches[n-1]
	} else {
		b = &batch{written: make(chan struct{})}
		q.batches = append(q.batches, b)
	}
	b.entries = append(b.entries, entry)
	if flush := durable || len(b.entries) == maxBatch; flush && !b.urgent {
		b.urgent = true
		q.hurry()
	}
	if !q.writing {
		q.writing, q.idle = true, make(chan struct{})
		go q.write()
	}
	return b, nil
}

func (q *queue) hurry() {
	select {
	case q.urgent <- struct{}{}:
	default:
	}
}

// write writes batches until there are none.
func (q *queue) write() {
	for {
		q.mu.Lock()
		if len(q.batches) == 0 {
			q.writing = false
			close(q.idle)
			q.mu.Unlock()
			return
		}
		b := q.batches[0]
		wait := !b.urgent && !q.closed
		q.mu.Unlock()
		if wait {
			timer := time.NewTimer(q.opts.FlushEvery)
			select {
			case <-timer.C:
			case <-q.urgent:
			}
			timer.Stop()
		}
		q.mu.Lock()
		q.batches = q.batches[1:] // nobody adds to this batch any more
		q.mu.Unlock()
		if !q.append(b) {
			return // leaves idle open: close reports what is lost
		}
		close(b.written)
		for range b.entries {
			q.room <- struct{}{}
		}
	}
}

// append writes a batch, again and again until the store confirms that it is durable. An error
// means unknown, so entries may then be in the log twice, with the same id. It gives up when
// the log is closed for good.
//
// A crash before the write loses the entries of deliveries that did not wait for them; those
// that waited got no answer. A crash after it leaves nothing to do.
func (q *queue) append(b *batch) bool {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(q.done, q.opts.MaxWait)
		err := q.store.AppendEvidence(ctx, b.entries)
		cancel()
		if err == nil {
			return true
		}
		q.opts.OnError(fmt.Errorf("evidence: %d entries are not written yet: %w", len(b.entries), err))
		select {
		case <-time.After(pause):
		case <-q.done.Done():
			return false
		}
	}
}

// close refuses further entries and waits for the queued ones.
func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	idle := q.idle
	q.mu.Unlock()
	q.hurry()
	defer q.stop()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("evidence: %d entries of deliveries that were answered may be lost: %w", cap(q.room)-len(q.room), ctx.Err())
	}
}
