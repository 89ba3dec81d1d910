// Package tail shows what a service decides as it happens: events in a form for people, and the
// filter that selects some of them.
package tail

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/wire"
	"github.com/semelhq/semel/store"
)

// Event is one event of the stream of decisions.
type Event struct {
	// Seq is the event's number in the stream, and Kind decided, ended, purged, lease_lost or
	// gap.
	Seq, Kind string
	// Record is the id of the event's record, and ID its identity; both are empty for a gap and for
	// a purge of many.
	Record string
	ID     semel.ID

	Decision    semel.Decision
	State       store.State // of the record, as the delivery found it
	Disposition store.Disposition
	Held        bool
	Attempt     int
	Count       int // of purged records
	Waited      time.Duration
	Took        time.Duration
	By          string
	Reason      string // also of holding, or what a delivery was throttled by
	At          time.Time
	// Data is the whole event, in JSON.
	Data json.RawMessage
}

// Parse reads an event of the stream.
func Parse(ev client.Event) (Event, error) {
	var decided wire.DecidedEvent
	var ended wire.EndedEvent
	var purged wire.PurgedEvent
	for _, to := range []any{&decided, &ended, &purged} { // a lost lease is told by the members of these
		if err := json.Unmarshal(ev.Data, to); err != nil {
			return Event{}, fmt.Errorf("an event of the stream is not JSON: %w", err)
		}
	}
	e := Event{
		Seq: ev.ID, Kind: ev.Type, Record: decided.Record, Decision: semel.Decision(decided.Decision), Held: ended.Held, Attempt: decided.Attempt, Count: purged.Count,
		Waited: time.Duration(decided.Waited) * time.Millisecond, Took: time.Duration(ended.Took) * time.Millisecond, By: ended.By,
		Reason: cmp.Or(ended.HeldReason, ended.Reason, decided.Limit), At: decided.At, Data: ev.Data,
	}
	if e.At.IsZero() { // events are numbered by the microsecond in which the node started
		e.At = time.Now()
	}
	if e.Record != "" {
		id, err := store.DecodeID(e.Record)
		if err != nil {
			return Event{}, fmt.Errorf("an event of the stream names no record: %w", err)
		}
		e.ID = id
	}
	// Words of a later version select nothing.
	_ = e.State.UnmarshalText([]byte(decided.Status))
	_ = e.Disposition.UnmarshalText([]byte(ended.Disposition))
	if e.Kind == "ended" && e.State == 0 { // what the attempt has left
		e.State = store.Failed
		if e.Held {
			e.State = store.Processing
		} else if e.Disposition == store.DispositionCompleted {
			e.State = store.Completed
		}
	}
	return e, nil
}

// What says in a word or two what happened: the decision, or how an attempt ended.
func (e *Event) What() string {
	switch e.Kind {
	case "decided":
		return string(e.Decision)
	case "ended":
		if e.Held {
			return "held"
		}
		return e.Disposition.String()
	case "lease_lost":
		return "lease lost"
	}
	return e.Kind
}

// detail has the rest, for people.
func (e *Event) detail() string {
	var parts []string
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(e.Attempt > 1, "attempt "+strconv.Itoa(e.Attempt))
	add(e.Waited > 0, "waited "+e.Waited.String())
	add(e.Kind == "ended", "after "+e.Took.String())
	add(e.By != "" && e.By != "holder", "by "+e.By)
	add(e.Count > 1, strconv.Itoa(e.Count)+" records")
	add(e.Reason != "", e.Reason)
	return plain(strings.Join(parts, " · "))
}

// Line is the event on one line.
func (e *Event) Line() string {
	at := e.At.Local().Format("15:04:05.000")
	if e.Kind == "gap" {
		return at + "  gap: events are missing: this reader was too slow or away for too long, or the node was restarted"
	}
	line := fmt.Sprintf("%s  %-11s  %-20s  %-24s  %s", at, e.What(), plain(e.ID.Operation), plain(e.ID.Key), e.detail())
	return strings.TrimRight(line, " ")
}

// plain replaces what a terminal would obey in text that others chose.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
