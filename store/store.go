package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
)

// Store keeps records. It decides nothing: it offers one atomic, durable compare-and-set per
// identity (optimistic concurrency), and the engine does the rest, so no two stores can
// disagree about meaning (CORE-BOUND.1).
//
// Operations on one identity are linearizable, across all processes that use the store. There
// is no promise between identities. When Apply returns, an applied write is durable to the
// level that the store documents. All methods may be called concurrently.
//
// Once a record has gone into a store or come out of one, nobody changes it or anything in it.
// So both sides may keep it without a copy.
//
// An error means that the result is unknown: the write may have happened, may still happen, or
// may never happen. The engine resolves it by applying the same write again.
//
// Package storetest is this contract in code; every store passes it.
type Store interface {
	// Apply writes w.Record if the stored revision equals w.Expect (zero: no record). It
	// returns the record that is stored afterwards, which is w.Record if applied, or else the
	// unchanged stored one; nil if w.Expect names a record that is gone.
	Apply(ctx context.Context, w Write) (current *Record, applied bool, err error)

	// Get returns the record, expired or not, or [ErrNotFound].
	Get(ctx context.Context, id ID) (*Record, error)

	// Now is the store's clock. Leases and windows are judged by it. It never goes back, not
	// even when the process restarts over the same data. If it steps ahead, Extras has a
	// [Timekeeper] that says so. It is called for every delivery, so a remote store should
	// keep an offset.
	Now(ctx context.Context) (Instant, error)

	// Close waits for running calls and releases the store's resources.
	Close() error

	// Extras returns the store's optional abilities. They never change.
	Extras() Extras
}

// As finds a store of type T in a chain of wrappers, such as a store in PostgreSQL behind one
// that counts calls. If your wrapper may be bypassed, give it a method Unwrap() Store; if it
// must see every call, don't.
func As[T Store](st Store) (T, bool) {
	for {
		if is, ok := st.(T); ok {
			return is, true
		}
		w, ok := st.(interface{ Unwrap() Store })
		if !ok {
			var none T
			return none, false
		}
		st = w.Unwrap()
	}
}

// ErrNotApplied is wrapped by a store's error if the write certainly didn't happen and
// never will: it wasn't sent, or the server answered that it refused it. A claim is then
// refused at once, and needs no release; other writes are tried again as usual. Don't use
// it for a write that may still be on its way.
var ErrNotApplied = errors.New("the write was not applied")

// ErrTooLate is wrapped by a store's error if the write arrived after its deadline. It
// is an [ErrNotApplied].
var ErrTooLate = fmt.Errorf("%w: it arrived after its deadline", ErrNotApplied)

// Write is one compare-and-set.
type Write struct {
	// Record is the new content. Its Revision is new: no other write has it.
	Record *Record
	// Expect is the revision that must be stored. Zero: no record.
	Expect Revision
	// Was has the attributes of the record under Expect, for a store with an index of them:
	// it can take entries out without reading that record. If they are wrong, entries may
	// stay behind, or be missing.
	Was Attributes
	// Evidence is appended to the evidence log if the record is written, in the
	// same atomic step. Only a store with an [EvidenceLog] gets any.
	Evidence []Entry
	// Deadline is the instant before which the write must be made, by the clock of
	// the process or server that makes it. At that instant or later, the store refuses a write
	// with [ErrTooLate] even if Expect is stored, however long the write was on its way. Zero:
	// no deadline. So a claim can't arrive after its lease is over, when nobody waits for it
	// any more.
	Deadline Instant
}

// Revision names one write. It is unique among all writes of all processes, so a
// revision in the store shows which write arrived.
type Revision [16]byte

// IsZero reports whether r stands for "no record".
func (r Revision) IsZero() bool { return r == Revision{} }

// String returns r in hexadecimal.
func (r Revision) String() string { return hex.EncodeToString(r[:]) }

// MarshalText is [Revision.String].
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Revision) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(r) {
		return &Error{Code: CodeInvalidCall, Message: "a revision has 32 hexadecimal digits"}
	}
	_, err := hex.Decode(r[:], text)
	return err
}

// Ref names one version of a record.
type Ref struct {
	ID       ID
	Revision Revision
	// Attributes are the attributes of that version; see [Write].Was.
	Attributes Attributes
}

// Ref returns the name of this version of the record.
func (r *Record) Ref() Ref { return Ref{r.ID, r.Revision, r.Attributes} }
