package carrier

import (
	"errors"
	"io"
	"net/http"
)

// maxRestart is how much of a body to remember until its request has begun, in bytes: more
// than net/http reads before it writes for the first time, which is its buffer of 4 KiB
// unless Base has another.
const maxRestart = 8 << 10

// errNoRestart is why a request can't begin again.
var errNoRestart = errors.New("safehttp: more of the body was read than can be sent again")

// bodies are the bodies of one request that begins on one connection after another. If the
// request can't make more than one, that one remembers the bytes read from it as long as
// nothing was sent.
type bodies struct {
	Request *http.Request
	used    bool // the first is

	kept []byte // what was read of the one body
	at   int    // how much of that was read again
	lost bool   // more was read
}

// next returns the whole body. Nobody may be reading the one before.
func (b *bodies) next(sent *sending) (io.ReadCloser, error) {
	again := b.used
	b.used, b.at = true, 0
	switch {
	case b.Request.Body == nil || b.Request.Body == http.NoBody:
		return b.Request.Body, nil
	case b.Request.GetBody == nil && b.lost:
		return nil, errNoRestart
	case b.Request.GetBody == nil:
		return &reading{b, sent}, nil
	case again:
		return b.Request.GetBody()
	}
	return b.Request.Body, nil
}

// close closes a body that net/http has perhaps not closed.
func (b *bodies) close() {
	if b.Request.Body != nil && b.Request.GetBody == nil {
		_ = b.Request.Body.Close()
	}
}

// reading is one try to send the one body.
type reading struct {
	of   *bodies
	sent *sending
}

func (r *reading) Read(p []byte) (int, error) {
	b := r.of
	if b.at < len(b.kept) {
		n := copy(p, b.kept[b.at:])
		b.at += n
		return n, nil
	}
	n, err := b.Request.Body.Read(p)
	switch {
	case b.lost:
	case !r.sent.nothing(), len(b.kept)+n > maxRestart:
		b.kept, b.at, b.lost = nil, 0, true
	default:
		b.kept = append(b.kept, p[:n]...)
		b.at = len(b.kept)
	}
	return n, err
}

// Close leaves the body open for the next try.
func (r *reading) Close() error {
	if r.sent.nothing() {
		return nil
	}
	return r.of.Request.Body.Close()
}
