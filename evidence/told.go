package evidence

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/semelhq/semel/store"
)

// told is a leaf's statement about the history of one record.
type told struct {
	record    keyedDigest // zero: it isn't about one, or in an older form
	sequence  keyedDigest // the sequence that the record is a number of; zero if none
	operation keyedDigest // zero: unknown
	outcome   keyedDigest // zero: there is none
	content   content     // of the record after a change
	number    uint64      // number in its sequence; zero: none, or unknown
	payload   uint32      // the beginning of the payload's fingerprint; zero: unknown
	version   int
	fence     int64
	at        store.Instant // when it was emitted
	until     store.Instant // when the record's window ends; zero: unknown
	// unfinished: it stays for longer, because of its messages or its compensation.
	unfinished bool
	what       what
	taken      bool // the next attempt ended it, because its holder was gone
	end        what // how the newest attempt had ended by then; nothing if it hadn't
}

// what is what happened to a record.
type what uint8

const (
	nothing   what = iota // that changed it
	claimed               // an attempt began
	anew                  // the first attempt of a call began
	held                  // nobody may run it
	completed             // ended with an outcome that is replayed
	failed                // ended with a failure; the policy says whether the call runs again
	refused               // ended with a refusal; another caller may use the key
	aborted               // ended, and nothing had happened
	abandoned             // ended without an outcome, and another attempt may follow
	moved                 // a refusal moved to this record of its own
	altered               // something else about it: an effect, a message, a confirmation
	purged                // it is about to be deleted
	replayed              // a delivery got its outcome
	restored              // the store was restored
)

// tell reads an artifact.
func tell(a *Artifact) (t told) {
	p := &a.Payload
	if a.Type == TypeRestored {
		return told{what: restored, at: store.InstantOf(a.EmittedAt)}
	}
	var ok bool
	if t.record, ok = blinded(p.Record, recordPrefix); !ok {
		return told{}
	}
	t.outcome, _ = blinded(p.OutcomeRef, outcomePrefix)
	t.sequence, _ = blinded(p.SequenceRef, recordPrefix)
	t.operation, _ = blinded(p.Operation, operationPrefix)
	t.content = parseContent(p.Content)
	t.number, _ = strconv.ParseUint(p.Sequence, 10, 64)
	t.fence, _ = strconv.ParseInt(p.Fence, 10, 64)
	if first, err := hex.DecodeString(p.Fingerprint); err == nil && len(first) >= 4 {
		t.payload = binary.BigEndian.Uint32(first)
	}
	t.version, t.unfinished = a.Version, p.Unfinished
	t.at, t.until = store.InstantOf(a.EmittedAt), store.InstantOf(p.KeptUntil)
	t.what, t.taken = whatOf(a.Type, p), a.Type == TypeAbandoned && p.Change == store.ChangeClaimed
	if p.Disposition != "" {
		t.end = endOf(p.Disposition)
	}
	return t
}

func blinded(text, prefix string) (name keyedDigest, ok bool) {
	digits, ok := strings.CutPrefix(text, prefix)
	if !ok || len(digits) != 2*len(name) {
		return name, false
	}
	_, err := hex.Decode(name[:], []byte(digits))
	return name, err == nil
}

// whats are the types of artifacts that always mean the same, whatever else is in them.
var whats = map[Type]what{
	TypeStarted: claimed, TypeHeld: held, TypePurged: purged, TypeMoved: moved, TypeExecuted: completed, TypeFailed: failed,
	TypeAborted: aborted, TypeReleased: aborted, TypeAbandoned: abandoned, TypeForgotten: altered, TypeEffect: altered, TypeMessage: altered, TypeCompensation: altered,
	TypeConfirmationRequested: altered, TypeConfirmationRefused: altered, TypeConfirmationGiven: altered, TypeConfirmationConsumed: altered,
}

func whatOf(kind Type, p *Payload) what {
	switch kind {
	case TypeObservation:
		switch {
		case p.Decision == DecisionReplayed:
			return replayed
		case p.Executed != nil && *p.Executed:
			return anew
		}
		return aborted // it is waiting for its confirmation
	case TypeRejected:
		if p.Decision != "" {
			return nothing // a delivery with another payload
		}
		return refused
	case TypeSettled:
		return endOf(p.Disposition)
	}
	return whats[kind]
}

var ends = map[string]what{"completed": completed, "failed": failed, "rejected": refused, "aborted": aborted}

// endOf returns how an attempt with a disposition ended.
func endOf(disposition string) what { return cmp.Or(ends[disposition], abandoned) }

func (w what) ended() bool { return completed <= w && w <= moved }

// begun reports whether an attempt has begun, or may have, and hasn't ended yet.
func (w what) begun() bool { return w == claimed || w == anew || w == held }

// harmful reports whether an attempt that ended like this may have had an effect.
func (w what) harmful() bool { return w == completed || w == failed || w == abandoned }
