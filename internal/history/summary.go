package history

import (
	"slices"
	"time"
)

// Summary counts what is in a log.
type Summary struct {
	Keys, Requests, Effects int
	// Words counts the answers.
	Words map[string]int
	// Held counts the calls that ended held, HeldWithout those of them without an
	// effect, and Reasons why they are.
	Held, HeldWithout int
	Reasons           map[string]int
	// Early counts the calls that a client was told were held before a lease had passed
	// since the last claim. Nothing is executed
	// twice by that, but a lease was shorter than it should be.
	Early int
}

// Summary counts what is in the log.
func (l *Log) Summary() Summary {
	s := Summary{Words: map[string]int{}, Reasons: map[string]int{}}
	for _, key := range l.Keys() {
		s.Keys++
		events := l.Of(key)
		s.count(events)
		if !l.RulesOf(key).Routed && l.early(events) {
			s.Early++
		}
	}
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
