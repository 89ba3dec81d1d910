package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

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
	if err := s.openLocked(o); err != nil {
		return errors.Join(err, s.release())
	}
	return nil
}

// openLocked opens a directory that nobody else can open meanwhile.
func (s *Store) openLocked(o *Options) error {
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

// raise creates a missing database, or raises the format of one that was written in an older
// one. Pebble does both when it opens a directory, but only after it has created the log of
// that opening. The chunks of that log have the older form: walScan would take them for damage.
// So nothing is written to that log.
//
// A crash in the middle leaves a database with all its data, and perhaps an older format: the
// next Open raises it again.
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
// whole when these are erased. All other kinds share tables, so that merging the index also
// removes purged records from the disk. See BenchmarkKinds.
func kinds(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	return policy, []byte{max(tilePrefix, start[0]+1)}, nil
}

// breakSeal compares the directory with its seal, removes the seal, and reports whether there
// was one. It does so before anything is written, because Pebble tidies up when it opens a
// directory for writing, and could remove what a repair needs.
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
	// A crash before this is durable leaves the seal, which is still true: nothing has been
	// written since.
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

// maxFailures is how often background work may fail before Open and Close give up on it.
const maxFailures = 3

func (s *Store) openPebble(o *Options, readOnly bool) (*pebble.DB, error) {
	po := o.pebble(&s.logger)
	po.Experimental.SpanPolicyFunc = kinds
	po.Lock, po.ReadOnly = s.lock, readOnly
	report := po.EventListener.BackgroundError
	po.EventListener.BackgroundError = func(err error) {
		report(err)
		select {
		case s.failures <- err:
		default: // enough are waiting
		}
	}
	return s.openOrGiveUp(o.ctx, func() (*pebble.DB, error) { return pebble.Open(s.dir, po) })
}

// flush writes the memory tables out. If that fails, all their data is still in the log.
func (s *Store) flush() error {
	for len(s.failures) > 0 {
		<-s.failures
	}
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		select {
		case <-flushed:
			return nil
		case err := <-s.failures:
			if permanent(n, err) {
				s.logger.Error("the memory tables stay in the log when the store is closed", "error", err)
				return nil
			}
		}
	}
}

// permanent reports whether background work that has failed n times won't succeed.
func permanent(n int, err error) bool { return n == maxFailures || errors.Is(err, syscall.ENOSPC) }

// openOrGiveUp waits until a database is open, its background work has failed repeatedly, or
// ctx is done. Pebble writes the contents of the log to tables and, if it can't, keeps trying
// forever. It can't be stopped, so it keeps the directory until it succeeds or the process
// ends.
func (s *Store) openOrGiveUp(ctx context.Context, open func() (*pebble.DB, error)) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened, gaveUp := make(chan result), make(chan struct{})
	go func() {
		db, err := open()
		select {
		case opened <- result{db, err}:
		case <-gaveUp:
			if err == nil {
				_ = db.Close()
			}
		}
	}()
	for n := 1; ; n++ {
		select {
		case r := <-opened:
			return r.db, r.err
		case <-ctx.Done():
			close(gaveUp)
			return nil, context.Cause(ctx)
		case failure := <-s.failures:
			if permanent(n, failure) {
				close(gaveUp)
				return nil, fmt.Errorf("what the log has can't be written to tables: %w", failure)
			}
		}
	}
}
