package semel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// Call is one delivery.
type Call struct {
	// Tenant, Operation and Key, with the principal scope, are the identity.
	// Key and Operation are required; see [Call.ID].
	Tenant    string
	Operation string
	Key       string
	// Principal is the caller's verified identity. It is part of the identity of the call
	// unless the operation shares its keys.
	Principal string
	// Scope narrows the principal scope of the identity, up to 128 bytes: calls with
	// different scopes are independent, even if the operation shares its keys. Use it
	// for what a caller says beside its key, such as the account it acts for.
	Scope string
	// BoundTo binds the call to an unverified caller, by something that they presented, such
	// as a digest of their credential, up to 256 bytes. The record holds it, but it isn't part
	// of the identity: a delivery with another value, or none, isn't executed, and gets
	// [OtherCaller] and nothing else, or [InFlight] while an attempt runs.
	//
	// The binding lasts as long as something may have happened. If every attempt was
	// aborted or rejected and no effect is in the ledger, a delivery with another value
	// executes: it begins a new call, and only the fence carries over. A refusal then moves to
	// a record of its own, for the caller who got it. An aborted call leaves only a tombstone,
	// for a minute, and a held one is let go at the end of its window, unless the operation is
	// Financial.
	//
	// Use it for keys that can't be guessed. A retry with a renewed credential then
	// doesn't execute again, and somebody who got hold of the key gets no answer.
	// Leave it empty if Principal is verified.
	BoundTo string
	// Unproved says that anybody could have sent what identifies the caller here, such as the
	// id of an access key when you can't verify its signature. It tells callers apart, so that
	// a retry doesn't execute again, and proves nothing: in place of an outcome, or anything
	// else from the record, the delivery gets [OtherCaller].
	Unproved bool
	// Network is the network that an unverified caller calls from, if there is BoundTo: their
	// address in IPv6 form, without the bits that a subscriber chooses. Callers of one network
	// share its turns at a key; see [Internal.Turn]. The zero value is a network like any
	// other.
	Network [16]byte
	// Door names the way that the call came in, such as "http", up to 32 bytes. Leave it empty
	// if your program calls the engine itself. A call belongs to the door that it came through
	// first: a delivery through another gets [OtherDoor] and nothing else, since another door
	// may not be able to read what the first recorded, or may have other rules for who writes
	// it.
	Door string
	// Sequence is this call's place in the sequence of its key, from 1; zero for an operation
	// that isn't sequenced. See Operation.Sequenced.
	Sequence uint64
	// Fingerprint is compared with that of the first delivery. The zero value
	// equals only itself.
	Fingerprint Fingerprint
	// SamePayload reports whether a fingerprint computed in another way, such as by an earlier
	// version, matches the payload of this delivery. Semel calls it only if Fingerprint
	// differs from the first delivery's, perhaps several times, before the delivery is
	// answered or executes. Optional.
	SamePayload func(first Fingerprint) bool
	// Holder names who executes the call if this delivery does, up to 256 bytes.
	// It becomes [Record].Holder and isn't part of the identity. Defaults to Options.Node. A
	// door gives each delivery its own, so that it can recognise its own claim after losing
	// the answer.
	Holder string
	// Payload is the request as received. A new call's record holds it if Operation.KeepPayload
	// says so. It is used for nothing else: payloads are compared by Fingerprint.
	Payload []byte
	// Attributes are stored in the record of a new call. At most [MaxAttributes].
	Attributes store.Attributes
	// Confirm is the confirmation token, if the caller has one, and StepUp the
	// further proof that Operation.Confirmation may require.
	Confirm string
	StepUp  string
	// FirstSent is when the caller first sent this call, if the caller says so.
	FirstSent time.Time
	// Window replaces Operation.Window if this delivery executes: how long the record holds the
	// outcome, within the same bounds. Zero: the operation's.
	Window time.Duration
	// Wait is how long to wait for the outcome if the call is in flight. It is bounded by
	// Operation.MaxWait. Zero: the operation's.
	Wait time.Duration

	turn turn
}

// Answer is what a delivery got.
type Answer struct {
	Decision Decision
	// Record is the call's stored record. For Execute it is the claim, or in the answer of Do
	// the outcome. For TooLate, OtherCaller, OtherDoor, a Throttled new call, and another
	// caller's InFlight call it has only the identity, for Superseded also the newest number,
	// and for SequenceGap the next one; without a decision it is nil. It may be shared with the
	// store: don't change it.
	Record *Record
	// Attempt is the right to execute. It is set by Begin for Execute only.
	Attempt *Attempt
	// Challenge is what the caller needs to confirm the call, if the error is
	// [CodeConfirmationRequired] and Semel issued a new token.
	Challenge *Challenge
	// RetryAfter is when to try again, for InFlight, SequenceGap, Held and Throttled.
	RetryAfter time.Duration
	// Limit is the limit that throttled the delivery, for Throttled.
	Limit Limit
}

func (a *Answer) throttle(delay time.Duration, by Limit) {
	a.Decision, a.RetryAfter, a.Limit = Throttled, delay, by
}

// Err returns the answer as an error: nil for Execute and for the replay of a kept, completed
// result; otherwise an [Error] with the code that says why there is no result.
func (a *Answer) Err() error {
	switch a.Decision {
	case Conflict:
		return &Error{Code: CodeConflict, Message: "the key was used with another payload"}
	case InFlight:
		return &Error{Code: CodeInFlight, Message: "the first delivery is still running", RetryAfter: a.RetryAfter}
	case Held:
		return &Error{Code: CodeHeld, Message: a.Record.HeldReason, RetryAfter: a.RetryAfter}
	case TooLate:
		return &Error{Code: CodeTooLate, Message: "the call was first sent before the window that is kept"}
	case OtherCaller:
		return &Error{Code: CodeOtherCaller, Message: "the key was used by a caller with another credential"}
	case OtherDoor:
		return &Error{Code: CodeOtherDoor, Message: "the key was used through another door of this service"}
	case Superseded:
		return &Error{Code: CodeSuperseded, Message: "number " + strconv.FormatUint(a.Record.Sequence, 10) + " of the sequence was begun, so none below it begins any more"}
	case SequenceGap:
		return &Error{Code: CodeSequenceGap, Message: "number " + strconv.FormatUint(a.Record.Sequence, 10) + " of the sequence comes next", RetryAfter: a.RetryAfter}
	case Throttled:
		return &Error{Code: CodeThrottled, Message: a.Limit.message(), RetryAfter: a.RetryAfter}
	}
	if a.Record == nil {
		return nil
	}
	return outcomeError(a.Record, nil)
}

// outcomeError returns a record's outcome as an error. cause is the handler's own error, if
// this process ran it.
func outcomeError(rec *Record, cause error) error {
	switch {
	case rec.OnlyNamed():
		return &Error{Code: CodeResultNotKept, Message: "the call ended (" + rec.Disposition.String() + ") at " + rec.EndedAt.String() + ", and its answer was kept until " + rec.AnswerUntil().String()}
	case rec.State == Failed:
		e := &Error{Code: Code(rec.Disposition.String()), Err: cause}
		if rec.Disposition == DispositionAbandoned {
			e.Code = CodeAborted
		}
		if rec.Failure != nil && cause == nil {
			e.Message = rec.Failure.Message
		}
		return e
	case rec.State == Completed && rec.Result.Tombstone:
		return &Error{Code: CodeResultNotKept, Message: "the call ran, but its result was not kept"}
	}
	return nil
}

// DeriveKey makes a key from the content of a call: the lower-case hexadecimal
// SHA-256 of the version and the RFC 8785 form of inputs, each length-framed
// (IDS-VII.3, IDS-VII.5). Equal inputs give equal keys whatever the order of
// their members. The version names the rule that chose the inputs; change it
// when the rule changes. Leave the current time, message ids and random tokens out
// of the inputs: they would give every delivery a different key (IDS-VII.4).
func DeriveKey(version string, inputs any) (string, error) {
	text, ok := inputs.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(inputs); err != nil {
			return "", &Error{Code: CodeInvalidCall, Message: "the key inputs have no JSON form", Err: err}
		}
	}
	text, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return "", &Error{Code: CodeInvalidCall, Message: "the key inputs are not strict JSON", Err: err}
	}
	b := canon.Frame(canon.Frame([]byte("semel-key-1"), version), text)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// effectKey returns the idempotency key of one effect for its provider: 43 characters of
// base64url, which every known provider accepts. It is the same for all attempts of a call, and
// differs between calls that reuse a key after its window.
func effectKey(id ID, origin int64, name string) string {
	return derivedKey("semel-effect-1", id, origin, name)
}

// derivedKey derives a name for something that belongs to one call. version says what kind of thing.
func derivedKey(version string, id ID, origin int64, name string) string {
	d := id.Digest()
	b := append([]byte(version), d[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(origin))
	b = canon.Frame(b, name)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// KeyTime returns the time in a UUIDv7 key. The second result is false for any other key.
// Operation.RefuseLate uses it to refuse late retries.
func KeyTime(key string) (time.Time, bool) {
	if len(key) != 36 || key[8] != '-' || key[13] != '-' || key[18] != '-' || key[23] != '-' || key[14] != '7' {
		return time.Time{}, false
	}
	if v := key[19]; v != '8' && v != '9' && v|0x20 != 'a' && v|0x20 != 'b' {
		return time.Time{}, false
	}
	raw, err := hex.DecodeString(key[:8] + key[9:13] + key[14:18] + key[19:23] + key[24:])
	if err != nil {
		return time.Time{}, false
	}
	ms := int64(binary.BigEndian.Uint64(raw[:8]) >> 16)
	return time.UnixMilli(ms).UTC(), true
}

// maxDoorLen bounds [Call].Door, in bytes.
const maxDoorLen = 32

// ID returns the identity of the call, given how its operation shares keys. Doors use it to
// find the record of a call that a caller asks about.
func (c *Call) ID(share Share) ID {
	id := c.sequence(share)
	if c.Sequence != 0 {
		id = id.Numbered(c.Sequence)
	}
	return id
}

// sequence returns the identity of the call without its number.
func (c *Call) sequence(share Share) ID {
	id := ID{Tenant: c.Tenant, Operation: c.Operation, Key: c.Key}
	if share != ShareTenant {
		id.Principal = c.Principal
	}
	if c.Scope != "" {
		id.Principal += store.ScopeMark + c.Scope
	}
	return id
}

// validateNames checks the fields that name the call's caller, holder and door.
func (c *Call) validateNames() error {
	for _, name := range [...]struct {
		what, text string
		most       int
	}{
		{"the principal", c.Principal, store.MaxNameLen}, {"the scope", c.Scope, store.MaxScopeLen},
		{"what the call is bound to", c.BoundTo, store.MaxNameLen}, {"the holder", c.Holder, store.MaxNameLen}, {"the door", c.Door, maxDoorLen},
	} {
		if len(name.text) > name.most || !store.ValidText(name.text) {
			return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("%s is longer than %d bytes, not valid UTF-8 or has a NUL byte", name.what, name.most)}
		}
	}
	if strings.Contains(c.Principal, store.ScopeMark) {
		return &Error{Code: CodeInvalidCall, Message: "the principal has " + store.ScopeMark}
	}
	return nil
}
