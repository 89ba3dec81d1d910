// Package pebblestore keeps records in a local directory, in Pebble, CockroachDB's
// log-structured store. It is the durable store that needs no installation.
//
// Writes that Apply and Purge have acknowledged, and records that Get and Due have returned,
// survive the end of the process, a crash of the operating system and a power failure, if the
// device keeps its promise about flushed data. They don't survive the loss of the disk, or its
// replacement by an older copy.
//
// The store notices damaged files when it reads them, and on Open if the damage would hide
// acknowledged writes. In a store that wasn't closed it can't notice two kinds of damage: a log
// that has lost its end or is gone, and, without [Options].Strict, more than one changed bit in
// the last acknowledged writes.
//
// Only one process at a time can open a directory, which has a lock. Any number of engines
// within the process may share the Store.
//
// # Keys
//
//	'i' digest        -> address; finds a record by the digest of its identity
//	'r' address       -> record, as package codec writes it
//	'd' time address  -> nothing; the due index, by Record.NextAt
//	'a' term address  -> nothing; the index of attributes, see package terms
//	'm' name          -> the store's counts and clock, and what the clock has noted
//	't' name          -> a tile over the evidence log
//	'u' number        -> subject and leaf of an entry of the evidence log
//	'v' subject number -> nothing; finds entries by their subjects
//	'w' number        -> the opening of a leaf
//
// Addresses number the records in the order in which they are created, so on the disk records
// are in the order of time. Digests are spread over all of the key space: with records under
// them, each table written out of memory would overlap all others, and merging tables would
// rewrite every record again and again, which took a third of the processor's time under load.
// As it is, merging rewrites the short entries of the index, and records that are purged
// together are stored together. The price is a second look-up for a record that isn't in
// memory.
//
// A record, its entries in the indexes and its evidence change in one batch.
package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Store is a [semel.Store] in a directory. It has all of [store.Extras]. You may call its
// methods concurrently.
type Store struct {
	db     *pebble.DB
	lock   *pebble.Lock
	fs     vfs.FS
	dir    string
	logger logger
	looked func() // see Options
	// failures receives the errors of Pebble's background work, for Open and Close, which wait
	// for that work.
	failures chan error
	clock    clock
	stripes  []stripe
	commits  committer
	due      dueMark
	absent   absence
	space    space
	readOnly bool

	processing processing
	attributes attributes

	hashes leafHashes

	// calls is held for reading by every call, and by Close for good once those have returned.
	calls  sync.RWMutex
	closed atomic.Bool
	once   sync.Once
	result error // of Close
}

var _ semel.Store = (*Store)(nil)

// ErrReadOnly is the error of a write to a store that was opened with [Options.ReadOnly].
// Nothing was written.
var ErrReadOnly = fmt.Errorf("pebblestore: opened to look at, not to write: %w", store.ErrNotApplied)

var errClosed = errors.New("pebblestore: closed")

// Open opens the store in dir, and creates it if the directory is empty or doesn't exist.
// Options may be nil. Open fails if another Store has the directory open, or if the directory
// holds something else, has a newer format, or has lost records. The error says how to open
// what is left, in case you have no copy.
//
// Opening after a crash replays the write-ahead log: at most a few times Options.MemTableBytes.
func Open(dir string, opts *Options) (*Store, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is [Open], but gives up when ctx is done. Pebble then continues in the
// background, and keeps the directory until it succeeds or the process ends.
func OpenContext(ctx context.Context, dir string, opts *Options) (*Store, error) {
	o := opts.withDefaults()
	o.ctx = ctx
	s := &Store{
		fs: o.FS, dir: dir, readOnly: o.ReadOnly,
		logger: logger{o.Logger, o.fatal},
		looked: o.looked,

		failures: make(chan error, maxFailures),
		stripes:  make([]stripe, stripeCount),
	}
	if err := s.open(&o); err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	return s, nil
}

// enter registers a call. Each successful enter is followed by leave.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.calls.TryRLock() {
		return errClosed
	}
	return nil
}

// enterToWrite is enter for a call that changes something.
func (s *Store) enterToWrite(ctx context.Context) error {
	if s.readOnly {
		return ErrReadOnly
	}
	return s.enter(ctx)
}

func (s *Store) leave() { s.calls.RUnlock() }

// Close waits for running calls and closes the directory. Acknowledged writes are durable
// already. Close writes the memory tables out, if the disk has room, and seals the directory,
// so that the next Open is quick and notices if records were lost in between. Closing again
// returns the same result.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.once.Do(func() {
		s.attributes.close()
		s.calls.Lock()
		s.result = s.shut()
	})
	return s.result
}

func (s *Store) shut() error {
	// A crash during these steps leaves a directory without a seal, like any
	// other crash: the next Open replays the log.
	s.absent.close()
	if s.readOnly {
		return errors.Join(s.db.Close(), s.lock.Close())
	}
	batches := s.stop()
	err := errors.Join(s.flush(), s.db.Close())
	if err == nil {
		err = writeSeal(s.fs, s.dir, batches)
	}
	if err := errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("close the store in %s: %w", s.dir, err)
	}
	return nil
}
