package limit

import (
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// Pace is how fast callers must read and send. The zero value demands nothing.
type Pace struct {
	// Rate is in bytes per second.
	Rate int64
	// Grace is how long a caller may be slower than that.
	Grace time.Duration
}

// none reports whether any pace is fine.
func (p Pace) none() bool { return p.Rate <= 0 || p.Grace <= 0 }

// step is how many bytes must go within each grace time.
func (p Pace) step() int {
	return int(min(max(float64(p.Rate)*p.Grace.Seconds(), 1), math.MaxInt32))
}

// time is how long n bytes may take, in addition to Grace.
func (p Pace) time(n int) time.Duration {
	if p.none() {
		return 0
	}
	return time.Duration(min(float64(n)/float64(p.Rate)*float64(time.Second), math.MaxInt64/2))
}

// deadline is when reading or writing ends: when the caller's time is up, or when the server or a
// handler says so, whichever is earlier.
type deadline struct {
	set func(time.Time) error // the connection's or the stream's

	mu    sync.Mutex
	end   time.Time // set by the server or a handler; zero: never
	until time.Time // zero while nothing is read or written
}

// limit is SetReadDeadline or SetWriteDeadline for others. It also applies to a read or write
// under way.
func (d *deadline) limit(end time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end = end
	return d.apply()
}

// extend gives the next read or write until then.
func (d *deadline) extend(until time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = until
	return d.apply()
}

// over is for after that read or write. The time it had stays set unless clear says so.
func (d *deadline) over(clear bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Time{}
	if clear {
		_ = d.apply() // fails if the connection or stream has ended
	}
}

func (d *deadline) apply() error {
	at := d.until
	if at.IsZero() || !d.end.IsZero() && d.end.Before(at) {
		at = d.end
	}
	return d.set(at)
}

// Streams gives each write of an answer over HTTP/2 the time that pace allows. A caller
// who keeps the connection open, but doesn't take what one stream has for them, loses
// that stream. For whole connections, and so for HTTP/1, [Listener] does the same.
func (p Pace) Streams(next http.Handler) http.Handler {
	if p.none() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			next.ServeHTTP(w, r)
			return
		}
		s := &streamWriter{ResponseWriter: w, pace: p}
		s.deadline.set = http.NewResponseController(w).SetWriteDeadline
		// The rest of the buffer leaves after the handler.
		defer func() { _ = s.deadline.extend(time.Now().Add(p.Grace)) }()
		next.ServeHTTP(s, r)
	})
}

// streamWriter is the writer of one stream. In HTTP/2 a deadline ends the stream even if
// nothing is being written, so it is set only during writes.
type streamWriter struct {
	http.ResponseWriter
	pace     Pace
	deadline deadline
}

// Write gives each step of p the time for it.
func (s *streamWriter) Write(p []byte) (n int, err error) {
	defer s.deadline.over(true)
	for step := s.pace.step(); ; {
		_ = s.deadline.extend(time.Now().Add(s.pace.Grace)) // fails if the stream has ended, as Write does
		m, err := s.ResponseWriter.Write(p[n:min(n+step, len(p))])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError sends the buffer.
func (s *streamWriter) FlushError() error {
	defer s.deadline.over(true)
	_ = s.deadline.extend(time.Now().Add(s.pace.Grace))
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Flush is FlushError for code that looks for [http.Flusher].
func (s *streamWriter) Flush() { _ = s.FlushError() }

// SetWriteDeadline ends writing earlier than pace would.
func (s *streamWriter) SetWriteDeadline(end time.Time) error { return s.deadline.limit(end) }

// Unwrap lets [http.ResponseController] reach the rest.
func (s *streamWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Listener accepts at most limit connections of l at one time. At the limit Accept waits
// until one is closed; the system keeps the next callers waiting, and refuses those
// beyond its own queue. Put it below TLS.
//
// A caller who reads more slowly than pace allows loses the connection: a write then
// fails with [os.ErrDeadlineExceeded].
func Listener(l net.Listener, limit int, pace Pace) net.Listener {
	return &listener{Listener: l, pace: pace, slots: make(chan struct{}, limit), closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	pace   Pace
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	limited := &conn{Conn: c, pace: l.pace, free: sync.OnceFunc(func() { <-l.slots })}
	limited.deadline.set = c.SetWriteDeadline
	return limited, nil
}

// Close stops listening and wakes whoever waits in Accept. Connections stay open.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	pace     Pace
	deadline deadline
	free     func()
}

// Write goes on as long as one step is written within each grace time. One goroutine at a
// time calls it.
func (c *conn) Write(p []byte) (n int, err error) {
	if c.pace.none() {
		return c.Conn.Write(p)
	}
	for {
		if err := c.deadline.extend(time.Now().Add(c.pace.Grace)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:])
		n += m
		if m < c.pace.step() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// SetWriteDeadline ends writing earlier than pace would.
func (c *conn) SetWriteDeadline(end time.Time) error { return c.deadline.limit(end) }

// SetDeadline sets this deadline and the one for reading.
func (c *conn) SetDeadline(end time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(end), c.deadline.limit(end))
}

func (c *conn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// SyscallConn shows the socket, of which the system knows what the caller has acknowledged.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets a server end its side first, so that an early refusal reaches a caller
// who is still sending. net/http looks for it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
