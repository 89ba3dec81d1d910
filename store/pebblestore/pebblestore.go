// Package pebblestore keeps records in a local directory, in Pebble, CockroachDB's
// log-structured store. It is the durable store for which you need to install nothing.
//
// What Apply and Purge acknowledged, and what Get and Due returned, survives the end of the
// process, a crash of the operating system and a power failure, if the device keeps what it
// says it has flushed. It doesn't survive the loss of the disk, and it is lost if you put an
// older copy in its place.
//
// The store notices damaged files when it reads them, and on Open if the damage would hide
// what was acknowledged. In a store that wasn't closed it can't notice two kinds of damage: a
// log that has lost its end or is gone, and, without [Options].Strict, more than one changed
// bit in the last acknowledged writes.
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
// Addresses number the records in the order in which they are created, so on the disk
// records are in the order of time. Digests are spread over all of the key space: with
// records under them, each table written out of memory would overlap all others, and merging
// tables would rewrite every record again and again, which took a third of the processor's
// time under load. As it is, merging rewrites the short entries of the index, and records
// that are purged together are stored together. The price is a second look-up for a record
// that isn't in memory.
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

// Store is a [semel.Store] in a directory. It has all of [store.Extras]. Its methods may be
// called concurrently.
type Store struct {
	db     *pebble.DB
	lock   *pebble.Lock
	fs     vfs.FS
	dir    string
	logger logger
	looked func() // see Options
	// failures receives errors of Pebble's background work, for those who wait for that.
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

	// calls is held for reading by every call, and by Close for good, once they have returned.
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
// holds something else, has a newer format, or has lost records. The error then says how to
// open what is left, in case you have no copy.
//
// Opening after a crash replays the write-ahead log: at most a few times
// Options.MemTableBytes.
func Open(dir string, opts *Options) (*Store, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is [Open], but gives up when ctx is done. Pebble then goes on in the background,
// and keeps the directory until it succeeds or the process ends.
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

func (s *Store) open(o *Options) (err error) {
	if s.dir, err = resolve(s.fs, s.dir); err != nil {
		return err
	}
	if s.readOnly {
		if _, err := s.fs.Stat(s.fs.PathJoin(s.dir, formatFile)); err != nil {
			return fmt.Errorf("there is no store: %w", err)
		}
	} else if err := errors.Join(s.enough(openRoom), prepareDirectory(s.fs, s.dir)); err != nil {
		return err
	}
	if s.lock, err = lockDirectory(s.fs, s.dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if !s.readOnly {
		s.hideDirectory()
	}
	if err := establishFormat(s.fs, s.dir); err != nil {
		return err
	}
	sealed, err := s.breakSeal(o)
	if err != nil {
		return err
	}
	var end walEnd
	if !sealed {
		if end, err = s.checkWAL(o); err != nil {
			return err
		}
	}
	if !s.readOnly {
		if err := s.raise(o); err != nil {
			return err
		}
	}
	if s.db, err = s.openPebble(o, s.readOnly); err != nil {
		return err
	}
	meta, err := readMeta(s.db)
	if err := errors.Join(err, end.check(meta), s.attributes.read(s.db, &meta)); err != nil {
		return err
	}
	note, err := readNote(s.db)
	if err != nil {
		return err
	}
	if err := s.clock.start(meta.clock, note, o.time); err != nil {
		return err
	}
	s.space.watch(s, o)
	s.absent.start(s, meta.records)
	s.processing.start(meta.end)
	s.start(o.batchBytes(), meta)
	s.attributes.build(s)
	return nil
}

// raise makes a database that isn't there yet, or raises the format of one that was written
// with an older one. Pebble does both when it opens a directory, but only after it has made
// the log of that opening, whose chunks have the older form: walScan would take them for
// damage. So nothing is written to that log.
//
// A crash in the middle leaves a database with all that it had, and perhaps an older format:
// the next Open raises it again.
func (s *Store) raise(o *Options) error {
	desc, err := pebble.Peek(s.dir, s.fs)
	if err != nil || desc.Exists && desc.FormatMajorVersion >= formatVersion {
		return err
	}
	db, err := s.openPebble(o, false)
	if err != nil {
		return err
	}
	return db.Close()
}

// kinds makes Pebble begin a new table for each kind of key of the evidence log. The log only
// grows, so its tables move to lower levels as they are, and tables of openings are deleted
// whole when these are erased. All other kinds share tables: merging the index then also
// removes purged records from the disk. See BenchmarkKinds.
func kinds(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	return policy, []byte{max(tilePrefix, start[0]+1)}, nil
}

// breakSeal compares the directory with its seal, removes the seal, and reports whether there
// was one. It looks before anything is written, because when Pebble opens a directory for
// writing it tidies up, and could remove what a repair needs.
func (s *Store) breakSeal(o *Options) (sealed bool, err error) {
	was, sealed, err := readSeal(s.fs, s.dir)
	if err != nil || !sealed {
		return false, err
	}
	digest, err := sealDigest(s.fs, s.dir)
	if err != nil {
		return true, err
	}
	if digest != was.digest {
		return true, fmt.Errorf("the directory is damaged: the files that name its tables have changed since it was closed. Put a copy of it in its place; if there is none, removing the file %s accepts the loss", sealFile)
	}
	db, err := s.openPebble(o, true)
	if err != nil {
		return true, err
	}
	meta, err := readMeta(db)
	if err := errors.Join(err, db.Close()); err != nil {
		return true, err
	}
	if meta.batches != was.batches {
		return true, fmt.Errorf("records are missing: the directory was closed after batch %d and now ends at batch %d. Put a copy of it in its place; if there is none, removing the file %s accepts the loss", was.batches, meta.batches, sealFile)
	}
	if s.readOnly {
		return true, nil
	}
	// A crash before this is durable leaves the seal, and what it says is
	// still true: nothing has been written since.
	return true, removeSeal(s.fs, s.dir)
}

// release closes what Open has opened.
func (s *Store) release() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.lock.Close())
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

// Close waits for running calls and closes the directory. What was acknowledged is durable
// already. Close writes the memory tables out, if the disk has room for that, and seals the
// directory, so that the next Open is quick, and notices if records have got lost in between.
// Closing again returns the same result.
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
