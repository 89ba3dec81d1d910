package limit

import (
	"maps"
	"net/http"
	"time"
)

// answer replaces the answer if a limit has ended the reading of the body.
type answer struct {
	http.ResponseWriter
	opts    *Options
	r       *http.Request
	body    *countedBody
	before  http.Header // before next changed it
	begun   bool        // by next itself
	refused bool
}

// start decides who answers. It reports whether next does.
func (a *answer) start() (own bool) {
	if a.begun || a.refused {
		return a.begun
	}
	if err := a.body.failed(); err != nil {
		a.refused = true
		header := a.ResponseWriter.Header()
		clear(header)
		maps.Copy(header, a.before)
		a.opts.refuse(a.ResponseWriter, a.r, err, true)
		return false
	}
	a.begun = true
	return true
}

func (a *answer) WriteHeader(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if !a.refused && informational || a.start() {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.start() {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// FlushError begins the answer, like Flush of the server's own writer.
func (a *answer) FlushError() error {
	if !a.start() {
		return nil
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush is FlushError for code that looks for [http.Flusher].
func (a *answer) Flush() { _ = a.FlushError() }

// SetReadDeadline ends the body earlier than its pace would.
func (a *answer) SetReadDeadline(end time.Time) error { return a.body.deadline.limit(end) }

// Unwrap lets [http.ResponseController] reach the rest: write deadlines, hijacking.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
