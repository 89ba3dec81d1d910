package commerce

import "github.com/semelhq/semel"

// updates is the key of all updates of one type in a session. Their numbers are in their
// calls, so that they are one sequence: with [SessionUpdate] each number would be a call
// that knows nothing of the others.
var updates = Format{"session_updates", "session_update:{session_id}:{operation_type}", "session", "session_id"}

// Update is one numbered change of a session's state (MAP-SESS.2).
type Update struct {
	// Session has the state, and Type is what the change is about, such as save_cart. The
	// updates of a session that have one type are a sequence.
	Session, Type string
	// Number is that of the update, from 1. Whoever makes updates counts them, and repeats
	// one under the number that it had.
	Number uint64
}

// Updates declares the operation of updates, with the engine's defaults. Numbers may be left
// out; set Gapless if each one has to wait for the one below it.
func Updates(name string) semel.Operation { return semel.Operation{Name: name, Sequenced: true} }

// Name writes the key, the scope and the number of the update into a call. Then the engine
// decides: a number that was processed gets its outcome, also after later ones; a lower one
// that never was is [semel.Superseded], and the answer has the last number that may have had an
// effect.
func (u Update) Name(call *semel.Call) error {
	key, err := updates.Key(Values{"session_id": u.Session, "operation_type": u.Type})
	if err == nil {
		key.Name(call)
		call.Sequence = u.Number
	}
	return err
}
