package streams

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"time"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/engine/segments"
	"github.com/semelhq/semel/store"
)

// Reader reads one recorded stream. It is for one goroutine.
type Reader struct {
	// Head is what [Record] got.
	Head []byte

	st    store.Store
	rec   *store.Record                  // as it was read last
	mark  func(rec *store.Record) []byte // of a record that has ended
	live  *Writer                        // of the first caller's reader
	buf   []byte                         // what Next has returned
	cell  int                            // to read from
	at    int                            // the place there
	off   int64                          // in the stream
	sum   hash.Hash                      // of everything before
	left  bool                           // its lease ended a while ago
	stop  func()                         // ends the watches
	watch [2]<-chan struct{}             // of the cell and the record
}

// Join reads the stream of a record's newest attempt, from the start. mark finds the mark in the
// result of a record that has ended; nil if there is none. Without a stream the error is
// [ErrNone]. Call Close in the end.
func Join(ctx context.Context, st store.Store, rec *store.Record, mark func(rec *store.Record) []byte) (*Reader, error) {
	r := &Reader{st: st, rec: rec, mark: mark}
	return r, r.Rewind(ctx)
}

// Await is Join for a stream that may not have begun yet. It waits for that, or for the end of the
// attempt.
func Await(ctx context.Context, st store.Store, rec *store.Record, mark func(rec *store.Record) []byte) (*Reader, error) {
	r := &Reader{st: st, rec: rec, mark: mark}
	defer r.Close() // what watches under ctx
	var err error
	waited := r.until(ctx, func() bool {
		over := r.ended()
		err = r.Rewind(ctx)
		return over || !errors.Is(err, ErrNone)
	})
	return r, cmp.Or(waited, err)
}

// Rewind goes to the start.
func (r *Reader) Rewind(ctx context.Context) error {
	text, _, err := r.load(ctx, 0)
	head, rest, ok := canon.Unframe(text)
	if err == nil && !ok {
		err = ErrNone
	}
	if err != nil {
		return err
	}
	r.Head, r.cell, r.at, r.sum = bytes.Clone(head), 0, len(text)-len(rest), sha256.New()
	r.off = int64(r.at)
	r.sum.Write(text[:r.at])
	return nil
}

// end is the mark, if the record that was read last has one.
func (r *Reader) end() (mark, bool) {
	if !r.rec.State.Terminal() {
		return mark{}, false
	}
	return readMark(r.mark(r.rec))
}

// load reads a cell. One that isn't there has no text.
func (r *Reader) load(ctx context.Context, n int) (text []byte, full bool, err error) {
	v, err := store.NewCell(r.st, segments.Cell(r.rec.ID, r.rec.Fence, n)).Load(ctx)
	if err != nil || v.Data == nil {
		return nil, false, err
	}
	text, full, ok := part(v.Data)
	if !ok {
		return nil, false, ErrNone
	}
	return text, full, nil
}

// Next returns what follows, as it comes; it is good until the next call. The error is [io.EOF]
// at the end of a stream with a durable outcome, and for the first caller when the Writer is
// closed. It is [ErrPartial] where a stream broke off, and [ErrOver] or [ErrNone] where it wasn't
// kept to its end.
func (r *Reader) Next(ctx context.Context) (more []byte, err error) {
	for wait := pause / 4; ; wait = min(wait+wait/4, time.Second) {
		if r.live != nil {
			if r.buf, r.cell, r.at, err = r.live.after(r.buf[:0], r.off); err != nil || len(r.buf) > 0 {
				r.off += int64(len(r.buf))
				return r.buf, err
			}
		}
		over := r.ended()
		text, full, err := r.load(ctx, r.cell)
		switch {
		case err != nil:
			return nil, err
		case r.at < len(text):
			more, r.at = text[r.at:], len(text)
			r.off += int64(len(more))
			r.sum.Write(more)
			return more, nil
		case full:
			r.cell, r.at = r.cell+1, 0
			r.Close()
			continue
		case over || r.live != nil:
			return nil, r.over()
		}
		if err := r.wait(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// Until waits until a record is as done wants it, its attempt has ended, or ctx has, and returns it as
// it was read last. It reads the record whenever that may have changed.
func Until(ctx context.Context, st store.Store, rec *store.Record, done func(rec *store.Record) bool) (*store.Record, error) {
	r := &Reader{st: st, rec: rec}
	defer r.Close()
	err := r.until(ctx, func() bool { return r.ended() || done(r.rec) })
	return r.rec, err
}

// until waits until done reports true. It asks again whenever something may have changed.
func (r *Reader) until(ctx context.Context, done func() bool) error {
	for wait := pause / 4; !done(); wait = min(wait+wait/4, time.Second) {
		if err := r.wait(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// ended reports whether the attempt has ended, or its holder has left it, by the record as it was
// read last.
func (r *Reader) ended() bool {
	return r.left || r.rec.State != store.Processing || r.rec.Held
}

// over says how a stream has ended that nothing is added to.
func (r *Reader) over() error {
	m, ok := r.end()
	switch {
	case ok && m.size == r.off && m.sum == string(r.sum.Sum(nil)):
		return io.EOF
	case ok:
		return ErrNone // some of it is gone, or has changed
	case r.rec.State.Terminal() && r.rec.Result.Tombstone:
		return ErrOver
	}
	return ErrPartial
}

// wait waits until something may have changed, and reads the record.
func (r *Reader) wait(ctx context.Context, most time.Duration) error {
	if w := r.st.Extras().Watch; r.stop == nil && w != nil {
		cell, stop := w.Watch(ctx, segments.Cell(r.rec.ID, r.rec.Fence, r.cell))
		rec, stopRec := w.Watch(ctx, r.rec.ID)
		r.watch, r.stop = [2]<-chan struct{}{cell, rec}, func() { stop(); stopRec() }
		return nil // it may have changed before
	}
	if r.stop != nil {
		most = time.Second // a notice may get lost
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.watch[0]:
	case <-r.watch[1]:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	rec, err := r.st.Get(ctx, r.rec.ID)
	now, clockErr := r.st.Now(ctx)
	switch {
	case clockErr != nil:
		return clockErr
	case errors.Is(err, store.ErrNotFound):
		return ErrNone
	case err != nil:
		return err
	case rec.Fence != r.rec.Fence:
		return ErrPartial // another attempt runs
	}
	r.rec, r.left = rec, now.Sub(rec.LeaseUntil) > time.Second
	return nil
}

// Close ends what waits for news.
func (r *Reader) Close() {
	if r.stop != nil {
		r.stop()
	}
	r.stop, r.watch = nil, [2]<-chan struct{}{}
}
