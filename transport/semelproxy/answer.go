package semelproxy

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// answer is where the upstream's answer to a guarded request goes. What becomes
// of the client does not matter to it: the answer is read to its end in any case,
// because it says what the upstream did.
type answer struct {
	http.ResponseWriter
	status int
	stream bool // an event stream, of which every part is sent as it comes
	failed bool // there is no answer
}

// WriteHeader notes what kind of an answer it is.
func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		a.stream = lowerMedia(a.Header().Get("Content-Type")) == eventStream
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write never fails. A client that is gone will ask again, and an answer that
// could not be passed through is the guard's to explain.
func (a *answer) Write(p []byte) (int, error) {
	_, _ = a.ResponseWriter.Write(p)
	return len(p), nil
}

// FlushError is for streams. ReverseProxy flushes every answer of unknown length,
// and an answer that is flushed can't be kept.
func (a *answer) FlushError() error {
	if !a.stream {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// passing is where the answer to a request goes that is not guarded. It stops the
// clock when there is one.
type passing struct {
	http.ResponseWriter
	timer *time.Timer
}

// WriteHeader stops the clock, unless it is informational.
func (p *passing) WriteHeader(status int) {
	if status >= 200 {
		p.timer.Stop()
	}
	p.ResponseWriter.WriteHeader(status)
}

// Hijack stops the clock too.
func (p *passing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	p.timer.Stop()
	return http.NewResponseController(p.ResponseWriter).Hijack()
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
