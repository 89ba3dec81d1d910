package evidence

import (
	"time"

	"github.com/semelhq/semel/store"
)

// fold works out from the entries of a log how each record must be now. The story uses it to
// judge whether the next entry can be true, and the audit whether a record is right. It takes
// about 200 bytes for each record.
type fold struct {
	lives  map[keyedDigest]life
	since  map[keyedDigest]store.Instant // the first time of each operation in the log
	latest store.Instant                 // the latest of all times so far
	// blame gets the contradictions between entries; nil: nobody wants them.
	blame func(first, last uint64, format string, args ...any)
	// forgets: once it has sweepAt records, it forgets those with an expired window.
	forgets bool
	sweepAt int
	forgot  bool // some were
}

// life is what the log has said about one record so far.
type life struct {
	entry    uint64 // the entry of the last claim, end or hold
	last     uint64 // the entry of the last change
	fence    int64
	number   uint64        // in its sequence
	until    store.Instant // when its window ends
	keep     store.Instant // when the last of its windows ends, under any number
	outcome  keyedDigest
	content  content
	payload  uint32
	what     what
	version  uint8 // version of the entry of the last change
	unended  bool  // it has messages to deliver, or is being compensated
	harmful  bool  // an earlier attempt of this call may have had an effect
	isPurged bool  // the log's last word was that it was about to be deleted
	// The audit has found a record with its name, a mark in its place, and the record from
	// before that mark.
	seen, marked, kept bool
}

const (
	// minSweep is the number of records at which it first forgets some.
	minSweep = 1 << 16
	// clockMargin is how much two nodes' readings of the store's clock may differ.
	clockMargin = time.Second
)

// add adds the next entry.
func (f *fold) add(n uint64, t *told) {
	if f.lives == nil {
		f.lives, f.since, f.sweepAt = map[keyedDigest]life{}, map[keyedDigest]store.Instant{}, minSweep
	}
	if t.what == restored {
		f.restore(t.at)
		return
	}
	if t.record == (keyedDigest{}) {
		return
	}
	f.latest = max(f.latest, t.at)
	if _, known := f.since[t.operation]; !known && t.operation != (keyedDigest{}) {
		f.since[t.operation] = t.at
	}
	was := f.lives[t.record]
	if f.blame != nil {
		f.judge(n, t, &was)
	}
	if t.what == nothing || t.what == replayed {
		return // it changed nothing
	}
	f.lives[t.record] = was.after(n, t)
	if f.forgets && len(f.lives) >= f.sweepAt {
		f.sweep()
	}
}

// restore forgets all records: they are as in the backup now. The log covers calls that begin
// later.
func (f *fold) restore(at store.Instant) {
	clear(f.lives)
	for op := range f.since {
		f.since[op] = max(f.since[op], at)
	}
}

// after returns the record after a change.
func (l life) after(n uint64, t *told) life {
	if t.what == purged {
		l.isPurged = true
		return l
	}
	if t.what == altered && l.what == nothing { // it began before the log did
		l.what, l.fence, l.outcome = t.end, t.fence, t.outcome
	}
	if t.what != altered {
		l.harmful = t.what != anew && (l.harmful || t.what == claimed && l.what.harmful())
		l.entry, l.fence, l.number, l.outcome, l.what = n, t.fence, t.number, t.outcome, t.what
	}
	if t.payload != 0 {
		l.payload = t.payload
	}
	l.last, l.until, l.content, l.version = n, t.until, t.content, uint8(t.version)
	l.keep, l.unended, l.isPurged = max(l.keep, t.until), t.unfinished, false
	return l
}

// sweep forgets the records with an expired window.
func (f *fold) sweep() {
	for ref, l := range f.lives {
		if l.what.ended() && !l.unended && f.latest.Add(clockMargin) >= l.keep {
			delete(f.lives, ref)
			f.forgot = true
		}
	}
	f.sweepAt = max(minSweep, 2*len(f.lives))
}

// known reports whether the log has a change of the record.
func (l *life) known() bool { return l.version != 0 }

// sequence reports whether the record may have been a number of a sequence. Entries of version
// 1 don't say.
func (l *life) sequence() bool { return l.number != 0 || l.version == 1 }

// gone reports whether the record may have been deleted: its attempt and its window are over,
// or it was purged. Clocks may differ, and one that ran ahead may have been put back since.
func (l *life) gone(now store.Instant) bool {
	return l.isPurged || l.what.ended() && !l.unended && now.Add(clockMargin) >= l.until
}

// expected reports whether the record has to be there, because the call may have had an effect
// or an outcome. An attempt that has just begun an effect counts, too.
func (l *life) expected() bool {
	return l.what == nothing || l.what.begun() || l.what.harmful() || l.what == refused
}

// covers reports whether the log has the whole history of an entry's record since the attempt
// began.
func (f *fold) covers(t *told) bool {
	since, known := f.since[t.operation]
	if !known || t.fence < since.Micros() {
		return false
	}
	if f.forgot && !t.unfinished && f.latest.Add(clockMargin) >= t.until {
		return false // it may be this fold that has forgotten the record
	}
	// Programs before version 2 kept a sequence's newest number under the name of the sequence,
	// and moved it to its own without logging that.
	sequence, known := f.lives[t.sequence]
	return !known || t.fence > sequence.fence
}
