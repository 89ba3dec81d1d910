package semel

// State is where an attempt stands. A record shows the state of its newest
// attempt. There are exactly three; the empty State means that there is no
// record (CORE-STATE.1).
type State string

// The three states. Completed and Failed are terminal (CORE-STATE.2).
const (
	Processing State = "processing"
	Completed  State = "completed"
	Failed     State = "failed"
)

// Terminal reports whether s is final for the attempt it belongs to.
func (s State) Terminal() bool { return s == Completed || s == Failed }

// Disposition says how a terminal attempt ended. It refines [State] without
// adding a state: everything but [DispositionCompleted] is a kind of [Failed].
type Disposition string

// The dispositions of a terminal attempt.
const (
	// DispositionCompleted: the work was done and its result is final.
	DispositionCompleted Disposition = "completed"
	// DispositionRejected: the call was refused for good; every duplicate
	// gets the same refusal.
	DispositionRejected Disposition = "rejected"
	// DispositionFailed: the handler said that it failed. The operation's
	// OnFailure decides what the next delivery gets.
	DispositionFailed Disposition = "failed"
	// DispositionAborted: it is proved that no effect happened. The next
	// delivery runs again.
	DispositionAborted Disposition = "aborted"
	// DispositionAbandoned: the holder went away, and either its ledger or the
	// operation's policy allows that the next delivery runs again.
	DispositionAbandoned Disposition = "abandoned"
)

// event is what happens to an attempt.
type event uint8

const (
	evNone     event = iota
	evOpen           // a new attempt starts under a new fence
	evRenew          // the lease is extended
	evEffect         // the ledger changes
	evHold           // the holder is gone, an effect is possible
	evComplete       // done
	evReject         // refused for good
	evFail           // failed, the policy decides
	evAbort          // proved that no effect happened
	evAbandon        // holder gone, may run again
	eventCount
)

var eventNames = [eventCount]string{"", "open", "renew", "change effects", "be held", "complete", "be rejected", "fail", "abort", "be abandoned"}

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
// (CORE-STATE.2, MAP-FLOW.4).
var machine = [...]transition{
	{"", evOpen, Processing, ""},
	{Processing, evComplete, Completed, DispositionCompleted},
	{Processing, evReject, Failed, DispositionRejected},
	{Processing, evFail, Failed, DispositionFailed},
	{Processing, evAbort, Failed, DispositionAborted},
	{Processing, evAbandon, Failed, DispositionAbandoned},
	{Processing, evRenew, Processing, ""},
	{Processing, evEffect, Processing, ""},
	{Processing, evHold, Processing, ""},
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
	return &Error{Code: CodeIllegalTransition, Message: "an attempt that is " + r.State.name() + " cannot " + eventNames[ev]}
}

func (s State) name() string {
	if s == "" {
		return "absent"
	}
	return string(s)
}
