package a2a

import (
	"net/http"
	"strings"

	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/sse"
)

// maxAnswer bounds an agent's answer, or an event, in bytes.
const maxAnswer = 64 << 20

// sink receives an agent's answer: as a whole, or event by event if it is a stream. It is for
// one request.
type sink struct {
	live   http.Header // what the proxy writes to
	header http.Header // the head of the answer, without trailers
	status int
	body   sse.Buffer // the answer, or the part of the next event so far
	over   bool       // something was longer than maxAnswer, and is lost
	stream bool       // the answer is a stream of events

	// head is called with the head of a stream, event with each of its events, and alive when
	// something has come. Each may be nil.
	head  func()
	event func(raw []byte)
	alive func()
}

// Header is the answer's header.
func (s *sink) Header() http.Header { return s.live }

// WriteHeader notes the status, and whether a stream follows. It ignores informational answers.
func (s *sink) WriteHeader(status int) {
	if status < 200 || s.status != 0 {
		return
	}
	s.status, s.header = status, s.live.Clone()
	media, _, _ := strings.Cut(s.header.Get("Content-Type"), ";")
	s.stream = status == http.StatusOK && strings.EqualFold(strings.TrimSpace(media), sse.MediaType)
	if s.stream && s.head != nil {
		s.head()
	}
}

// Write never fails: we want to see all that the agent does.
func (s *sink) Write(p []byte) (int, error) {
	if s.alive != nil {
		s.alive()
	}
	if s.over || s.body.Len()+len(p) > maxAnswer {
		s.over = true
		s.body.Reset()
		return len(p), nil
	}
	s.body.Write(p)
	for s.stream && s.event != nil {
		event := s.body.Event()
		if event == nil {
			break
		}
		s.event(event)
	}
	return len(p), nil
}

// FlushError does nothing: events are passed on when they are complete.
func (s *sink) FlushError() error { return nil }

// copyHead writes the head of an agent's answer, without the headers for Semel.
func copyHead(w http.ResponseWriter, header http.Header, status int) {
	for name, values := range header {
		if name != judge.EffectHeader && !strings.HasPrefix(name, http.TrailerPrefix) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(status)
}
