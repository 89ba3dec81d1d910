package dispatch

import (
	"context"
	"iter"
	"slices"

	"github.com/semelhq/semel"
)

// Searcher is what lists records: an engine, or the client of a service.
type Searcher interface {
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q semel.Query) (semel.Page, error)
}

// Query selects messages for people who look for them. Zero members select all.
type Query struct {
	// Records selects the calls that sent them. Its State, Cursor and Limit are not
	// used.
	Records semel.Query
	// Destination and ID are matched whole.
	Destination, ID string
	// States are those in which a message is; none selects those that are pending
	// or parked.
	States []semel.MessageState
}

// Found is one message and the call that sent it.
type Found struct {
	Call    semel.ID
	Message semel.Message
}

// Find lists messages, those of the newest calls first. It looks at all records of
// completed calls that q.Records selects; the store has no index of messages. After
// an error it ends.
func Find(ctx context.Context, s Searcher, q Query) iter.Seq2[Found, error] {
	states := q.States
	if len(states) == 0 {
		states = []semel.MessageState{semel.MessagePending, semel.MessageParked}
	}
	at := q.Records
	at.State, at.Cursor, at.Limit = semel.Completed, "", semel.MaxSearchLimit
	return func(yield func(Found, error) bool) {
		for {
			page, err := s.Search(ctx, at)
			if err != nil {
				yield(Found{}, err)
				return
			}
			for i := range page.Records {
				rec := &page.Records[i]
				if rec.ID.Operation == slotOperation {
					continue
				}
				for _, m := range rec.Outbox {
					if slices.Contains(states, m.State) && (q.Destination == "" || q.Destination == m.Destination) && (q.ID == "" || q.ID == m.ID) {
						if !yield(Found{rec.ID, m}, nil) {
							return
						}
					}
				}
			}
			if at.Cursor = page.Next; at.Cursor == "" {
				return
			}
		}
	}
}

// Settler is what settles messages: a [semel.Engine].
type Settler interface {
	// SettleMessage is [semel.Engine.SettleMessage].
	SettleMessage(ctx context.Context, id semel.ID, messageID string, f semel.MessageFinding) (semel.Record, error)
}

// Replay has a parked message delivered again, as if it had not been tried. One with
// an order goes to the end of its line. One that is older than Destination.MaxAge is
// tried once. The reason is kept with it until then.
func Replay(ctx context.Context, s Settler, call semel.ID, id, reason string) (semel.Record, error) {
	return s.SettleMessage(ctx, call, id, semel.MessageFinding{
		State: semel.MessagePending, Replay: true, Failure: &semel.Failure{Code: "replayed", Message: reason},
	})
}

// Discard gives a parked message up for good. The reason is kept with it.
func Discard(ctx context.Context, s Settler, call semel.ID, id, reason string) (semel.Record, error) {
	return s.SettleMessage(ctx, call, id, semel.MessageFinding{
		State: semel.MessageDiscarded, Failure: &semel.Failure{Code: "discarded", Message: reason},
	})
}
