// Package history logs what clients, holders and upstreams have observed, call by call,
// and checks it by the rules that hold under every fault: one effect of each call, one
// final answer, rising fencing tokens, and an order of all steps that explains every answer
// (linearizability, by porcupine).
//
// The chaos rig checks the nodes of a service by it, and the suite of stores checks engines
// that share a store.
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
	// Answer is what a client got, even if it got none.
	Answer Kind = "<-"
	// Arrival is a request that has reached the upstream. If the upstream refuses for good, its
	// answer is the outcome; if it fails, the word says so.
	Arrival Kind = "* "
	// Effect is the work of a call, which must happen once.
	Effect Kind = "**"
	// Reason is why a call is held.
	Reason Kind = "= "
	// Fault is an injected fault. Another event may mark its end.
	Fault Kind = "!!"
)

// Verbs of requests.
const (
	Begin    = "begin"
	Renew    = "renew"
	Start    = "start"  // the intent of an effect
	Settle   = "settle" // its result
	Complete = "complete"
	Reject   = "reject"
	Fail     = "fail"
	Abort    = "abort"
	Hold     = "hold"
	Call     = "call" // through the proxy
)

// Words for answers. If the answer has a code of its own, that is the word.
const (
	Execute  = "execute"
	Replay   = "replay"
	OK       = "ok"       // a renewal or an end was accepted
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
	Unsent   = "upstream_unreachable" // nothing was sent
	Internal = "internal"
	// Superseded and Gap refuse a number of a sequence; Event.Next is the number that they name.
	Superseded = "superseded"
	Gap        = "sequence_gap"
	// OtherCaller refuses whoever hasn't got the credential that the call is bound to.
	OtherCaller = "other_caller"
)

// Event is one thing that happened.
type Event struct {
	At   int64  `json:"at"` // nanoseconds of the machine's monotonic clock
	Kind Kind   `json:"kind"`
	Key  string `json:"key,omitempty"` // operation, a slash and the key; empty for faults
	// ID names a request with its answer, arrival and effect.
	ID      string `json:"id,omitempty"`
	Verb    string `json:"verb,omitempty"`
	Node    int    `json:"node,omitempty"` // from 1
	Payload int    `json:"payload,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Holder  string `json:"holder,omitempty"`
	Wait    int    `json:"wait,omitempty"` // seconds that a duplicate asks to wait
	Status  int    `json:"status,omitempty"`
	// Caller is a stranger, who sends the key with another credential; empty for its owner.
	Caller string `json:"caller,omitempty"`
	// Next is the number that a refusal names: which comes next, or which has begun.
	Next int    `json:"next,omitempty"`
	Word string `json:"word,omitempty"`
	// Outcome is what every duplicate must get from now on: how the call ended, and the bytes
	// of its result.
	Outcome string `json:"outcome,omitempty"`
	// Final marks requests made after all faults, with their answers.
	Final bool   `json:"final,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Rules are what an operation promises.
type Rules struct {
	// Repeats: if the holder of an attempt is silent, its effect may be repeated.
	Repeats bool
	// Reopens: an attempt that has not begun its effect may be repeated.
	Reopens bool
	// Retries: an attempt that has failed may be repeated.
	Retries bool
	// Timed: the lease of an attempt lasts as long as it should by the clock of the log. So
	// nobody may take over or hold the call earlier, and once a holder hears that its attempt
	// is lost or ended, it isn't the holder any more. Not for runs that move clocks.
	Timed bool
	// Asked: a reconciler looks into held calls.
	Asked bool
	// Routed: calls go through the proxy, so clients see no fences.
	Routed bool
	// Numbered: calls are numbers of sequences, each with a key made by NumberKey. Gapless:
	// none begins before the one below it has an outcome.
	Numbered, Gapless bool
	// Shared: strangers send the keys too, and the upstream refuses them.
	Shared bool
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
	earlier  map[int]int64 // until when nodes ran an earlier program
}

// NewLog is an empty log of calls to operations with these rules, which all have the
// same lease.
func NewLog(rules map[string]Rules, lease time.Duration) *Log {
	return &Log{rules: rules, lease: lease, keys: map[string][]Event{}, effects: map[string][]Event{}, earlier: map[int]int64{}}
}

// Add adds an event, from any goroutine and in any order.
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

// Requests counts the requests so far.
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

// Of is the history of one key in the order of time, in which events aren't necessarily added.
func (l *Log) Of(key string) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := slices.Clone(l.keys[key])
	slices.SortStableFunc(events, func(a, b Event) int { return int(max(-1, min(1, a.At-b.At))) })
	return events
}

// RulesOf are the rules of a key's operation.
func (l *Log) RulesOf(key string) Rules { return l.rules[operation(key)] }

func operation(key string) string {
	op, _, _ := strings.Cut(key, "/")
	return op
}

// ClockFault is the name of the fault that moves the clock of the store.
const ClockFault = "server.clock"

// near is how long before or after the events of a key a fault is still shown with them.
const near = 2 * time.Second

// with adds the faults during the events.
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
