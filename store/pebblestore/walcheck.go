package pebblestore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// A store that wasn't closed ends where its log does. Pebble takes the first place that it
// can't read for the end, unless a later block of the log says that it was synced further. So
// before Pebble opens the directory, this file looks beyond that place, and compares the
// numbers of the batches in the logs with each other and with those in the tables. ADR 15 has
// the reasons.

// walEnd is the number of the last batch in a directory's logs, or 0 if unknown.
type walEnd uint64

// checkWAL fails if a directory that wasn't closed has lost acknowledged batches.
func (s *Store) checkWAL(o *Options) (end walEnd, err error) {
	desc, err := pebble.Peek(s.dir, s.fs)
	if err != nil || !desc.Exists {
		return 0, err
	}
	flushed, err := s.flushed(o)
	if err != nil {
		return 0, err
	}
	logs, err := s.scanLogs(flushed)
	if err != nil {
		return 0, err
	}
	if end, err = s.judge(logs, flushed, o.Strict); err != nil {
		return 0, err
	}
	if s.readOnly {
		return end, nil
	}
	var size uint64
	for _, log := range logs {
		size += uint64(log.size)
	}
	return end, s.enough(size + openRoom)
}

// judge fails if the logs lack something that was acknowledged after the last batch in the
// tables.
func (s *Store) judge(logs []*walScan, flushed uint64, strict bool) (end walEnd, err error) {
	last := flushed
	for i, log := range logs {
		later := logs[i+1:]
		if log.first > last+1 {
			return 0, s.missing(last, log.first, logs[i:])
		}
		last = max(last, log.last)
		if log.flushed(flushed) {
			continue
		}
		lost := last + 1
		switch {
		case log.gap:
			return 0, s.missing(log.first, log.last, logs[i:])
		case log.damaged:
			return 0, s.damaged(log, later, "what is there was written and is damaged")
		case log.behind && log.durable >= lost:
			return 0, s.damaged(log, later, fmt.Sprintf("batches up to number %d were durable, and batch %d can't be read", log.durable, lost))
		case len(later) > 0, !log.ambiguous && !log.behind:
			// Pebble refuses an earlier log that wasn't closed.
		case strict:
			return 0, s.damaged(log, later, "a loss of power may have cut off a write there before it was acknowledged, or it was acknowledged and is damaged, and the strict profile takes no risk")
		default:
			s.logger.Error("the log ends in a write that is not whole, which is taken for one that was never acknowledged", "file", log.name, "byte", log.end)
		}
	}
	return walEnd(last), nil
}

// check compares the open database with its logs.
func (end walEnd) check(m meta) error {
	if end != 0 && m.batches != uint64(end) {
		return fmt.Errorf("records are missing: the log ended with batch %d, and the database ends with batch %d. Put a copy of the directory in its place", end, m.batches)
	}
	return nil
}

// flushed reports whether a log isn't needed, because it was written out to tables. That
// happens to a whole log at once.
func (log *walScan) flushed(last uint64) bool {
	n := log.last
	if n == 0 {
		n = log.next
	}
	return n != 0 && n <= last
}

// scanLogs reads the logs in order. It returns the last one that begins within the tables or
// right after them, and all later ones.
func (s *Store) scanLogs(flushed uint64) (logs []*walScan, err error) {
	files, err := wal.Scan(wal.Dir{FS: s.fs, Dirname: s.dir})
	if err != nil {
		return nil, err
	}
	from, last := 0, flushed
	for i, file := range files {
		_, path := file.SegmentLocation(0)
		log, err := scanWAL(s.fs, s.dir, s.fs.PathBase(path), last)
		if err != nil {
			return nil, err
		}
		if (log.gap || log.first != 0) && log.first <= flushed+1 {
			from = i
		}
		logs, last = append(logs, log), max(last, log.last)
	}
	return logs[from:], nil
}

// flushed returns the number of the last batch in the tables. Logs that end there or before
// aren't needed.
func (s *Store) flushed(o *Options) (uint64, error) {
	hidden := *o
	hidden.FS = withoutLogs{o.FS}
	db, err := s.openPebble(&hidden, true)
	if err != nil {
		return 0, err
	}
	m, err := readMeta(db)
	return m.batches, errors.Join(err, db.Close())
}

const walSuffix = ".log"

// withoutLogs is a file system that hides the logs.
type withoutLogs struct{ vfs.FS }

func (fs withoutLogs) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, walSuffix) }), err
}

// damaged returns the error for a log that is damaged where it seems to end.
func (s *Store) damaged(log *walScan, later []*walScan, why string) error {
	accept := fmt.Sprintf("truncate -s %d %s", log.end, s.fs.PathJoin(s.dir, log.name))
	if len(later) > 0 {
		accept += ", and removing " + logNames(later)
	}
	return fmt.Errorf("the log can't be read on from byte %d of %s: %s. %s %s", log.end, log.name, why, putACopy, accept)
}

// missing returns the error for a gap before or within the logs.
func (s *Store) missing(last, next uint64, logs []*walScan) error {
	return fmt.Errorf("records are missing between batch %d and batch %d: a file of the directory is damaged or gone. %s removing %s", last, next, putACopy, logNames(logs))
}

const putACopy = "Put a copy of the directory in its place. If there is none, you accept the loss of everything that was written after that by"

func logNames(logs []*walScan) string {
	var names []string
	for _, log := range logs {
		names = append(names, log.name)
	}
	return strings.Join(names, " and ")
}
