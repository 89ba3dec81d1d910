package semel

import (
	"github.com/semelhq/semel/store"
)

// nextLook returns when a sweep must attend to a terminal record: to deliver its messages,
// resume its compensation, drop its answer, or purge it.
func nextLook(r *Record) store.Instant {
	if !r.Unfinished() {
		return r.AnswerUntil()
	}
	at := store.Instant(0)
	for i := range r.Outbox {
		if m := &r.Outbox[i]; m.State == store.MessagePending {
			at = earlier(at, m.NextAt)
		}
	}
	if c := r.Compensation; c != nil && c.State == store.CompensationStarted {
		at = earlier(at, c.NextAt)
	}
	return at
}

// earlier returns the earlier of two instants; zero means never.
func earlier(a, b store.Instant) store.Instant {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// leaseOver reports whether the holder of a processing record counts as gone at a time, as
// leaseTime returns it.
func leaseOver(r *Record, at store.Instant) bool {
	return !r.Held && at >= r.LeaseUntil
}

// leaseTime returns the time to judge a record's lease by: now, unless the store's clock has
// leapt since the lease began.
func (e *Engine) leaseTime(r *Record, now store.Instant) store.Instant {
	if e.extras.Clock == nil || r.LeaseUntil == 0 {
		return now
	}
	return e.clockState(now).Leap.For(r.LeaseUntil.Add(-r.Policy.Lease), now)
}

// clockState returns the state of the store's clock at now.
func (e *Engine) clockState(now store.Instant) store.ClockState {
	if e.extras.Clock == nil {
		return store.ClockState{}
	}
	return e.extras.Clock.ClockState(now)
}

// openEffect returns the first effect that was started and has no result.
func openEffect(r *Record) (store.EffectRecord, bool) {
	for _, ef := range r.Effects {
		if ef.State == store.EffectStarted {
			return ef, true
		}
	}
	return store.EffectRecord{}, false
}

// asEarlier returns the newest attempt as an entry of Record.Earlier.
func asEarlier(r *Record) store.AttemptRecord {
	return store.AttemptRecord{
		Number: r.Attempt, Fence: r.Fence, Holder: r.Holder, Principal: r.Principal,
		Disposition: r.Disposition, Failure: r.Failure, Settled: r.Settled, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}

// The types of package store that you meet when you run calls.
type (
	// Store keeps records; see [store.Store].
	Store = store.Store
	// Record is everything known about one identity; see [store.Record].
	Record = store.Record
	// ID is the identity of one logical call; see [store.ID].
	ID = store.ID
	// Fingerprint is a versioned digest of a payload; see [store.Fingerprint].
	Fingerprint = store.Fingerprint
	// State is where an attempt stands; see [store.State].
	State = store.State
	// Result is an answer; see [store.Result].
	Result = store.Result
	// Message is something that a completed call sends; see [store.Message].
	Message = store.Message
	// Error is the one error type of the engine and its stores; see [store.Error].
	Error = store.Error
	// Code is the stable name of an error; see [store.Code].
	Code = store.Code
)

// The states of an attempt; see [store.State].
const (
	Processing = store.Processing
	Completed  = store.Completed
	Failed     = store.Failed
)

// The dispositions of a terminal attempt; see [store.Disposition].
const (
	DispositionCompleted = store.DispositionCompleted
	DispositionRejected  = store.DispositionRejected
	DispositionFailed    = store.DispositionFailed
	DispositionAborted   = store.DispositionAborted
	DispositionAbandoned = store.DispositionAbandoned
)

// The schemes of fingerprints; see [store.Scheme].
const (
	SchemeRaw   = store.SchemeRaw
	SchemeJSON  = store.SchemeJSON
	SchemeForm  = store.SchemeForm
	SchemeParts = store.SchemeParts
)

// Limits on the fields of a call.
const (
	MaxKeyLen     = store.MaxKeyLen
	MaxAttributes = store.MaxAttributes
)

// Attributes that the engine itself uses.
const (
	AttributeCommandID   = store.AttributeCommandID
	AttributeCompensates = store.AttributeCompensates
)

// FingerprintOf digests the parts, each length-framed, under a scheme.
func FingerprintOf(scheme store.Scheme, parts ...[]byte) Fingerprint {
	return store.FingerprintOf(scheme, parts...)
}

// FingerprintJSON digests a JSON text by its meaning; see [store.FingerprintJSON].
func FingerprintJSON(text []byte) (Fingerprint, error) { return store.FingerprintJSON(text) }
