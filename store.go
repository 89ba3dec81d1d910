package semel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
)

// Store keeps records. It decides nothing: it offers one atomic, durable
// compare-and-set per identity, and the engine does the rest, so no two stores
// can disagree about meaning (CORE-BOUND.1).
//
// Operations on one identity are linearizable, across all processes that use the
// store. Nothing is promised between identities. What Apply acknowledged is
// durable to the level the store documents, before it returns. All methods may
// be called concurrently.
//
// An error means that the result is unknown: the write may have happened, may
// happen yet, or may never happen. The engine resolves it by applying the same
// write again.
//
// Package storetest is this contract in code; every store passes it.
type Store interface {
	// Apply writes w.Record if the stored revision equals w.Expect (zero: no
	// record). It returns the record that is stored afterwards, which is
	// w.Record when applied and the unchanged stored one otherwise; that one
	// is the zero Record when w.Expect names a record that is gone. The
	// caller may not change slices of w after the call, nor of the result.
	Apply(ctx context.Context, w Write) (current Record, applied bool, err error)

	// Get returns the record, expired or not, or [ErrNotFound].
	Get(ctx context.Context, id ID) (Record, error)

	// Now is the store's clock, by which leases and windows are judged. It
	// never goes back, not even when the process restarts over the same data.
	// It is called for every delivery: a remote store keeps an offset.
	Now(ctx context.Context) (Instant, error)

	// Close releases what the store holds. It returns after running calls.
	Close() error
}

// ErrNotApplied is what a store's error wraps when it knows that the write did not
// happen and never will: it was not sent, or the server answered that it refuses it.
// A claim is then refused at once, and nothing has to be released; other writes are
// tried again as usual. A write that may still be on its way is not one of these.
var ErrNotApplied = errors.New("the write was not applied")

// ErrTooLate is what a store's error wraps for a write that arrived after its
// deadline. It is an [ErrNotApplied].
var ErrTooLate = fmt.Errorf("%w: it arrived after its deadline", ErrNotApplied)

// Write is one compare-and-set.
type Write struct {
	// Record is the new content. Its Revision is fresh: no other write ever
	// carried it.
	Record Record
	// Expect is the revision that must be stored. Zero: no record.
	Expect Revision
	// Evidence is appended to the evidence log if the record is written, in the
	// same atomic step. Only an [EvidenceStore] is given any.
	Evidence []Entry
	// Deadline is until when the write may be made, by the clock of whoever makes
	// it: at that instant or later, a write whose Expect is stored is refused with
	// [ErrTooLate], also one that was on its way for long. Zero: whenever. So a
	// claim can't arrive after its lease is over, when nobody waits for it any more.
	Deadline Instant
}

// Revision names one write. It is unique among all writes of all processes, so
// whoever finds it in the store knows whose write arrived.
type Revision [16]byte

// IsZero reports whether r stands for "no record".
func (r Revision) IsZero() bool { return r == Revision{} }

// String is r in hexadecimal.
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

// LocalStore is a [Store] in the memory of this process, whose operations cannot
// fail and take next to no time, and whose clock is the process's own, monotonic
// one. The engine then looks before it claims, and hands records over without
// copying them; with any other store it claims at once, which finds out and claims
// in one round trip.
//
// Records that are passed either way are shared and never change.
type LocalStore interface {
	// Hash is what the store finds an identity by. It is computed once for
	// each delivery and handed to the other methods.
	Hash(id ID) uint64
	// Load returns the record, or nil.
	Load(hash uint64, id ID) *Record
	// Swap is Apply: it stores next if the stored revision equals expect, and
	// returns what stood in the way otherwise, which is nil for nothing.
	// The evidence is Write.Evidence.
	Swap(hash uint64, next *Record, expect Revision, evidence []Entry) (current *Record, applied bool)
}

// DueStore is a [Store] with an index on Record.NextAt. It serves
// [Engine.Sweep]; without it nothing is reaped or purged, and deliveries settle
// abandoned attempts as they meet them. Expired records stay due until they are
// purged, so it should be a [PurgeStore] too.
type DueStore interface {
	// Due returns a page of the records whose NextAt is set and not after q.Until,
	// the earliest first, to the second. A record that is due by the same NextAt
	// while all pages are read is in exactly one of them. An After that the store
	// did not make is [CodeInvalidCall].
	//
	// One that can't be read keeps no other from being found, see
	// DuePage.Unreadable; an error is for what kept the page from being read.
	Due(ctx context.Context, q DueQuery) (DuePage, error)
}

// DueQuery asks a [DueStore] for a page of what is due.
type DueQuery struct {
	Until Instant
	// After continues after an earlier page: its Next. Until may be later by then.
	After string
	// Limit bounds the records of the page. A page of zero is empty and the last.
	Limit int
}

// DuePage is one page of due records. It may have fewer than asked for, even none,
// while Next says that there is more to look at.
type DuePage struct {
	Records []Record
	// Next continues after this page; empty where nothing more is due.
	Next string
	// Unreadable says of each record in this part of the index that can't be read
	// why, and names it as the store does: it is damaged, or a newer program has
	// written it. It stays as it is.
	Unreadable []error
}

// PurgeStore is a [Store] that can delete records. Without it expired records
// stay, and deliveries treat them as absent.
type PurgeStore interface {
	// Purge deletes each record whose stored revision equals the given one and
	// returns how many it deleted. A record that was changed since is left
	// alone. An error means unknown, as for Apply; purging again is harmless.
	Purge(ctx context.Context, refs []Ref) (int, error)
}

// Ref names one version of a record.
type Ref struct {
	ID       ID
	Revision Revision
}

// WatchStore is a [Store] that tells of changes made by other engines. Without
// it the engine polls while it waits for an outcome.
type WatchStore interface {
	// Watch returns a channel that receives at least once after the record
	// changes, from the moment Watch has returned. It is a hint: it may also
	// receive without cause. The caller calls stop when done. When ctx ends before
	// the store has taken note, Watch returns at once, and what changes until it has
	// may be missed; ctx ends nothing else.
	Watch(ctx context.Context, id ID) (changed <-chan struct{}, stop func())
}
