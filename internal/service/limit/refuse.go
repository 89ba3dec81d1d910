package limit

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/problem"
)

// refuse answers for a limit; without a reason, that of requests is reached. An unguarded request
// that has begun may have been sent on in part while its body came, so the text only speaks of
// guarded calls, and the answer doesn't say that nothing was done.
func (o *Options) refuse(w http.ResponseWriter, r *http.Request, why error, begun bool) {
	code, status, again := door.CodeOverloaded, 0, true
	detail := "The server handles as many requests as it may. Nothing was executed. Send the same request again later."
	e, exhausted := errors.AsType[*ExhaustedError](why)
	switch {
	case exhausted && e.Never:
		code, again = door.CodeOverBudget, false
		detail = "The request's body is larger than the " + strconv.FormatInt(e.Limit, 10) + " bytes that may be in flight at all. No guarded call was begun."
	case exhausted && e.Whose == "server":
		detail = "The server holds as many bytes of requests as it may. No guarded call was begun. Send the same request again later."
	case exhausted:
		status = http.StatusTooManyRequests
		detail = "Other requests of this " + e.Whose + " hold as many bytes as they may. No guarded call was begun. Send the same request again later."
	case errors.Is(why, errTooSlow):
		code = door.CodeBodyTooSlow
		detail = "The request's body came too slowly. No guarded call was begun. Send the same request again."
	}
	doc := semelhttp.NewProblem(o.TypeBase, code, detail)
	doc.Status = cmp.Or(status, doc.Status)
	if again {
		doc.RetryAfter = problem.RetryAfter(w.Header(), time.Second)
	}
	if r.ProtoMajor == 1 {
		// The rest of the body isn't worth reading. In HTTP/2 it can be cancelled, and
		// this would end the other requests' connection.
		w.Header().Set("Connection", "close")
	}
	if !begun {
		door.SetEffect(w.Header(), door.EffectNone)
	}
	problem.Write(w, doc.Status, doc)
	if o.Refused != nil {
		o.Refused(r, doc.Code)
	}
}

// Requests handles at most limit requests at one time. It refuses any more with 503 and a
// Retry-After. A bound on connections isn't enough, because HTTP/2 has many requests on
// one connection.
func Requests(next http.Handler, limit int, opts Options) http.Handler {
	slots := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			opts.refuse(w, r, nil, false)
		}
	})
}

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
