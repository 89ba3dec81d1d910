package evidence

import (
	"context"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// eraseExpired erases the openings that were kept for long enough.
func (l *Log) eraseExpired(ctx context.Context) error {
	now, err := l.store.Now(ctx)
	if err == nil {
		_, err = l.Erase(ctx, now.Add(-l.opts.KeepOpenings).Time())
	}
	return err
}

// Erase deletes the openings of entries from before a time, and returns how many
// entries it went through. Leaves, and what they prove, stay.
//
// Entries are in the order in which they were written. So one whose time is later is taken
// for older than it says, and goes with the others, where most of those behind it are old
// enough: its clock was ahead. A stretch of such entries that is longer than what is behind
// it waits.
//
// A log that is not signed any more is erased all the same: that its openings go after
// a time was promised to those they are about, and whoever put the log back could
// delete them anyway.
func (l *Log) Erase(ctx context.Context, before time.Time) (uint64, error) {
	for n := uint64(0); ; {
		step, err := l.eraseStep(ctx, before)
		n += step
		if err != nil || step < maxStep {
			return n, err
		}
	}
}

// EraseRecord deletes the openings of all entries about one identity, as when a person wants
// to be forgotten, and returns how many entries there are. Leaves, and what they prove, stay.
// It is [semel.Witness.EraseRecord], see [semel.Removal]. Entries of deliveries that are
// still to be written are not among them.
func (l *Log) EraseRecord(ctx context.Context, id semel.ID) (int, error) {
	// This numbers what was written, so that it is found.
	if _, err := l.store.ReadEvidence(ctx, 0, 1); err != nil {
		return 0, err
	}
	numbers, err := (&Reader{store: l.store}).Find(ctx, l.Subject(id))
	if err != nil {
		return 0, err
	}
	for _, n := range numbers {
		// A crash between two of these leaves some openings. Erasing again is harmless.
		if err := l.store.EraseEvidence(ctx, n, n+1); err != nil {
			return 0, err
		}
	}
	return len(numbers), nil
}

// eraseStep goes through up to maxStep entries.
func (l *Log) eraseStep(ctx context.Context, before time.Time) (uint64, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	h, err := l.load(ctx)
	if err != nil || h.Checkpoint == "" {
		return 0, err
	}
	n, err := (&Reader{store: l.store, head: h}).oldEntries(ctx, h.Erased, before)
	if err != nil || n == 0 {
		return 0, err
	}
	// A crash between the two writes leaves openings that are erased again.
	if err := l.store.EraseEvidence(ctx, h.Erased, h.Erased+n); err != nil {
		return 0, err
	}
	next := *h
	next.Erased += n
	if _, err := l.swap(ctx, h, &next); err != nil { // if another was faster, it is done again
		return 0, err
	}
	return n, nil
}

// eraseWindow bounds the entries behind one that tell whether its clock was ahead.
const eraseWindow = 1024

// oldEntries counts the entries from a number on, up to maxStep, that are from before a
// time.
func (r *Reader) oldEntries(ctx context.Context, from uint64, before time.Time) (n uint64, err error) {
	var old []bool // whether the entries from there on are
	for ; n < maxStep; n++ {
		for at := from + uint64(len(old)); n+eraseWindow >= uint64(len(old)) && at < r.head.at.Size; at = from + uint64(len(old)) {
			err := r.entries(ctx, at, min(at+readBatch, r.head.at.Size), func(_ uint64, en *store.Entry) error {
				a, err := ParseArtifact(en.Leaf)
				old = append(old, err == nil && a.EmittedAt.Before(before)) // what tells no time is as old as the others
				return nil
			})
			if err != nil {
				return 0, err
			}
		}
		if n == uint64(len(old)) || !old[n] && !amongOld(old[n+1:min(uint64(len(old)), n+1+eraseWindow)]) {
			break
		}
	}
	return n, nil
}

// amongOld reports whether what is behind an entry shows that it is old: more than half of
// it, up to the last one that is. A single one may itself be of a clock that was behind.
func amongOld(behind []bool) bool {
	n, last := 0, 0
	for i, is := range behind {
		if is {
			n, last = n+1, i+1
		}
	}
	return n > 1 && 2*n > last
}
