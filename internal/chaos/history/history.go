// Package history keeps what a run of the chaos rig has seen, call by call, and
// holds it against the rules that no fault excuses.
package history

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says what an event is. Its text is the mark in a printed history.
type Kind string

const (
	// Request is sent by a client.
	Request Kind = "->"
	// Answer is what a client got, also if that is none.
	Answer Kind = "<-"
	// Arrival is a request that has reached the upstream. Its outcome is the answer
	// of an upstream that refuses for good, its word that of one that fails.
	Arrival Kind = "* "
	// Effect is what must happen once.
	Effect Kind = "**"
	// Reason is why a call is held.
	Reason Kind = "= "
	// Fault is what was done to the system, which may end with another event.
	Fault Kind = "!!"
)

// Verbs of requests.
const (
	Begin    = "begin"
	Renew    = "renew"
	Start    = "start"  // the intent of an effect
	Settle   = "settle" // what became of it
	Complete = "complete"
	Reject   = "reject"
	Fail     = "fail"
	Abort    = "abort"
	Hold     = "hold"
	Call     = "call" // through the proxy
)

// Words for answers. Where a service gives a code of its own, that is the word.
const (
	Execute  = "execute"
	Replay   = "replay"
	OK       = "ok"       // a renewal or an end was taken
	Answered = "answered" // by the upstream, for the first time
	Failed   = "failed"   // the upstream said so; the next delivery runs
	None     = "none"     // no answer arrived, or half of one
	InFlight = "in_flight"
	Held     = "held"
	Conflict = "conflict"
	Lost     = "lease_lost"
	Ended    = "already_ended"
	NotFound = "not_found"
	Gone     = "result_not_kept"
	Unsent   = "upstream_unreachable" // it is proved that nothing was sent
	Internal = "internal"
)

// Event is one thing that happened.
type Event struct {
	At   int64  `json:"at"` // nanoseconds of the machine's monotonic clock
	Kind Kind   `json:"kind"`
	Key  string `json:"key,omitempty"` // operation, a slash and the key; empty for faults
	// ID names a request, and is that of its answer, arrival and effect.
	ID      string `json:"id,omitempty"`
	Verb    string `json:"verb,omitempty"`
	Node    int    `json:"node,omitempty"` // from 1
	Payload int    `json:"payload,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Holder  string `json:"holder,omitempty"`
	Wait    int    `json:"wait,omitempty"` // seconds that a duplicate is ready to wait
	Status  int    `json:"status,omitempty"`
	Word    string `json:"word,omitempty"`
	// Outcome is what every duplicate must get from now on: how the call ended, with
	// the bytes of its result.
	Outcome string `json:"outcome,omitempty"`
	// Final marks what is asked when all faults have ended.
	Final bool   `json:"final,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Rules are what an operation promises.
type Rules struct {
	// Repeats: an attempt whose holder is silent may be repeated with its effect.
	Repeats bool
	// Reopens: an attempt that has not begun its effect may be repeated.
	Reopens bool
	// Asked: somebody who knows what became of a held call is asked for it.
	Asked bool
	// Routed: calls go through the proxy, so clients see no fences.
	Routed bool
}

// Log collects events, from any goroutine.
type Log struct {
	rules map[string]Rules
	lease time.Duration

	mu       sync.Mutex
	keys     map[string][]Event
	faults   []Event
	requests int
	effects  map[string][]Event
}

// NewLog is an empty log of calls to operations with these rules, which all have the
// same lease.
func NewLog(rules map[string]Rules, lease time.Duration) *Log {
	return &Log{rules: rules, lease: lease, keys: map[string][]Event{}, effects: map[string][]Event{}}
}

// Add adds an event.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == Fault {
		l.faults = append(l.faults, e)
		return
	}
	l.keys[e.Key] = append(l.keys[e.Key], e)
	switch e.Kind {
	case Request:
		l.requests++
	case Effect:
		l.effects[e.Key] = append(l.effects[e.Key], e)
	}
}

// Effects are the effects of a key so far.
func (l *Log) Effects(key string) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.effects[key])
}

// Requests counts them.
func (l *Log) Requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests
}

// Keys are all keys, sorted.
func (l *Log) Keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]string, 0, len(l.keys))
	for k := range l.keys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Of is the history of one key, in the order of time. Events come over several
// pipes, so they are not added in that order.
func (l *Log) Of(key string) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := slices.Clone(l.keys[key])
	slices.SortStableFunc(events, func(a, b Event) int { return int(max(-1, min(1, a.At-b.At))) })
	return events
}

// RulesOf are those of a key's operation.
func (l *Log) RulesOf(key string) Rules { return l.rules[operation(key)] }

func operation(key string) string {
	op, _, _ := strings.Cut(key, "/")
	return op
}

// ClockFault is the name of the fault that moves the clock of the store.
const ClockFault = "server.clock"

// jumped reports whether the clock of the store was moved before a time.
func (l *Log) jumped(at int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.faults, func(f Event) bool { return f.Verb == ClockFault && f.At <= at })
}

// near is how close to an event of a key a fault is shown with it.
const near = 2 * time.Second

// with adds the faults that were there at the time of the events.
func (l *Log) with(events []Event) []Event {
	if len(events) == 0 {
		return nil
	}
	first, last := events[0].At, events[0].At
	for _, e := range events {
		if !e.Final {
			last = max(last, e.At)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(events)
	for _, f := range l.faults {
		if f.At >= first-int64(near) && f.At <= last+int64(near) {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return int(max(-1, min(1, a.At-b.At))) })
	return all
}
