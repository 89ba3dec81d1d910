package streams

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/engine/segments"
	"github.com/semelhq/semel/store"
)

// How a stream is cut; see BenchmarkStream of package semelproxy.
const (
	batch    = 64 << 10               // is written without a pause
	pause    = 100 * time.Millisecond // between two writes of less
	full     = 16 << 10               // a cell with as much isn't written again
	room     = 4 * batch              // waits in memory for the store
	mostCell = 1<<20 - 2              // that a cell can have
)

// Stream is what to record.
type Stream struct {
	Store store.Store
	// Record is that of the attempt.
	Record *store.Record
	// Max bounds the stream with its head, in bytes.
	Max int64
	// Charge counts bytes to keep, and reports false if the sender is over a quota.
	Charge func(bytes int64) bool
}

// Writer records one stream. One goroutine writes.
type Writer struct {
	Stream
	ctx   context.Context
	began time.Time
	done  chan struct{} // closed when everything is written, or given up

	mu    sync.Mutex
	news  sync.Cond // that something below has changed
	tail  []byte    // not durable yet
	base  int64     // where it begins
	sum   hash.Hash // of everything before base; for record, and after done for everybody
	cells []int64   // where the durable cells begin
	due   bool      // the pause is over
	ended bool
	err   error // why no more is recorded
}

// Record begins to record a stream under ctx, that of its attempt: once that has ended, no more
// is recorded. The reader is for the first caller: it has everything at once, from memory, and what
// that caller is too slow for from the store. Call Close in the end, in any case.
func Record(ctx context.Context, of Stream, head []byte) (*Writer, *Reader) {
	w := &Writer{Stream: of, ctx: ctx, began: time.Now(), done: make(chan struct{}), sum: sha256.New(), due: true}
	w.news.L = &w.mu
	head = canon.Frame(nil, string(head))
	if len(head) > mostCell {
		w.err = ErrOver
	}
	_, _ = w.Write(head) // which the next call reports
	go w.record()
	return w, &Reader{st: of.Store, rec: of.Record, live: w, off: int64(len(head)), sum: sha256.New()}
}

// Write adds to the stream: all of p, or nothing and [ErrOver].
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.tail) >= room && w.err == nil {
		w.news.Wait()
	}
	if w.err == nil && (w.base+int64(len(w.tail)+len(p)) > w.Max || w.ended || time.Since(w.began) > longest || !w.Charge(int64(len(p)))) {
		w.err = ErrOver
		w.news.Broadcast()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.tail = append(w.tail, p...)
	w.news.Broadcast()
	return len(p), nil
}

// Close ends the recording, and returns the mark for the result when everything is durable. It
// is not ok if the stream isn't recorded whole. It may be called again.
func (w *Writer) Close() (data []byte, ok bool) {
	w.mu.Lock()
	w.ended = true
	w.news.Broadcast()
	w.mu.Unlock()
	<-w.done
	if w.err != nil {
		return nil, false
	}
	return mark{w.base, string(w.sum.Sum(nil))}.encode(), true
}

// record writes the stream to its cells until it ends, or recording is over.
func (w *Writer) record() {
	defer close(w.done)
	var old store.CellValue
	for n := 0; ; {
		text, _, _ := part(old.Data)
		data := append([]byte{form, 0}, text...)
		more := len(data)
		if data = w.take(data); len(data) == more {
			return
		}
		if len(data) >= full {
			data[1] = 1
		}
		var err error
		if old, err = w.put(store.NewCell(w.Store, segments.Cell(w.Record.ID, w.Record.Fence, n)), old, data); err != nil {
			w.give(ErrOver)
			return
		}
		w.sum.Write(data[more:])
		w.durable(len(data)-more, more == 2)
		if data[1] == 1 {
			n, old = n+1, store.CellValue{}
		}
	}
}

// take appends what to write next. It appends nothing when the recording is over.
func (w *Writer) take(data []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (len(w.tail) == 0 && !w.ended || len(w.tail) > 0 && len(w.tail) < batch && !w.due && !w.ended) {
		w.news.Wait()
	}
	if w.err != nil {
		return data
	}
	w.due = false
	time.AfterFunc(pause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.due = true
		w.news.Broadcast()
	})
	return append(data, w.tail[:min(len(w.tail), mostCell+2-len(data))]...)
}

// put writes a cell, until the store says that it has it or the attempt has ended.
//
// A crash before this write leaves the parts before it, and a crash after it this one, too. Either
// way the ledger says that an answer was on its way, so the call is held, and the parts are
// shown as such. Whoever settles it needn't clean up: cells expire.
func (w *Writer) put(cell *store.Cell, old store.CellValue, data []byte) (store.CellValue, error) {
	for {
		cur, ok, err := cell.Swap(w.ctx, old, store.CellValue{Data: data, KeepFor: w.Record.Policy.Window + longest})
		switch {
		case err == nil && (ok || bytes.Equal(cur.Data, data)): // an earlier try may have arrived
			return cur, nil
		case err == nil:
			return cur, ErrOver
		}
		select {
		case <-time.After(pause):
		case <-w.ctx.Done():
			return old, w.ctx.Err()
		}
	}
}

// durable notes that n more bytes are in the store, and whether a cell begins with them.
func (w *Writer) durable(n int, begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if begins {
		w.cells = append(w.cells, w.base)
	}
	w.base += int64(n)
	w.tail = append(w.tail[:0], w.tail[n:]...)
	w.news.Broadcast()
}

func (w *Writer) give(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.news.Broadcast()
}

// after waits for what follows an offset, and appends it to buf. What the store has already is no
// longer in memory: then it returns the cell and the place there.
func (w *Writer) after(buf []byte, off int64) (more []byte, cell, at int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for off == w.base+int64(len(w.tail)) && w.err == nil && !w.ended {
		w.news.Wait()
	}
	if off > w.base+int64(len(w.tail)) { // not even the head was taken
		return buf, 0, 0, w.err
	}
	if off < w.base {
		for cell = len(w.cells) - 1; w.cells[cell] > off; {
			cell--
		}
		return buf, cell, int(off - w.cells[cell]), nil
	}
	if more = append(buf, w.tail[off-w.base:]...); len(more) == len(buf) && w.err != nil {
		return more, 0, 0, w.err
	} else if len(more) == len(buf) {
		return more, 0, 0, io.EOF
	}
	return more, 0, 0, nil
}
