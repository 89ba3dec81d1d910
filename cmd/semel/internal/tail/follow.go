package tail

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

const (
	// maxBatch bounds a batch, and maxWaiting the events that nobody has taken yet. While
	// there are so many the stream is not read, and a service that is ahead by more than it
	// keeps says so by a gap.
	maxBatch, maxWaiting = 256, 1024
	// gatherTime is how long events are gathered after the first one of a batch, so that a
	// screen is drawn a few times a second and not for each event.
	gatherTime = 100 * time.Millisecond
	// againAfter is the pause before a stream that broke off is opened again, after what the
	// client has tried by itself.
	againAfter = 2 * time.Second
)

// Watch opens the stream of decisions after an event; [client.Client.Watch] does.
type Watch func(ctx context.Context, lastID string) iter.Seq2[client.Event, error]

// Follow reads the stream until ctx is done, from the event after lastID on, or from now on
// if that is empty. A stream that breaks off is opened again. next waits for what has come,
// for one caller; it reports false when nothing comes any more.
func Follow(ctx context.Context, watch Watch, lastID string) (next func() (Batch, bool)) {
	ch := make(chan Batch, maxWaiting)
	go func() {
		defer close(ch)
		follow(ctx, watch, lastID, func(b Batch) bool {
			select {
			case ch <- b:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return func() (Batch, bool) {
		b, more := <-ch
		if !more || b.Err != nil || b.Lost != "" {
			return b, more
		}
		timer := time.NewTimer(gatherTime)
		defer timer.Stop()
		for len(b.Events) < maxBatch {
			select {
			case one, more := <-ch:
				if b.Events = append(b.Events, one.Events...); !more || one.Err != nil || one.Lost != "" {
					b.Err, b.Lost = one.Err, one.Lost
					return b, true
				}
			case <-timer.C:
				return b, true
			}
		}
		return b, true
	}
}

// follow gives each event to send, until that reports false, ctx is done, or the service
// refuses.
func follow(ctx context.Context, watch Watch, lastID string, send func(Batch) bool) {
	first := lastID == "0" // what the node doesn't keep any more wasn't missed
	for {
		for ev, err := range watch(ctx, lastID) {
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				if e, ok := errors.AsType[*semel.Error](err); !ok || e.Code != semel.CodeStoreUnavailable && e.Code != semel.CodeClosed {
					send(Batch{Err: err})
					return
				}
				if !send(Batch{Lost: err.Error()}) {
					return
				}
				break
			}
			lastID = ev.ID
			skip := first && ev.Type == "gap"
			if first = false; skip {
				continue
			}
			e, err := Parse(ev)
			if err != nil {
				send(Batch{Err: err})
				return
			}
			if !send(Batch{Events: []Event{e}}) {
				return
			}
		}
		timer := time.NewTimer(againAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
