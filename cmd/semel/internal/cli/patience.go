package cli

import (
	"context"
	"fmt"
	"io"
	"net/http/httptrace"
	"sync"
	"time"
)

// patience is how long a service may take for an answer before people are told that it does.
// Some seconds: at that time a store has missed several of its own.
const patience = 3 * time.Second

// patient is ctx for questions to a service. Where on, it tells people once if nothing has
// answered for some time: a service whose store is away answers late, and is asked again, so
// the command would be silent for half a minute. Call stop when no more is asked.
func patient(ctx context.Context, w io.Writer, on bool) (_ context.Context, stop func()) {
	if !on {
		return ctx, func() {}
	}
	var mu sync.Mutex
	answers, told := 0, false
	quiet := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
	}
	trace := &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) {
			quiet(func() {
				seen := answers
				time.AfterFunc(patience, func() {
					quiet(func() {
						if answers == seen && !told {
							told = true
							fmt.Fprintln(w, "semel: still no answer: the service may not reach its store. Asking on; 'semel doctor' says what is wrong")
						}
					})
				})
			})
		},
		GotFirstResponseByte: func() { quiet(func() { answers++ }) },
	}
	return httptrace.WithClientTrace(ctx, trace), func() { quiet(func() { told = true }) }
}
