package dispatch

import (
	"context"
	"iter"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Searcher lists records: an engine, or the client of a service.
type Searcher interface {
	// Search is [semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
}

// Query selects messages for people. Zero fields select all.
type Query struct {
	// Records selects the calls that sent them. Its State, Cursor and Limit aren't
	// used.
	Records store.Query
	// Destination and ID equal the message's.
	Destination, ID string
	// States are the states to select; none selects pending and parked messages.
	States []store.MessageState
}

// Found is one message and the call that sent it.
type Found struct {
	Call    semel.ID
	Message semel.Message
}

// Find lists messages, newest calls first. It reads all records of completed calls that
// q.Records selects, because stores have no index of messages. It ends after an error.
func Find(ctx context.Context, s Searcher, q Query) iter.Seq2[Found, error] {
	states := q.States
	if len(states) == 0 {
		states = []store.MessageState{store.MessagePending, store.MessageParked}
	}
	at := q.Records
	at.State, at.Cursor, at.Limit = semel.Completed, "", store.MaxSearchLimit
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

// Settler is what settles messages: the [semel.Internal] of an engine, or a client of a service.
type Settler interface {
	// SettleMessage is [semel.Internal.SettleMessage].
	SettleMessage(ctx context.Context, id semel.ID, messageID string, f store.MessageFinding) (semel.Record, error)
}

// Replay lets a parked message be delivered again, as if it hadn't been tried. A message
// with an order key goes to the end of its queue. A message older than Destination.MaxAge is
// tried once. The message holds the reason until it is settled.
func Replay(ctx context.Context, s Settler, call semel.ID, id, reason string) (semel.Record, error) {
	return s.SettleMessage(ctx, call, id, store.MessageFinding{
		State: store.MessagePending, Replay: true, Failure: &store.Failure{Code: "replayed", Message: reason},
	})
}

// Discard gives up a parked message for good. The message holds the reason.
func Discard(ctx context.Context, s Settler, call semel.ID, id, reason string) (semel.Record, error) {
	return s.SettleMessage(ctx, call, id, store.MessageFinding{
		State: store.MessageDiscarded, Failure: &store.Failure{Code: "discarded", Message: reason},
	})
}
