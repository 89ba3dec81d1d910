package semelproxy

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel/transport/semelhttp"
)

// answer is where the upstream's answer to a guarded request goes. What becomes
// of the client does not matter to it: the answer is read to its end in any case,
// because it says what the upstream did.
type answer struct {
	http.ResponseWriter
	clock  clock
	status int
	stream bool // one of which every part is sent as it comes
	failed bool // there is no answer
}

// clock ends a call that takes too long.
type clock struct {
	*time.Timer
	limit time.Duration
}

// WriteHeader notes what kind of an answer it is. The head of a stream goes at
// once, which also keeps a gRPC answer that is nothing but a head from being
// recorded without what it says.
func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
		media := lowerMedia(a.Header().Get("Content-Type"))
		a.stream = media == eventStream || media == grpcMedia || strings.HasPrefix(media, grpcMedia+"+")
	}
	a.ResponseWriter.WriteHeader(status)
	if a.stream && status >= 200 {
		_ = a.FlushError() // as Write
	}
}

// Write never fails. A client that is gone will ask again, and an answer that
// could not be passed through is the guard's to explain. A stream may go on as
// long as its parts come and somebody takes them.
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

// passing is where the answer to a request goes that is not guarded. It stops the
// clock when there is one, and says why there is no guard.
type passing struct {
	http.ResponseWriter
	timer  *time.Timer // nil: it takes as long as it takes
	reason string
}

// WriteHeader stops the clock, unless it is informational.
func (p *passing) WriteHeader(status int) {
	if status >= 200 {
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
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *passing) mark() {
	if p.reason != "" {
		p.Header().Set(semelhttp.UnguardedHeader, p.reason)
	}
}

// Unwrap lets [http.ResponseController] flush and set deadlines.
func (p *passing) Unwrap() http.ResponseWriter { return p.ResponseWriter }
