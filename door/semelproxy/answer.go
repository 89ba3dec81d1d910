package semelproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
)

// answer receives the upstream's answer to a guarded request. It reads the answer to its
// end even if the client goes away, because the answer says what the upstream did.
type answer struct {
	http.ResponseWriter
	clock  clock
	status int
	stream bool // each part is sent as it comes
	failed bool // there is no answer
}

// clock cancels a call that takes too long.
type clock struct {
	*time.Timer
	limit time.Duration
}

// WriteHeader notes the kind of the answer. The head of a stream goes at once, so that a
// gRPC answer with nothing but a head isn't recorded without its outcome.
func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		media := lowerMedia(a.Header().Get("Content-Type"))
		a.stream = media == eventStream || media == grpcMedia || strings.HasPrefix(media, grpcMedia+"+")
	}
	if status < 200 {
		dropWords(a.Header())
	}
	a.ResponseWriter.WriteHeader(status)
	if a.stream && status >= 200 {
		_ = a.FlushError() // as Write
	}
}

// Write never fails: a client that is gone will ask again, and the guard explains an
// answer that couldn't be passed through. A stream may continue as long as its parts
// arrive and the client reads them.
func (a *answer) Write(p []byte) (int, error) {
	_, err := a.ResponseWriter.Write(p)
	if a.stream && err == nil {
		a.clock.Reset(a.clock.limit)
	}
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

// passing receives the answer to an unguarded request. It stops the clock when the answer
// begins, and adds the reason why the request isn't guarded.
type passing struct {
	http.ResponseWriter
	clock  *silence // nil: no time limit
	reason string
}

// silence ends a call during which nothing comes for too long, until its answer begins.
type silence struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil once the answer has begun
}

// heard begins the time anew.
func (s *silence) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Reset(s.limit)
	}
}

func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// arriving is the body of an unguarded request. While it keeps coming, the upstream isn't
// late. At its end it passes the trailers on that were announced.
type arriving struct {
	io.ReadCloser
	clock   *silence
	in      *http.Request
	trailer http.Header // of the upstream's request
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.clock.heard()
	}
	if err == io.EOF {
		for name := range a.trailer {
			a.trailer[name] = a.in.Trailer[name]
		}
	}
	return n, err
}

// WriteHeader stops the clock, unless it is informational.
func (p *passing) WriteHeader(status int) {
	if status < 200 {
		dropWords(p.Header())
	} else {
		delete(p.Header(), judge.EffectHeader)
		p.stop()
		p.mark() // ReverseProxy clears the headers after an informational answer
	}
	p.ResponseWriter.WriteHeader(status)
}

// Hijack stops the clock too.
func (p *passing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	p.stop()
	return http.NewResponseController(p.ResponseWriter).Hijack()
}

func (p *passing) stop() {
	if p.clock != nil {
		p.clock.stop()
	}
}

func (p *passing) mark() {
	if p.reason != "" {
		p.Header().Set(semelhttp.UnguardedHeader, p.reason)
	}
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
