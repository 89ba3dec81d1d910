package evidence

import (
	"fmt"
	"time"
)

// story judges the history of each record: entries with good signatures contradict each other
// if somebody deleted, changed or added a record behind the engine's back. It reports only what
// can't happen otherwise, so it never blames a log for anything that a policy allows, such as
// another attempt after a failure, after the window or after a purge. Once there are many
// records, it forgets those with an expired window.
type story struct {
	fold
	faults []Finding
	found  int
}

// maxContradictions bounds how many contradictions a report lists.
const maxContradictions = 100

// add adds the next entry.
func (s *story) add(n uint64, t *told) {
	s.forgets, s.blame = true, s.fault
	s.fold.add(n, t)
}

func (s *story) fault(first, last uint64, format string, args ...any) {
	if s.found++; len(s.faults) < maxContradictions {
		s.faults = append(s.faults, Finding{KindStory, first, last, fmt.Sprintf(format, args...)})
	}
}

// judge looks for a contradiction between an entry and the earlier state of its record.
func (f *fold) judge(n uint64, t *told, was *life) {
	switch t.what {
	case anew, claimed:
		f.begin(n, t, was)
	case completed, failed, refused, aborted, abandoned:
		switch {
		case t.taken && was.what == held:
			f.begin(n, t, was)
		case t.fence == was.fence && was.what.ended():
			f.blame(was.entry, n, "an attempt ended twice")
		}
	case held:
		if t.fence == was.fence && was.what.ended() {
			f.blame(was.entry, n, "an attempt that had ended was held")
		}
	case replayed:
		f.replay(n, t, was)
	}
}

// begin judges the beginning of an attempt.
func (f *fold) begin(n uint64, t *told, was *life) {
	if was.gone(f.latest) || nextNumber(t, was) {
		return
	}
	kept := was.until.Time().Format(time.RFC3339)
	switch {
	case was.what == completed:
		f.blame(was.entry, n, "executed again, although the outcome is kept until %s, and nothing tells of a purge in between", kept)
	case was.what == held:
		f.blame(was.entry, n, "executed again while it was held, and nothing tells of a settlement in between")
	case t.what == anew && was.what.begun():
		f.blame(was.entry, n, "executed again as if it were new, although nothing tells how the attempt before ended")
	case t.what == anew && was.what == failed:
		f.blame(was.entry, n, "executed again as if it were new, although the failure is kept until %s", kept)
	case t.what == anew && (was.what == abandoned || was.harmful) && t.version > 1:
		f.blame(was.entry, n, "executed again as if it were new, although an attempt before may have had an effect, and is kept until %s", kept)
	}
}

// nextNumber reports whether an attempt belongs to a later number, when a sequence had one
// record for all its numbers. Entries of version 1 don't have numbers. There, another payload
// under the same key that isn't refused was a later number.
func nextNumber(t *told, was *life) bool {
	if t.number != 0 {
		return t.number > was.number
	}
	return t.what == anew && t.version == 1 && was.version == 1 && t.payload != was.payload
}

// replay judges an outcome that a delivery got. The delivery may have got it before the newest
// entry's event, because such entries are written a little later.
func (f *fold) replay(n uint64, t *told, was *life) {
	switch known := was.what != nothing; {
	case known && t.fence < was.fence:
	case known && t.fence == was.fence && was.what.begun():
		f.blame(was.entry, n, "a delivery got an outcome of the attempt, and nothing tells how it ended")
	case known && t.fence == was.fence:
		if t.outcome != was.outcome && t.outcome != (keyedDigest{}) { // it had one
			f.blame(was.entry, n, "a delivery got another outcome than the one that the attempt ended with")
		}
	case f.covers(t):
		f.blame(n, n, "a delivery got an outcome, and nothing tells of the attempt that it is of")
	}
}
