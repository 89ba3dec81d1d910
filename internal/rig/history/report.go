package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary counts what is in a log.
type Summary struct {
	Keys, Requests, Effects int
	// Words counts the answers.
	Words map[string]int
	// Held counts the calls that ended held, HeldWithout the ones without an effect among them,
	// and Reasons why they are held.
	Held, HeldWithout int
	Reasons           map[string]int
	// Early counts the calls that a client found held before a lease had passed since the last
	// claim. That executes nothing twice, but a lease was shorter than it should be.
	Early int
	// Sequences counts them, and Earlier the ones with a number that an earlier program may
	// have decided about.
	Sequences, Earlier int
}

// Summary counts the calls, effects and faults of the log.
func (l *Log) Summary() Summary {
	s := Summary{Words: map[string]int{}, Reasons: map[string]int{}}
	for _, key := range l.Keys() {
		s.Keys++
		events := l.Of(key)
		s.count(events)
		if rules := l.RulesOf(key); !rules.Routed && !rules.Numbered && l.early(events) {
			s.Early++
		}
	}
	for _, keys := range l.Sequences() {
		if l.RulesOf(keys[0]).Numbered {
			s.Sequences++
		}
	}
	s.Earlier = len(l.lastEarlier())
	return s
}

// early reports whether a call was held for the silence of its holder too early. Calls
// through the proxy are held as soon as their outcome is unknown.
func (l *Log) early(events []Event) bool {
	if slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Request && e.Verb == Hold }) {
		return false
	}
	return slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Answer && e.Word == Held && time.Duration(e.At-events[0].At) < l.lease*9/10
	})
}

// count adds the history of one key.
func (s *Summary) count(events []Event) {
	effects, reason := 0, ""
	for _, e := range events {
		switch e.Kind {
		case Request:
			s.Requests++
		case Answer:
			s.Words[e.Word]++
		case Effect:
			effects++
		case Reason:
			reason = e.Text
		}
	}
	s.Effects += effects
	if reason == "" {
		return
	}
	s.Held++
	s.Reasons[reason]++
	if effects == 0 {
		s.HeldWithout++
	}
}

// Print shows the history of a key with the faults of that time: seconds since the start at the
// left, -> is a request, <- its answer, * an arrival at the upstream, ** an effect, = why it is
// held, !! a fault. With a number comes its whole sequence.
func (l *Log) Print(key string, start int64) string {
	var b strings.Builder
	var events []Event
	for _, k := range l.sequenceOf(key) {
		events = append(events, l.Of(k)...)
	}
	for _, e := range l.with(events) {
		number := ""
		if sequence, n := CutNumber(e.Key); n > 0 && sequence != "" {
			number = fmt.Sprintf("#%d ", n)
		}
		fmt.Fprintf(&b, "%10.4f %s %s%s\n", time.Duration(e.At-start).Seconds(), e.Kind, number, strings.TrimRight(e.describe(), " "))
	}
	return b.String()
}

func (e *Event) describe() string {
	switch e.Kind {
	case Request:
		text := fmt.Sprintf("%-10s %-9s node %d payload %d fence %d holder %s", e.ID, e.Verb, e.Node, e.Payload, e.Fence, e.Holder)
		if e.Wait > 0 {
			text += fmt.Sprintf(" wait=%d", e.Wait)
		}
		if e.Caller != "" {
			text += " by a stranger, " + e.Caller
		}
		return text + e.mark() + e.said()
	case Answer:
		word := e.Word
		if e.Next > 0 {
			word += fmt.Sprintf(" (%d)", e.Next)
		}
		return fmt.Sprintf("%-10s %-9s %s %d fence %d %s", e.ID, e.Verb, word, e.Status, e.Fence, e.Text) + e.mark() + e.said()
	case Arrival:
		return fmt.Sprintf("arrival of %s payload %d", e.ID, e.Payload)
	case Reason:
		return fmt.Sprintf("held at node %d because %s", e.Node, e.Text)
	case Effect:
		return fmt.Sprintf("EFFECT by %s payload %d fence %d", e.ID, e.Payload, e.Fence) + e.said()
	}
	return e.Text
}

func (e *Event) mark() string {
	if e.Final {
		return " (after the faults)"
	}
	return ""
}

func (e *Event) said() string {
	if e.Outcome == "" {
		return ""
	}
	return " " + e.Outcome
}
