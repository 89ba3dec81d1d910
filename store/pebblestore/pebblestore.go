// Package pebblestore keeps records in a directory of this machine, in Pebble,
// CockroachDB's log-structured store. It is the durable store that needs nothing
// installed.
//
// What Apply and Purge acknowledged, and what Get and Due returned, survives the
// end of the process, a crash of the operating system and a loss of power, if
// the device keeps what it says it has flushed. It does not survive the loss of
// the disk, nor an older copy being put in its place.
//
// Damage to the files is noticed when it is read, and on Open where it would hide what
// was acknowledged. Two cases can't be noticed in a store that was not closed: a log that
// has lost its end or is gone, and, without [Options.Strict], more than one changed bit in
// the writes that were acknowledged last.
//
// One process uses a directory at a time, and a lock in the directory sees to
// that. Any number of engines within the process may share the Store.
//
// # Keys
//
//	'i' digest        -> address; finds a record by the digest of its identity
//	'r' address       -> record, as package recordcodec writes it
//	'd' time address  -> nothing; the due index, by Record.NextAt
//	'm' name          -> what the store knows about itself
//	't' name          -> a tile over the evidence log
//	'u' number        -> leaves of the evidence log, from that number on
//	'v' number place  -> part of a run of subjects, which finds entries
//	'w' number        -> openings of the leaves
//
// Addresses are numbers, given out in the order in which records are created, so
// records lie on the disk in the order of time. Under their digests, which are
// spread over all of the key space, each table written out of memory would
// overlap all others, and merging tables would rewrite every record again and
// again: that took a third of the processor's time under load. Now merging
// rewrites the short entries of the index, and records that are purged lie
// together. The price is a second look-up for a record that is not in memory.
//
// A record, its entries in both indexes and its evidence change in one batch.
package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// Store is a [semel.Store] in a directory. It implements every optional
// interface of package semel. Its methods may be called concurrently.
type Store struct {
	db     *pebble.DB
	lock   *pebble.Lock
	fs     vfs.FS
	dir    string
	log    logger
	looked func() // see Options
	// failures receives errors of Pebble's background work, as long as somebody waits
	// for that.
	failures chan error
	clock    clock
	stripes  []stripe
	commits  committer
	due      dueMark
	absent   absence
	space    space
	readOnly bool
	ops      sync.Pool // of *op

	evidence     evidence
	subjectIndex subjectIndex
	hashes       leafHashes

	calls  atomic.Int64 // running calls
	closed atomic.Bool
	idle   chan struct{} // receives when the last running call of a closed store has ended
	ended  chan struct{} // closed when Close is done
	result error         // of Close
}

var (
	_ semel.Store       = (*Store)(nil)
	_ semel.DueStore    = (*Store)(nil)
	_ semel.PurgeStore  = (*Store)(nil)
	_ semel.WatchStore  = (*Store)(nil)
	_ semel.SearchStore = (*Store)(nil)

	_ semel.EvidenceStore = (*Store)(nil)
)

// ErrReadOnly is what a write fails with on a store that was opened to look at it.
// Nothing was written.
var ErrReadOnly = fmt.Errorf("pebblestore: opened to look at, not to write: %w", semel.ErrNotApplied)

var errClosed = errors.New("pebblestore: closed")

// Open opens the store in dir, and makes it if the directory is empty or does
// not exist. Options may be nil. It refuses a directory that another Store has
// open, that holds something else, that was written in a newer format, or that
// has lost records. The error says how to open what is left, if there is no copy.
//
// Opening after a crash replays the write-ahead log: at most a few times
// Options.MemTableBytes.
func Open(dir string, opts *Options) (*Store, error) {
	return OpenContext(context.Background(), dir, opts)
}

// OpenContext is [Open] until ctx is done. What Pebble is doing then ends with the
// process, and keeps the directory until it does.
func OpenContext(ctx context.Context, dir string, opts *Options) (*Store, error) {
	o := opts.withDefaults()
	o.ctx = ctx
	s := &Store{
		fs: o.FS, dir: dir, readOnly: o.ReadOnly,
		log:    logger{slog: o.Logger, end: o.fatal},
		looked: o.looked,

		failures: make(chan error, maxFailures),
		stripes:  make([]stripe, stripeCount),
		idle:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
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
	if err := establishFormat(s.fs, s.dir, s.readOnly); err != nil {
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
		if err := s.create(o); err != nil {
			return err
		}
	}
	if s.db, err = s.openPebble(o, s.readOnly); err != nil {
		return err
	}
	meta, err := readMeta(s.db)
	if err := errors.Join(err, end.check(meta)); err != nil {
		return err
	}
	s.clock = clock{source: o.time, stepped: func(by time.Duration) {
		s.log.trouble("the wall clock was ahead of the store's clock, which now follows it", "by", by)
	}}
	s.clock.start(meta.clock)
	s.evidence.durable.Store(meta.entries)
	if err := s.subjectIndex.start(s, meta.entries); err != nil {
		return err
	}
	s.space.watch(s, o)
	s.commits.run(s, o.groupBytes(), meta)
	s.absent.stop = make(chan struct{})
	s.absent.rebuild(s)
	return nil
}

// create makes a new database, if there is none. Pebble raises its format only
// after it has made the first log, which therefore does not say up to where it
// was synced; logs that are made from the next opening on do.
func (s *Store) create(o *Options) error {
	names, err := sealedFiles(s.fs, s.dir)
	if err != nil || len(names) > 0 {
		return err
	}
	// A crash from here on leaves a database without records, which is opened
	// like any other.
	db, err := s.openPebble(o, false)
	if err != nil {
		return err
	}
	return db.Close()
}

// kinds ends tables of Pebble where the kinds of keys of the evidence log begin. The log
// only grows, so tables that have nothing else are moved to a lower level as they are,
// and tables of openings are deleted whole when these are erased. All other kinds share
// tables: merging the index then also takes records that were purged off the disk.
func kinds(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	return policy, []byte{max(tilePrefix, start[0]+1)}, nil
}

// breakSeal compares the directory with its seal, and removes the seal. It reports
// whether there was one. It looks before anything is written: Pebble tidies up when it opens
// for writing, and could remove what a repair needs.
func (s *Store) breakSeal(o *Options) (sealed bool, err error) {
	was, sealed, err := readSeal(s.fs, s.dir)
	if err != nil || !sealed {
		return false, err
	}
	var is seal
	if err := is.look(s.fs, s.dir); err != nil {
		return true, err
	}
	if is.digest != was.digest {
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

// release closes what Open opened.
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
	s.calls.Add(1)
	if s.closed.Load() {
		s.leave()
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

func (s *Store) leave() {
	if s.calls.Add(-1) == 0 && s.closed.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// Now is [semel.Store.Now]. At Open it is the wall clock, or the latest time that the
// directory knows of if the wall clock is behind that. From then on it moves by the
// monotonic clock, and follows the wall clock where that is more than two seconds
// ahead, as after the machine was suspended. While it is more than two seconds ahead
// of the wall clock itself, it runs at half speed.
func (s *Store) Now(ctx context.Context) (semel.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	return s.clock.now(), nil
}

// Close waits for running calls and closes the directory. Everything that was
// acknowledged is durable before; Close writes the rest of the memory tables out, where
// the disk has room for that, and seals the directory, so that the next Open is quick and would notice if
// records had got lost in between. Closing again returns the same result.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		<-s.ended
		return s.result
	}
	for s.calls.Load() > 0 {
		<-s.idle
	}
	s.result = s.shut()
	close(s.ended)
	return s.result
}

func (s *Store) shut() error {
	// A crash during these steps leaves a directory without a seal, like any
	// other crash: the next Open replays the log.
	s.absent.close()
	s.subjectIndex.close()
	if s.readOnly {
		return errors.Join(s.db.Close(), s.lock.Close())
	}
	batches := s.commits.stop()
	err := errors.Join(s.flush(), s.db.Close())
	if err == nil {
		err = writeSeal(s.fs, s.dir, batches)
	}
	if err := errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("close the store in %s: %w", s.dir, err)
	}
	return nil
}

// Settle waits until Pebble has nothing to merge, or ctx is done. Many writes
// leave merging behind that goes on for a while in the background and slows
// other calls; a measurement may want to wait for its end.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 5; {
		m := s.db.Metrics()
		if quiet++; m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 {
			quiet = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
