package semel

import "github.com/semelhq/semel/store"

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

// Limits on what a call brings.
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
