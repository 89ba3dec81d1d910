package sse

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds an answer, or an event, in bytes.
const maxAnswer = 64 << 20

// Sink receives the answer to a request that a gateway passes on: as a whole, or event by event
// if it is a stream. It is for one request; see [Sink.Rest].
type Sink struct {
	Live   http.Header // what the proxy writes to
	Head   http.Header // the head of the answer, without trailers
	Status int
	Body   Buffer // the answer, or the part of the next event so far
	Over   bool   // something was longer than maxAnswer, and is lost
	Stream bool   // the answer is a stream of events

	// Begun is called with the head of a stream, and Event with each of its events. Each may be
	// nil.
	Begun func()
	Event func(raw []byte)
	alive func() // something has come; may be nil
}

// Within returns a context for the request: it ends when nothing has come for a time.
func (s *Sink) Within(ctx context.Context, silence time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(silence, cancel)
	s.alive = func() { timer.Reset(silence) }
	return ctx, func() { timer.Stop(); cancel() }
}

// Rest is a sink for the rest of the stream, which another request reads: of its events and its time
// it has that of s.
func (s *Sink) Rest() *Sink { return &Sink{Event: s.Event, alive: s.alive} }

// Header is the answer's header.
func (s *Sink) Header() http.Header {
	if s.Live == nil {
		s.Live = http.Header{}
	}
	return s.Live
}

// WriteHeader notes the status, and whether a stream follows. It ignores informational answers.
func (s *Sink) WriteHeader(status int) {
	if status < 200 || s.Status != 0 {
		return
	}
	s.Status, s.Head = status, s.Header().Clone()
	media, _, _ := strings.Cut(s.Head.Get("Content-Type"), ";")
	s.Stream = status == http.StatusOK && strings.EqualFold(strings.TrimSpace(media), MediaType)
	if s.Stream {
		s.Head.Del("Content-Length") // some events may stay behind, or be added
	}
	if s.Stream && s.Begun != nil {
		s.Begun()
	}
}

// Write never fails: the gateway reads the answer to its end.
func (s *Sink) Write(p []byte) (int, error) {
	if s.alive != nil {
		s.alive()
	}
	if s.Over || s.Body.Len()+len(p) > maxAnswer {
		s.Over = true
		s.Body.Reset()
		return len(p), nil
	}
	s.Body.Write(p)
	for s.Stream && s.Event != nil {
		event := s.Body.Event()
		if event == nil {
			break
		}
		s.Event(event)
	}
	return len(p), nil
}

// FlushError does nothing: events are passed on when they are complete.
func (s *Sink) FlushError() error { return nil }

// CopyHead passes on the head of the answer, without the trailers and one header.
func (s *Sink) CopyHead(w http.ResponseWriter, without string) {
	for name, values := range s.Head {
		if name != without && !strings.HasPrefix(name, http.TrailerPrefix) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(s.Status)
}
