package semel

import (
	"cmp"
	"slices"
)

// State is where an attempt stands. A record shows the state of its newest
// attempt. There are exactly three; the zero State means that there is no record
// (CORE-STATE.1).
type State uint8

// The three states. Completed and Failed are terminal (CORE-STATE.2).
const (
	absent State = iota
	Processing
	Completed
	Failed
)

var stateNames = []string{"", "processing", "completed", "failed"}

// Terminal reports whether s is final for the attempt it belongs to.
func (s State) Terminal() bool { return s == Completed || s == Failed }

// String is the state's name, the same wherever it is shown.
func (s State) String() string { return nameOf(stateNames, s) }

// MarshalText is [State.String].
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error { return byName(s, stateNames, text, "state") }

// Disposition says how a terminal attempt ended. It refines [State] without
// adding a state: everything but [DispositionCompleted] is a kind of [Failed].
// Zero: the attempt is processing.
type Disposition uint8

// The dispositions of a terminal attempt.
const (
	unended Disposition = iota
	// DispositionCompleted: the work was done and its result is final.
	DispositionCompleted
	// DispositionRejected: the call was refused for good; every duplicate
	// gets the same refusal.
	DispositionRejected
	// DispositionFailed: the handler said that it failed. The operation's
	// OnFailure decides what the next delivery gets.
	DispositionFailed
	// DispositionAborted: it is proved that no effect happened. The next
	// delivery runs again.
	DispositionAborted
	// DispositionAbandoned: the holder went away, and either its ledger or the
	// operation's policy allows that the next delivery runs again.
	DispositionAbandoned
)

var dispositionNames = []string{"", "completed", "rejected", "failed", "aborted", "abandoned"}

// String is the disposition's name, the same wherever it is shown.
func (d Disposition) String() string { return nameOf(dispositionNames, d) }

// MarshalText is [Disposition.String].
func (d Disposition) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a disposition's name.
func (d *Disposition) UnmarshalText(text []byte) error {
	return byName(d, dispositionNames, text, "disposition")
}

func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

func byName[T ~uint8](v *T, names []string, text []byte, what string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return &Error{Code: CodeInvalidCall, Message: "there is no " + what + " of that name"}
	}
	*v = T(i)
	return nil
}

// event is what happens to an attempt.
type event uint8

const (
	evNone       event = iota
	evOpen             // a new attempt starts under a new fence
	evRenew            // the lease is extended
	evEffect           // the ledger changes
	evHold             // the holder is gone, an effect is possible
	evComplete         // done
	evReject           // refused for good
	evFail             // failed, the policy decides
	evAbort            // proved that no effect happened
	evAbandon          // holder gone, may run again
	evMessage          // a message of the outbox is settled
	evCompensate       // the link to a compensation changes
	evConfirm          // what is known of its confirmation changes
	eventCount
)

var eventNames = [eventCount]string{"", "open", "renew", "change effects", "be held", "complete", "be rejected", "fail", "abort", "be abandoned", "settle a message", "be compensated", "be confirmed"}

// transition is one row of the machine.
type transition struct {
	from        State
	event       event
	to          State
	disposition Disposition
}

// machine is the whole state machine. What is not listed is refused. No row
// leaves Completed or Failed, so a terminal attempt stays as it is for ever; a
// further execution is a new attempt, which starts from no state at all
// (CORE-STATE.2, MAP-FLOW.4). The last three are later facts about a terminal
// record, which leave its outcome alone.
var machine = [...]transition{
	{absent, evOpen, Processing, unended},
	{Processing, evComplete, Completed, DispositionCompleted},
	{Processing, evReject, Failed, DispositionRejected},
	{Processing, evFail, Failed, DispositionFailed},
	{Processing, evAbort, Failed, DispositionAborted},
	{Processing, evAbandon, Failed, DispositionAbandoned},
	{Processing, evRenew, Processing, unended},
	{Processing, evEffect, Processing, unended},
	{Processing, evHold, Processing, unended},
	{Completed, evMessage, Completed, DispositionCompleted},
	{Completed, evCompensate, Completed, DispositionCompleted},
	{Failed, evConfirm, Failed, DispositionAborted},
}

// step moves the record's newest attempt. It is the only code that assigns
// Record.State.
func (r *Record) step(ev event) error {
	for i := range machine {
		if t := &machine[i]; t.event == ev && t.from == r.State {
			r.State, r.Disposition = t.to, t.disposition
			return nil
		}
	}
	return &Error{Code: CodeIllegalTransition, Message: "an attempt that is " + cmp.Or(r.State.String(), "absent") + " cannot " + eventNames[ev]}
}
