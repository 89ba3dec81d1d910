package relay

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/internal/streams"
	"github.com/semelhq/semel/store"
)

// Mark finds the mark of a whole stream in the result of a record that has ended; nil if there is
// none.
type Mark func(rec *store.Record) []byte

// Kind is the value of Header for a delivery that may get a stream. It is empty for all
// others, and for whoever gets nothing of the record. takes says that the caller wants streams: the
// others get no partial one.
func Kind(takes bool, ans *semel.Answer, mark Mark) string {
	switch {
	case ans.Decision == semel.Replay && mark(ans.Record) != nil:
		return Finished
	case ans.Decision == semel.Held && ans.Record.Fence > 0 && takes:
		return Partial
	case ans.Decision == semel.InFlight && ans.Record.Fence > 0:
		return Live
	}
	return ""
}

// Accepts reports whether a request asks for event streams.
func Accepts(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header["Accept"], ","), sse.MediaType)
}

// Joined is a stream for one duplicate. Call Leave in the end.
type Joined struct {
	*streams.Reader
	leave func()
}

// Join finds the stream of the record that a call has met, or with await the one that its attempt
// may begin. The error is [streams.ErrNone] if there is none. Whoever joins a live stream takes a
// seat, and is asked for as for a replay, where the engine does that.
func Join(ctx context.Context, tap semel.Internal, call *semel.Call, ans *semel.Answer, mark Mark, await bool) (*Joined, error) {
	leave, join := func() {}, streams.Join
	if ans.Decision == semel.InFlight {
		if leave = tap.Seat(ans.Record.ID.Tenant); leave == nil {
			return nil, errNoSeat
		}
	}
	if await {
		join = streams.Await
	}
	r, err := join(ctx, tap.Store(), ans.Record, mark)
	j := &Joined{r, leave}
	op, _ := tap.Operation(call.Operation)
	if err == nil && ans.Decision != semel.Replay && op.Authorize != nil && op.Authorize(ctx, *call, *ans.Record) != nil {
		err = errForbidden
	}
	if err != nil {
		j.Leave()
		return nil, err
	}
	return j, nil
}

var (
	errNoSeat    = errors.New("relay: too many are waiting")
	errForbidden = errors.New("relay: the caller may not have the answer")
)

// Leave gives up the stream.
func (j *Joined) Leave() {
	j.Close()
	j.leave()
}

// Send passes on what follows the event with an id, see [sse.Pass].
func (j *Joined) Send(ctx context.Context, after string, send func(events [][]byte) error) error {
	return sse.Pass(func() ([]byte, error) { return j.Next(ctx) }, func() error { return j.Rewind(ctx) }, after, send)
}

// Events returns what sends events at once. Each time it may take as long as most; zero: as long as
// it likes.
func Events(w http.ResponseWriter, most time.Duration) func(events [][]byte) error {
	return func(events [][]byte) error {
		defer Limit(w, most)()
		for _, event := range events {
			if _, err := w.Write(event); err != nil {
				return err
			}
		}
		_ = http.NewResponseController(w).Flush() // where it can't, it comes at the end
		return nil
	}
}

// Follower is a caller who gets the recorded stream of another delivery, and after it the end of the
// answer from the door itself.
type Follower struct {
	W http.ResponseWriter
	R *http.Request
	// Takes says that the caller wants streams. Others only wait.
	Takes bool
	// Wait bounds how long a caller waits for a stream to begin, and Most each write.
	Wait, Most time.Duration
	// Marker is the header that marks answers to duplicates.
	Marker string
	Mark   Mark
	// Own makes an event of the stream, which begins with head, one for this caller; nil: they get
	// none for it.
	Own func(event, head []byte) []byte

	// Began says that the head of a stream has left.
	Began bool
	// Kind is what the caller gets; empty until they get something.
	Kind string
}

// Follow passes on the stream from its start to where it ends, and waits for that while the attempt
// runs. It reports whether the engine has to decide again.
func (f *Follower) Follow(ctx context.Context, tap semel.Internal, call *semel.Call, ans *semel.Answer) (again bool) {
	kind := Kind(f.Takes, ans, f.Mark)
	if live := kind == Live; kind == "" || !live && (f.Began || !f.Takes) {
		return false
	}
	waiting, cancel := context.WithTimeout(ctx, f.Wait)
	j, err := Join(waiting, tap, call, ans, f.Mark, kind == Live)
	cancel()
	if err == nil {
		send := func([][]byte) error { return nil }
		if f.Takes {
			send = Events(f.W, f.Most)
			f.begin(kind)
			_ = send(nil)
		}
		err = j.Send(ctx, f.R.Header.Get("Last-Event-ID"), func(events [][]byte) error {
			for i, event := range events {
				events[i] = f.Own(event, j.Head)
			}
			return send(events)
		})
		j.Leave()
	}
	return kind == Live && streams.Ended(err) && ctx.Err() == nil
}

// Say sends the last event, together with the end of the answer: a client that closes its connection
// at once leaves nothing unread then, which would look like an answer that was lost.
func (f *Follower) Say(event []byte) {
	defer f.Limit()()
	_, _ = f.W.Write(event) // a caller who is gone will ask again
}

// Limit bounds a write to the caller, who may not read, until done is called.
func (f *Follower) Limit() (done func()) { return Limit(f.W, f.Most) }

// begin sends the head.
func (f *Follower) begin(kind string) {
	f.Kind = kind
	if f.Began {
		return
	}
	f.Began = true
	header := f.W.Header()
	header.Set("Content-Type", sse.MediaType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set(Header, kind)
	if kind != Partial {
		header.Set(f.Marker, "true")
	}
	f.W.WriteHeader(http.StatusOK)
}
