package relay

import (
	"net/http"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/sse"
	"github.com/semelhq/semel/store"
)

// Duplicate is a delivery that gets a stream with the head of a recorded answer over HTTP.
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

// MarkOf is the [Mark] of answers over HTTP.
func MarkOf(rec *store.Record) []byte { return answer.MarkOf(rec.Result.Data) }

// Join finds the stream of a record, and returns what sends it, with its status. If there is none, or
// no seat for one who waits, send is nil.
func (d *Duplicate) Join(tap semel.Internal, call *semel.Call, ans *semel.Answer) (status int, send func() error) {
	ctx := d.R.Context()
	stream, err := Join(ctx, tap, call, ans, MarkOf, false)
	if err != nil {
		return 0, nil
	}
	stored, err := answer.Parse(stream.Head)
	if err != nil {
		stream.Leave()
		return 0, nil
	}
	return stored.Status, func() error {
		defer stream.Leave()
		d.W.Header().Set(Header, d.Kind)
		events, after := Events(d.W, d.Most), d.R.Header.Get("Last-Event-ID")
		if d.Kind == Partial {
			d.Refuse(&sse.Partial{ResponseWriter: d.W, Send: func() { _ = stream.Send(ctx, after, events) }, Event: "semel.refusal"})
			return nil
		}
		d.Recall(&stored)
		d.W.WriteHeader(stored.Status)
		_ = events(nil)
		return stream.Send(ctx, after, events)
	}
}
