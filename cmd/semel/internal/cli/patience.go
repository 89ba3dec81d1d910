package cli

import (
	"context"
	"fmt"
	"io"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long people wait for an answer without a message: by then a store has missed
// several of its own deadlines.
const patience = 3 * time.Second

// patient returns a context for requests to a service. If on, it tells people once when nothing has
// answered for some time: a service that can't reach its store answers late, and the client
// retries, so the command would be silent for half a minute. Call stop after the last request.
func patient(ctx context.Context, w io.Writer, on bool) (_ context.Context, stop func()) {
	if !on {
		return ctx, func() {}
	}
	var mu sync.Mutex
	var answers atomic.Int64
	told := false
	trace := &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) {
			seen := answers.Load()
			time.AfterFunc(patience, func() {
				mu.Lock()
				defer mu.Unlock()
				if answers.Load() == seen && !told {
					told = true
					fmt.Fprintln(w, "semel: still no answer: the service may not reach its store. Trying on; 'semel doctor' says what is wrong")
				}
			})
		},
		GotFirstResponseByte: func() { answers.Add(1) },
	}
	return httptrace.WithClientTrace(ctx, trace), func() { mu.Lock(); told = true; mu.Unlock() }
}
