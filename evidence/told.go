package evidence

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/semelhq/semel/store"
)

// told is what a leaf says about the history of one record.
type told struct {
	record  keyedDigest // zero: it says nothing about one, or in an older form
	outcome keyedDigest // zero: there is none
	fence   int64
	at      store.Instant // when it was emitted
	until   store.Instant // until when the record is kept; zero: it doesn't say
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

// tell reads what an artifact says.
func tell(a *Artifact) (t told) {
	p := &a.Payload
	if a.Type == TypeRestored {
		return told{what: restored}
	}
	var ok bool
	if t.record, ok = blinded(p.Record, recordPrefix); !ok {
		return told{}
	}
	t.outcome, _ = blinded(p.OutcomeRef, outcomePrefix)
	t.fence, _ = strconv.ParseInt(p.Fence, 10, 64)
	t.at, t.until = store.InstantOf(a.EmittedAt), store.InstantOf(p.KeptUntil)
	t.what = whatOf(a.Type, p.Decision, p.Disposition, p.Executed != nil && *p.Executed)
	return t
}

// blinded reads a blinded name.
func blinded(text, prefix string) (name keyedDigest, ok bool) {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != 2*len(name) {
		return name, false
	}
	_, err := hex.Decode(name[:], []byte(digits))
	return name, err == nil
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
