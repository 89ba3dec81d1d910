package limit

import (
	"math"
	"net/http"
	"sync"
	"time"
)

// Pace is how fast callers have to read and to send. The zero value asks nothing.
type Pace struct {
	// Rate is in bytes a second.
	Rate int64
	// Grace is how long a caller may be slower than that.
	Grace time.Duration
}

// none reports whether nothing is asked.
func (p Pace) none() bool { return p.Rate <= 0 || p.Grace <= 0 }

// step is how much has to go within each grace time.
func (p Pace) step() int {
	return int(min(max(float64(p.Rate)*p.Grace.Seconds(), 1), math.MaxInt32))
}

// time is what n bytes may take.
func (p Pace) time(n int64) time.Duration {
	return p.Grace + time.Duration(min(float64(n)/float64(p.Rate)*float64(time.Second), math.MaxInt64/2))
}

// deadline is when writing ends: after the time that a caller has, or when the
// server or a handler says so, whichever is earlier.
type deadline struct {
	set func(time.Time) error // the connection's or the stream's

	mu    sync.Mutex
	end   time.Time // as somebody else has said; zero: never
	until time.Time // zero where nothing is written
}

// limit is SetWriteDeadline for others. What is being written obeys it at once.
func (d *deadline) limit(end time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.end = end
	return d.apply()
}

// extend gives what is written next until then; zero: as long as others say.
func (d *deadline) extend(until time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = until
	return d.apply()
}

func (d *deadline) apply() error {
	at := d.until
	if at.IsZero() || !d.end.IsZero() && d.end.Before(at) {
		at = d.end
	}
	return d.set(at)
}

// Streams gives each write of an answer over HTTP/2 the time that pace allows. A
// caller that keeps the connection open for others but does not take what one
// stream has for it loses that stream. Connections, and so HTTP/1, have the same
// from [Listener].
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
		// What is left in the buffer goes after the handler.
		defer func() { _ = s.deadline.extend(time.Now().Add(p.Grace)) }()
		next.ServeHTTP(s, r)
	})
}

// streamWriter is the writer of one stream. A deadline of HTTP/2 ends the stream
// even when nothing is written, so there is one only while something is.
type streamWriter struct {
	http.ResponseWriter
	pace     Pace
	deadline deadline
}

// Write gives each step of p its time.
func (s *streamWriter) Write(p []byte) (n int, err error) {
	defer s.rest()
	for step := s.pace.step(); ; {
		_ = s.deadline.extend(time.Now().Add(s.pace.Grace)) // fails where the stream has ended, as Write does
		m, err := s.ResponseWriter.Write(p[n:min(n+step, len(p))])
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// FlushError sends what is in the buffer.
func (s *streamWriter) FlushError() error {
	defer s.rest()
	_ = s.deadline.extend(time.Now().Add(s.pace.Grace))
	return http.NewResponseController(s.ResponseWriter).Flush()
}

func (s *streamWriter) rest() { _ = s.deadline.extend(time.Time{}) }

// Flush is FlushError for those that look for [http.Flusher].
func (s *streamWriter) Flush() { _ = s.FlushError() }

// SetWriteDeadline ends what is written earlier than pace would.
func (s *streamWriter) SetWriteDeadline(end time.Time) error { return s.deadline.limit(end) }

// Unwrap lets [http.ResponseController] reach the rest.
func (s *streamWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
