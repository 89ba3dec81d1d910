// Package relay passes event streams that package streams records to callers over HTTP: to the
// first one while the stream comes, and to duplicates.
package relay

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/internal/streams"
	"github.com/semelhq/semel/store"
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

// Kind is the value of Header for a delivery that may get a stream. It is empty for all
// others. effect is the one in the ledger that says that an answer was on its way.
func Kind(r *http.Request, tap semel.Internal, call *semel.Call, ans *semel.Answer, effect string) string {
	rec, kind := ans.Record, Live
	switch {
	case ans.Decision == semel.Replay && answer.MarkOf(rec.Result.Data) != nil:
		return Finished
	case ans.Decision == semel.Held && strings.Contains(r.Header.Get("Accept"), sse.MediaType):
		kind = Partial
	case ans.Decision != semel.InFlight:
		return ""
	}
	// A stranger's delivery has no ledger here. For all others Authorize counts as in a replay.
	op, _ := tap.Operation(call.Operation)
	if !slices.ContainsFunc(rec.Effects, func(ef store.EffectRecord) bool { return ef.Name == effect && ef.Fence == rec.Fence }) ||
		op.Authorize != nil && op.Authorize(r.Context(), *call, *rec) != nil {
		return ""
	}
	return kind
}

// Duplicate is a delivery that gets a stream.
type Duplicate struct {
	W    http.ResponseWriter
	R    *http.Request
	Kind string
	// Most bounds each write; zero doesn't.
	Most time.Duration
	// Recall sets the headers of the recorded answer.
	Recall func(stored *answer.Recorded)
	// Refuse answers with the refusal that a partial stream ends with.
	Refuse func(w http.ResponseWriter)
}

// Join finds the stream of a record, and returns what sends it, with its status. If there is none, or
// no seat for one who waits, send is nil.
func (d *Duplicate) Join(tap semel.Internal, rec *semel.Record) (status int, send func() error) {
	leave := tap.Seat(rec.ID.Tenant)
	if leave == nil {
		return 0, nil
	}
	stream, err := streams.Join(d.R.Context(), tap.Store(), rec, func(rec *store.Record) []byte { return answer.MarkOf(rec.Result.Data) })
	stored, unread := answer.Parse(stream.Head)
	if err != nil || unread != nil {
		leave()
		return 0, nil
	}
	return stored.Status, func() error {
		defer leave()
		defer stream.Close()
		d.W.Header().Set(Header, d.Kind)
		pass := func() error {
			return sse.Pass(func() ([]byte, error) { return stream.Next(d.R.Context()) }, func() error { return stream.Rewind(d.R.Context()) }, d.R.Header.Get("Last-Event-ID"), d.events)
		}
		if d.Kind == Partial {
			d.Refuse(&sse.Partial{ResponseWriter: d.W, Send: func() { _ = pass() }, Event: "semel.refusal"})
			return nil
		}
		d.Recall(&stored)
		d.W.WriteHeader(stored.Status)
		_ = d.events(nil)
		return pass()
	}
}

// events sends events at once.
func (d *Duplicate) events(events [][]byte) error {
	defer Limit(d.W, d.Most)()
	for _, event := range events {
		if _, err := d.W.Write(event); err != nil {
			return err
		}
	}
	_ = http.NewResponseController(d.W).Flush() // where it can't, it comes at the end
	return nil
}
