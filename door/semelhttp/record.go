package semelhttp

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/sse"
)

// StreamHeader says what of a recorded event stream a duplicate gets: the whole of it
// ([StreamFinished]); what has come, and then what comes ([StreamLive]), cut off if it doesn't
// end as it should; or of a held call, if it accepts event streams, the recorded part with the
// refusal as its last event, semel.refusal ([StreamPartial]). It begins after Last-Event-ID.
const (
	StreamHeader   = relay.Header
	StreamFinished = relay.Finished
	StreamLive     = relay.Live
	StreamPartial  = relay.Partial
)

// records reports whether duplicates are to get an answer that passes through.
func (c *capture) records() bool {
	return !c.h.route.KeepNothing && c.h.route.MaxStream >= 0 && c.h.keeps(c.found.Verdict) &&
		sse.Is(c.frozen.Get("Content-Type")) && len(c.frozen.Beyond(c.outer, "Content-Encoding")) == 0
}

// record begins to record it then. It reports whether the recording has the body.
func (c *capture) record(body []byte) bool {
	if c.records() {
		c.recording = relay.Record(c.h.guard.engine.Internal(), c.scope.Attempt, c.out[:c.bodyAt], c.h.route.MaxStream, c.w, c.startDeadline)
	}
	return relay.Add(c.recording, body)
}

// follow answers a duplicate by a recorded stream. It reports false if there is none.
func (q *request) follow(ans *semel.Answer) bool {
	tap, h, w, r, unproved := q.guard.engine.Internal(), q.handler, q.w, q.in, q.call.Unproved
	kind := relay.Kind(relay.Accepts(r), ans, relay.MarkOf)
	if kind == "" {
		return false
	}
	d := relay.Duplicate{W: w, R: r, Kind: kind, Most: h.route.Timeout / 4}
	d.Recall = func(stored *answer.Recorded) { h.recall(w.Header(), r, stored) }
	d.Refuse = func(w http.ResponseWriter) { h.refuse(w, h.decided(ans, unproved)) }
	status, send := d.Join(tap, &q.call, ans)
	if send == nil {
		return false
	}
	if q.said = (said{status: status}); kind == StreamPartial {
		q.said = said{semel.CodeHeld, http.StatusConflict}
	}
	if send() != nil {
		panic(http.ErrAbortHandler) // so that the caller notices that it isn't whole
	}
	return true
}
