package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store that was not closed ends where its log does, and Pebble takes the first place
// that it can't read for that end, unless a later block of the log says that it was synced
// beyond. So this looks behind that place before Pebble does, and holds the numbers of the
// batches in the logs against each other and against what the tables have. ADR 15 has the
// reasons.

// walEnd is what the logs of a directory promise: the number of its last batch, or 0
// where that isn't known.
type walEnd uint64

// checkWAL refuses a directory, which was not closed, that has lost batches which were
// acknowledged.
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

// judge decides whether the logs have all that was acknowledged after the batch that
// tables end with.
func (s *Store) judge(logs []*walScan, flushed uint64, strict bool) (end walEnd, err error) {
	last := flushed
	unmarked := false
	for i, log := range logs {
		later := logs[i+1:]
		unmarked = unmarked || log.unmarked
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
		case len(later) > 0, !log.doubtful && !log.behind:
			// Pebble refuses a log before the last that was not closed.
		case strict:
			return 0, s.damaged(log, later, "a loss of power may have cut off a write there before it was acknowledged, or it was acknowledged and is damaged, and the strict profile takes no risk")
		default:
			s.log.trouble("the log ends in a write that is not whole, which is taken for one that was never acknowledged", "file", log.name, "byte", log.end)
		}
	}
	if unmarked {
		return 0, nil
	}
	return walEnd(last), nil
}

// check holds what the database has when it is open against what its logs had.
func (end walEnd) check(m meta) error {
	if end != 0 && m.batches != uint64(end) {
		return fmt.Errorf("records are missing: the log ended with batch %d, and the database ends with batch %d. Put a copy of the directory in its place", end, m.batches)
	}
	return nil
}

// flushed reports whether a log is not needed, because all of it is in tables. What is in
// the tables of a log is all of it.
func (log *walScan) flushed(last uint64) bool {
	n := log.last
	if n == 0 {
		n = log.next
	}
	return n != 0 && n <= last
}

// scanLogs reads the logs, in their order, from the one on that begins in what the tables
// have or right after it.
func (s *Store) scanLogs(flushed uint64) (logs []*walScan, err error) {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, ok := walFileNumber(name)
		return !ok
	})
	slices.SortFunc(names, func(a, b string) int {
		m, _ := walFileNumber(a)
		n, _ := walFileNumber(b)
		return cmp.Compare(m, n)
	})
	from := 0
	for i, name := range slices.Backward(names) {
		log, err := beginWAL(s.fs, s.dir, name)
		if err != nil {
			return nil, err
		}
		if log.unmarked || log.first != 0 && log.first <= flushed+1 {
			from = i
			break
		}
	}
	last := flushed
	for _, name := range names[from:] {
		log, err := scanWAL(s.fs, s.dir, name, last)
		if err != nil {
			return nil, err
		}
		logs = append(logs, log)
		last = max(last, log.last)
	}
	return logs, nil
}

// flushed is the number of the last batch that is in tables: logs up to there are not
// needed.
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

// withoutLogs is a file system that hides the logs.
type withoutLogs struct{ vfs.FS }

func (fs withoutLogs) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, walSuffix) }), err
}

// damaged is the error about a log that can't be read on from its end.
func (s *Store) damaged(log *walScan, later []*walScan, why string) error {
	accept := fmt.Sprintf("truncate -s %d %s", log.end, s.fs.PathJoin(s.dir, log.name))
	if len(later) > 0 {
		accept += ", and removing " + logNames(later)
	}
	return fmt.Errorf("the log can't be read on from byte %d of %s: %s. %s %s", log.end, log.name, why, putACopy, accept)
}

// missing is the error about logs that don't begin where what is before them ends.
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
