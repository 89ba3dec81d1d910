package evidence

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"time"
)

// told is what a leaf says about the history of one record, read without allocating: a
// verification reads each leaf of the log.
type told struct {
	record  [16]byte // zero: it says nothing about one, or in an older form
	outcome [16]byte // zero: there is none
	fence   int64
	at      int64 // when it was emitted, in nanoseconds
	until   int64 // until when the record is kept; zero: it doesn't say
	what    what
}

// what is what happened to a record.
type what uint8

const (
	nothing   what = iota // that the story needs
	claimed               // an attempt began
	anew                  // so did the first of a call
	held                  // nobody may run it
	completed             // ended with an outcome that is replayed
	failed                // ended with a failure; its policy says whether the call runs again
	refused               // ended with a refusal; another caller may use the key
	over                  // ended, and the call may run again
	purged                // it is about to be deleted
	replayed              // a delivery got its outcome
	restored              // the store was restored
)

var (
	typeMember    = []byte(`"artifact_type":"`)
	emittedMember = []byte(`"emitted_at":"`)
	payloadMember = []byte(`"payload":{`)
	endOfText     = byte('"')
)

// tell reads a leaf. Leaves are canonical JSON whose words have no escapes, and members
// have one order, so a member is found by its text. What is in another form says nothing.
func tell(leaf []byte) (t told) {
	kind, rest := member(leaf, typeMember)
	emitted, rest := member(rest, emittedMember)
	_, p, ok := bytes.Cut(rest, payloadMember)
	if !ok {
		return t
	}
	if Type(kind) == TypeRestored {
		t.what = restored
		return t
	}
	executes := bytes.Contains(p, []byte(`"executed":true`))
	decision, _ := member(p, []byte(`"decision":"`))
	disposition, _ := member(p, []byte(`"disposition":"`))
	if t.what = whatOf(Type(kind), string(decision), string(disposition), executes); t.what == nothing {
		return t
	}
	fence, p := member(p, []byte(`"fence":"`))
	until, p := member(p, []byte(`"kept_until":"`))
	outcome, p := member(p, []byte(`"outcome_ref":"out_`))
	record, _ := member(p, []byte(`"record_ref":"`+recordPrefix))
	if !hexInto(&t.record, record) {
		return told{}
	}
	hexInto(&t.outcome, outcome)
	t.fence, _ = strconv.ParseInt(string(fence), 10, 64)
	t.at, t.until = nanos(emitted), nanos(until)
	return t
}

func whatOf(kind Type, decision, disposition string, executes bool) what {
	switch kind {
	case TypeObservation:
		switch {
		case decision == DecisionReplayed:
			return replayed
		case executes:
			return anew
		}
		return over // it waits for its confirmation
	case TypeStarted:
		return claimed
	case TypeHeld:
		return held
	case TypePurged:
		return purged
	case TypeRejected:
		if decision != "" {
			return nothing // a delivery with another payload
		}
		return refused
	case TypeExecuted:
		return completed
	case TypeFailed:
		return failed
	case TypeAborted, TypeAbandoned, TypeReleased:
		return over
	case TypeSettled:
		switch disposition {
		case "completed":
			return completed
		case "failed":
			return failed
		case "rejected":
			return refused
		}
		return over
	}
	return nothing
}

// member is the text of a member, and what follows it. If there is none, all of b follows.
func member(b, name []byte) (value, rest []byte) {
	_, after, ok := bytes.Cut(b, name)
	end := bytes.IndexByte(after, endOfText)
	if !ok || end < 0 {
		return nil, b
	}
	return after[:end], after[end:]
}

func hexInto(dst *[16]byte, text []byte) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	_, err := hex.Decode(dst[:], text)
	return err == nil
}

func nanos(text []byte) int64 {
	if len(text) == 0 {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return 0
	}
	return at.UnixNano()
}
