package store

import "slices"

// State is the state of an attempt. A record shows the state of its newest attempt. There are
// exactly three; the zero State means that there is no record (CORE-STATE.1).
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

// String returns the state's name, the same in every output.
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
	_ Disposition = iota
	// DispositionCompleted: the work was done and its result is final.
	DispositionCompleted
	// DispositionRejected: the call was refused for good; every duplicate
	// gets the same refusal.
	DispositionRejected
	// DispositionFailed: the handler said that it failed. The operation's
	// OnFailure decides what the next delivery gets.
	DispositionFailed
	// DispositionAborted: there was certainly no effect. The next delivery runs
	// again.
	DispositionAborted
	// DispositionAbandoned: the holder is gone, and either its ledger or the
	// operation's policy allows the next delivery to run again.
	DispositionAbandoned
)

var dispositionNames = []string{"", "completed", "rejected", "failed", "aborted", "abandoned"}

// String returns the disposition's name, the same in every output.
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

// NewMark returns the record that holds the mark of a sequence.
func NewMark(sequence ID, m Mark, fence int64, now Instant) *Record {
	rec := fact(sequence, fence, now, Result{})
	rec.Mark = &m
	return &rec
}

// fact returns a record without an attempt, which is completed from the start. The engine's
// state machine is for calls and isn't used here.
func fact(id ID, fence int64, now Instant, res Result) Record {
	return Record{
		ID: id, State: Completed, Disposition: DispositionCompleted, Attempt: 1, Fence: fence, Origin: fence, Result: res,
		CreatedAt: now, UpdatedAt: now, StartedAt: now, EndedAt: now,
	}
}
