package evidence

import (
	"fmt"
	"time"

	"github.com/semelhq/semel/store"
)

// story judges what a log tells of records one after the other: entries that are all as
// they were signed may still contradict each other, because a record was deleted or changed
// behind the engine. What it calls a fault can't happen otherwise, so a log is never blamed
// for what a policy allows: failed attempts that are followed by others, outcomes whose
// window is over, calls that were purged.
//
// It takes about 150 bytes for each record that may still be in the store: those whose
// window is over are forgotten.
type story struct {
	records map[keyedDigest]chapter
	sweepAt int           // with how many records those that are over are forgotten next
	latest  store.Instant // of all times so far
	faults  []Finding
	found   int
}

// chapter is what the log has said about one record so far.
type chapter struct {
	entry   uint64 // of the last claim, end or hold
	fence   int64
	until   store.Instant
	outcome keyedDigest
	what    what
}

const (
	// maxContradictions bounds how many contradictions a report lists.
	maxContradictions = 100
	// minSweep is with how many records the first are forgotten.
	minSweep = 1 << 16
	// clockMargin is how much two nodes' readings of the store's clock may differ.
	clockMargin = time.Second
)

// add takes the next entry.
func (s *story) add(n uint64, t *told) {
	switch t.what {
	case nothing:
		return
	case restored:
		clear(s.records) // records are as in the backup, and the log says no more about them
		return
	}
	s.latest = max(s.latest, t.at)
	if s.records == nil {
		s.records, s.sweepAt = map[keyedDigest]chapter{}, minSweep
	}
	was, known := s.records[t.record]
	if known {
		s.compare(n, t, &was)
	}
	switch t.what {
	case replayed:
		return // it changed nothing
	case purged:
		delete(s.records, t.record)
		return
	}
	s.records[t.record] = chapter{entry: n, fence: t.fence, until: t.until, outcome: t.outcome, what: t.what}
	if len(s.records) >= s.sweepAt {
		for ref, c := range s.records {
			if s.expired(&c) {
				delete(s.records, ref)
			}
		}
		s.sweepAt = max(minSweep, 2*len(s.records))
	}
}

// expired reports whether the record may have been forgotten by now. Clocks may be apart,
// and one that ran ahead may have been put back since.
func (s *story) expired(c *chapter) bool {
	return c.what.ended() && s.latest.Add(clockMargin) >= c.until
}

// ended reports whether an attempt has ended.
func (w what) ended() bool { return w == completed || w == failed || w == refused || w == over }

// compare looks for a contradiction between an entry and what came before it.
func (s *story) compare(n uint64, t *told, was *chapter) {
	switch t.what {
	case anew, claimed:
		s.begin(n, t, was)
	case completed, failed, refused, over:
		if t.fence == was.fence && was.what.ended() {
			s.fault(was.entry, n, "an attempt ended twice")
		}
	case held:
		if t.fence == was.fence && was.what.ended() {
			s.fault(was.entry, n, "an attempt that had ended was held")
		}
	case replayed:
		if t.fence == was.fence && was.what.ended() && t.outcome != was.outcome {
			s.fault(was.entry, n, "a delivery got another outcome than the one that the attempt ended with")
		}
	}
}

// begin judges the beginning of an attempt.
func (s *story) begin(n uint64, t *told, was *chapter) {
	inWindow := s.latest.Add(clockMargin) < was.until
	kept := was.until.Time().Format(time.RFC3339)
	switch {
	case !inWindow:
	case was.what == completed:
		s.fault(was.entry, n, "executed again, although the outcome is kept until %s, and nothing tells of a purge in between", kept)
	case was.what == held:
		s.fault(was.entry, n, "executed again while it was held, and nothing tells of a settlement in between")
	case t.what == anew && (was.what == anew || was.what == claimed):
		s.fault(was.entry, n, "executed again as if it were new, although nothing tells how the attempt before ended")
	case t.what == anew && was.what == failed:
		s.fault(was.entry, n, "executed again as if it were new, although the failure is kept until %s", kept)
	}
}

func (s *story) fault(first, last uint64, format string, args ...any) {
	if s.found++; len(s.faults) < maxContradictions {
		s.faults = append(s.faults, Finding{KindStory, first, last, fmt.Sprintf(format, args...)})
	}
}
