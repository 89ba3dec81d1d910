package tail

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
)

// againAfter is the pause before a broken stream is opened again, after the client's own retries.
const againAfter = 2 * time.Second

// Watch opens the stream of decisions after an event; [client.Client.Watch] does.
type Watch func(ctx context.Context, lastID string) iter.Seq2[client.Event, error]

// Follow reads the stream until ctx is done, from the event after lastID on, or from now on if that
// is empty. It opens a broken stream again, after calling lost with the cause. An error ends it.
// The stream isn't read while the caller handles an event, so a caller who is too slow gets a gap.
func Follow(ctx context.Context, watch Watch, lastID string, lost func(error)) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		first := lastID == "0" // what the node doesn't keep any more wasn't missed
		for {
			for ev, err := range watch(ctx, lastID) {
				if ctx.Err() != nil {
					return
				}
				if e, ok := errors.AsType[*semel.Error](err); ok && (e.Code == semel.CodeStoreUnavailable || e.Code == semel.CodeClosed) {
					lost(err)
					break
				}
				skip := err == nil && first && ev.Type == "gap"
				lastID, first = ev.ID, false
				if skip {
					continue
				}
				var e Event
				if err == nil {
					e, err = Parse(ev)
				}
				if !yield(&e, err) || err != nil {
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
}
