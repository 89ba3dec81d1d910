// Package relay passes event streams that package streams records to callers over HTTP: to the
// first one while the stream comes, and to duplicates.
package relay

import (
	"context"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/streams"
)

// Header says what of a stream a duplicate gets.
const Header = "Semel-Stream"

// The values of Header.
const (
	Finished = "finished"
	Live     = "live"
	Partial  = "partial"
)

// First is the recording of a stream that passes to its first caller.
type First struct {
	w     *streams.Writer
	out   http.ResponseWriter
	limit func() (done func())
	sent  chan struct{} // closed when the caller has all that was recorded, or takes no more
	over  bool          // the rest isn't recorded
}

// Record begins to record the stream of an attempt, up to a size, and to send it to its first
// caller, for whom the head has left already. limit bounds each write: a caller who doesn't read
// delays nobody else.
func Record(tap semel.Internal, a *semel.Attempt, head []byte, most int64, out http.ResponseWriter, limit func() (done func())) *First {
	w, r := streams.Record(a.Context(), streams.Stream{
		Store: tap.Store(), Record: a.Record(), Max: most,
		Charge: func(n int64) bool { return tap.Charge(a.Context(), a.Record(), n) },
	}, head)
	f := &First{w: w, out: out, limit: limit, sent: make(chan struct{})}
	go f.send(r)
	return f
}

func (f *First) send(r *streams.Reader) {
	defer close(f.sent)
	for {
		done := f.limit()
		_ = http.NewResponseController(f.out).Flush() // or the next write sends it
		done()
		part, err := r.Next(context.Background())
		if err != nil {
			return
		}
		done = f.limit()
		_, err = f.out.Write(part)
		if done(); err != nil {
			return
		}
	}
}

// Pass records an event and sends it. Where the recording is over, it only sends it.
func (f *First) Pass(event []byte) {
	if Add(f, event) {
		return
	}
	defer f.limit()()
	if _, err := f.out.Write(event); err == nil {
		_ = http.NewResponseController(f.out).Flush() // a caller who is gone asks again
	}
}

// On reports whether there is a recording, and it isn't over.
func (f *First) On() bool { return f != nil && !f.over }

// Add adds to the stream, if the recording is on. It reports false if p isn't recorded: the caller
// has all before it then, and the rest is yours to send.
func Add[T string | []byte](f *First, p T) bool {
	if !f.On() {
		return false
	}
	if _, err := f.w.Write([]byte(p)); err != nil {
		f.over = true
		f.Finish()
	}
	return !f.over
}

// Mark ends the recording, and returns the mark of a stream that is recorded whole; otherwise nil.
func (f *First) Mark() []byte {
	if f == nil {
		return nil
	}
	mark, _ := f.w.Close()
	return mark
}

// Finish ends the recording, if there is one, and returns when nobody writes to the caller
// any more.
func (f *First) Finish() {
	if f != nil {
		f.w.Close()
		<-f.sent
	}
}

// Limit lets writes fail that take longer, and all after them, until done is called.
func Limit(w http.ResponseWriter, most time.Duration) (done func()) {
	if most <= 0 {
		return func() {}
	}
	timer := time.AfterFunc(most, func() {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // long ago
	})
	return func() { timer.Stop() }
}
