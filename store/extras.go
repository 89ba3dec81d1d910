package store

import (
	"context"
	"time"
)

// Extras has a store's abilities beyond the four verbs of [Store]. All of them are
// optional: the comment of each interface says what happens without it. Most stores
// implement them themselves; a store that wraps another passes its extras on, or hides
// them.
type Extras struct {
	Due        DueIndex
	Purge      Purger
	Watch      Watcher
	Search     Searcher
	Durability DurabilityReporter
	Writes     WriteChecker
	Archive    Archiver
	Evidence   EvidenceLog
	Hashes     EvidenceHashes
	// NoEvidence explains why Evidence is nil although other stores of this kind have it. It
	// may be nil, too.
	NoEvidence error
	// Clock reports leaps of the clock that Now follows.
	Clock Timekeeper
	// Queues reports how well concurrent callers share writes and reads.
	Queues QueueReporter
	// Local says that Get asks no server. The engine then reads before it claims, so a
	// duplicate costs no write. Without it the claim itself returns the stored record, in one
	// round trip.
	Local bool
}

// EvidenceHashes remembers [Entry].Hash of new entries for a while. Without it, entries
// are read and their leaves hashed again when the Merkle tree is extended.
type EvidenceHashes interface {
	// ReadEvidenceHashes returns the hashes of up to limit entries from a number on, as
	// far as it remembers them without a gap.
	ReadEvidenceHashes(ctx context.Context, from uint64, limit int) ([][32]byte, error)
}

// Archiver keeps purged records beside the others. Without it they are archived in
// files, or not at all.
type Archiver interface {
	// Archive is durable when it returns. An error means unknown; archiving a record
	// again is harmless.
	Archive(ctx context.Context, recs []Record) error
}

// DurabilityReporter says what the live settings of a store promise. Without it, records
// are assumed to end with the process.
type DurabilityReporter interface {
	// Durability reads the settings. It is cheap enough to call once a minute.
	Durability(ctx context.Context) (Durability, error)
}

// QueueReporter reports on the queues that gather concurrent callers' requests into batches
// (group commit). Without it nobody sees how full they are.
type QueueReporter interface {
	// Queues returns the queues of this process. It asks no server.
	Queues() []QueueState
}

// QueueState is one of the queues of a store.
type QueueState struct {
	// Name is the kind of items in the queue: "writes", "reads" or "evidence".
	Name string
	// Full is how full the queue is, from 0 to 1. At 1 further calls are refused with
	// [ErrNotApplied].
	Full float64
	// Batches counts the batches since the store was opened: [i] counts batches of more than
	// 2^(i-1) and up to 2^i items; the last also counts all larger ones. Items is their total
	// number of items.
	Batches [16]uint64
	Items   uint64
	// Silent is how long items have waited without a single one being answered: zero if nothing
	// waits. Many waiting items don't make a queue silent, as long as some get through.
	Silent time.Duration
	// Answered is when an item was last answered; zero: never.
	Answered time.Time
}

// WriteChecker tells whether a store takes writes. Without it, a store that answers counts as
// writable.
type WriteChecker interface {
	// CheckWrites fails if the store refuses every write, as a server that has become a
	// standby does, or if it can't tell. It changes nothing, and is cheap enough to call once
	// a second.
	CheckWrites(ctx context.Context) error
}

// EvidenceLog is the evidence log beside the records of a store, which writes
// Write.Evidence in the same atomic write as the record, or not at all. Without it,
// operations that demand evidence are refused.
//
// The store numbers the entries without gaps, from 0, in an order that is the same
// for all readers and never changes. It may number an entry some time after it was
// written; readers see only numbered entries. Entries of one identity are numbered in
// the order of their writes.
type EvidenceLog interface {
	// AppendEvidence adds entries that belong to no record, together, and is
	// durable when it returns. An error means unknown: they may be there.
	AppendEvidence(ctx context.Context, entries []Entry) error
	// ReadEvidence returns up to limit entries from number from on, in order. It
	// numbers everything that Apply and AppendEvidence acknowledged before it was
	// called. An erased opening is nil.
	ReadEvidence(ctx context.Context, from uint64, limit int) ([]Entry, error)
	// FindEvidence returns the numbers of up to limit entries of a subject, from
	// number from on, rising. It finds at least the entries that an earlier
	// ReadEvidence could see.
	FindEvidence(ctx context.Context, subject Subject, from uint64, limit int) ([]uint64, error)
	// EraseEvidence deletes the openings of the entries from <= number < to.
	EraseEvidence(ctx context.Context, from, to uint64) error
	// PutEvidenceTiles keeps parts of the Merkle tree over the leaves by name. A
	// tile is written again only with the same content.
	PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error
	// EvidenceTile returns a tile, or [ErrNotFound].
	EvidenceTile(ctx context.Context, name string) ([]byte, error)
}

// Searcher lists the records of a store, for people and consoles; no delivery needs it.
//
// Expired records that weren't purged yet are listed too. A record that exists
// throughout a search through all pages is listed exactly once, even if it changes
// meanwhile. One call looks at a bounded number of records, of bounded size, and for a bounded
// time: its page ends early at some 16 MiB of results, or when half of the time until the
// deadline of its context is over, and the next one continues from there.
type Searcher interface {
	// Search returns a page of the records that q selects. q.Limit is set. A cursor
	// that the store didn't make is [CodeInvalidCall].
	Search(ctx context.Context, q Query) (Page, error)
}

// DueIndex is an index on Record.NextAt, which sweeps read. Without it nothing is settled
// or purged in the background, and deliveries settle abandoned attempts when they meet
// them. Expired records stay due until they are purged, so a store with a DueIndex should
// have a [Purger] too.
type DueIndex interface {
	// Due returns a page of the records that have a NextAt not after q.Until, the earliest
	// first, to the second. A record that is due by the same NextAt while all pages are read
	// is in exactly one of them. A page ends early as one of [Searcher] does. An After that
	// the store didn't make is [CodeInvalidCall].
	//
	// A record that can't be read doesn't hide others, see DuePage.Unreadable. An error means
	// that the page couldn't be read.
	Due(ctx context.Context, q DueQuery) (DuePage, error)
}

// DueQuery asks a [DueIndex] for a page of due records.
type DueQuery struct {
	Until Instant
	// After continues after an earlier page: its Next. Until may be later than it was for that page.
	After string
	// Limit bounds the records of the page. With zero the page is empty, and the last.
	Limit int
}

// DuePage is one page of due records. It may have fewer records than asked for, or none, even
// if Next says that there may be more.
type DuePage struct {
	Records []Record
	// Next continues after this page; empty if nothing more is due.
	Next string
	// Unreadable has an error for each record in this part of the index that can't be read,
	// because it is damaged or a newer program has written it. The error names the record in
	// the store's own terms. The record stays as it is.
	Unreadable []error
}

// Purger deletes records. Without it, expired records stay, and deliveries treat them as
// absent.
type Purger interface {
	// Purge deletes each record that still has the given revision and returns how many it
	// deleted. It skips records that have changed since. An error means unknown, as for Apply;
	// purging again is harmless.
	Purge(ctx context.Context, refs []Ref) (int, error)
}

// Watcher gives notice of changes made by other engines. Without it, the engine polls
// while it waits for an outcome.
type Watcher interface {
	// Watch returns a channel that receives at least once after the record changes, from the
	// moment Watch has returned. It is a hint: it may also receive without a change. The caller
	// calls stop when done. If ctx ends before the store has registered the watch, Watch
	// returns at once, and may miss changes until the watch is registered; ctx has no other
	// effect.
	Watch(ctx context.Context, id ID) (changed <-chan struct{}, stop func())
}
