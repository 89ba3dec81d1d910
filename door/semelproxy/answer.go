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
	timer  *time.Timer // cancels a call that takes longer than limit
	limit  time.Duration
	status int
	stream bool // sends each part as it comes
	failed bool // there is no answer
}

// WriteHeader notes the kind of the answer. The head of a stream is sent at once, so that a
// gRPC answer with only a head isn't recorded without its outcome.
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

// Write never fails: a client that is gone will ask again, and the guard explains an answer
// that couldn't be passed through. A stream may continue as long as its parts arrive and the
// client reads them.
func (a *answer) Write(p []byte) (int, error) {
	_, err := a.ResponseWriter.Write(p)
	if a.stream && err == nil {
		a.timer.Reset(a.limit)
	}
	return len(p), nil
}

// FlushError is for streams. ReverseProxy flushes every answer of unknown length, and a flushed
// answer can't be kept.
func (a *answer) FlushError() error {
	if !a.stream {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// passing receives the answer to an unguarded request, and adds the reason why the request
// isn't guarded. Until the answer begins, it ends a call that is silent for too long.
type passing struct {
	http.ResponseWriter
	reason string // empty if nobody needs to know
	limit  time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil without a limit, and once the answer has begun
}

// arriving is the body of an unguarded request. While it keeps coming, the upstream isn't late.
// At its end it passes on the announced trailers.
type arriving struct {
	io.ReadCloser
	out     *passing
	in      *http.Request
	trailer http.Header // the upstream request's
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.out.mu.Lock()
		if a.out.timer != nil {
			a.out.timer.Reset(a.out.limit)
		}
		a.out.mu.Unlock()
	}
	if err == io.EOF {
		for name := range a.trailer {
			a.trailer[name] = a.in.Trailer[name]
		}
	}
	return n, err
}

// WriteHeader stops the timer, unless the answer is informational.
func (p *passing) WriteHeader(status int) {
	if status < 200 {
		dropWords(p.Header())
	} else {
		delete(p.Header(), judge.EffectHeader)
		p.stop()
		if p.reason != "" { // ReverseProxy clears the headers after an informational answer
			p.Header().Set(semelhttp.UnguardedHeader, p.reason)
		}
	}
	p.ResponseWriter.WriteHeader(status)
}

// stop gives the answer as much time as it takes.
func (p *passing) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// Hijack also stops the timer.
func (p *passing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	p.stop()
	return http.NewResponseController(p.ResponseWriter).Hijack()
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
