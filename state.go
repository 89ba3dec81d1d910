package semel

import (
	"cmp"

	"github.com/semelhq/semel/store"
)

// absent is the state of the zero Record, which stands for no record, and unended the
// disposition of an attempt that is processing.
const (
	absent  State             = 0
	unended store.Disposition = 0
)

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
	evConfirm          // the state of its confirmation changes
	evForget           // its window is over, and only what names it stays
	eventCount
)

var eventNames = [eventCount]string{"", "open", "renew", "change effects", "be held", "complete", "be rejected", "fail", "abort", "be abandoned", "settle a message", "be compensated", "be confirmed", "be forgotten"}

// transition is one row of the machine.
type transition struct {
	from        State
	event       event
	to          State
	disposition store.Disposition
}

// machine is the whole state machine. Transitions that aren't listed are refused. No row
// leaves Completed or Failed, so a terminal attempt never changes; a further execution
// is a new attempt, which starts from no state (CORE-STATE.2, MAP-FLOW.4). The rows from
// Completed and Failed record later facts, and don't change how the attempt ended.
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
	{Completed, evForget, Completed, DispositionCompleted},
	{Failed, evForget, Failed, DispositionRejected},
	{Failed, evForget, Failed, DispositionFailed},
	{Failed, evForget, Failed, DispositionAborted},
	{Failed, evForget, Failed, DispositionAbandoned},
}

// step moves the record's newest attempt. It is the only code that assigns
// Record.State.
func step(r *Record, ev event) error {
	for i := range machine {
		if t := &machine[i]; t.event == ev && t.from == r.State && (!t.from.Terminal() || t.disposition == r.Disposition) {
			r.State, r.Disposition = t.to, t.disposition
			return nil
		}
	}
	return &Error{Code: CodeIllegalTransition, Message: "an attempt that is " + cmp.Or(r.State.String(), "absent") + " cannot " + eventNames[ev]}
}
