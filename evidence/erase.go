package evidence

import (
	"context"
	"errors"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// eraseExpired erases the openings that are older than Options.KeepOpenings.
func (l *Log) eraseExpired(ctx context.Context) error {
	now, err := l.store.Now(ctx)
	if err == nil {
		_, err = l.Erase(ctx, now.Add(-l.opts.KeepOpenings).Time())
	}
	return err
}

// Erase deletes the openings of entries from before a time, and returns how many entries it
// went through. Leaves and proofs stay.
//
// It follows the numbers of the entries, which are in the order of their writes, and stops at
// the first entry from that time or later. A time in the future only means that the clock was
// ahead: such an entry goes with the next old one after it. A clock that was ahead by less
// delays erasure by as much.
//
// A log that nobody signs any more is erased, too: the people in its openings were promised
// that, and somebody who put the log back could delete openings anyway.
func (l *Log) Erase(ctx context.Context, before time.Time) (all uint64, err error) {
	for {
		n, err := l.eraseStep(ctx, before)
		if all += n; err != nil || n == 0 {
			return all, err
		}
	}
}

// EraseRecord deletes the openings of all entries about one identity, for example because a
// person asks to be forgotten, and returns how many entries there are. Leaves and proofs stay.
// It implements [semel.Witness.EraseRecord], see [semel.Removal]. It can't reach entries that
// the log hasn't written yet.
func (l *Log) EraseRecord(ctx context.Context, id semel.ID) (int, error) {
	// This numbers new entries, so that Find sees them.
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

// eraseStep erases about maxStep entries, or none if none is old.
func (l *Log) eraseStep(ctx context.Context, before time.Time) (uint64, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	h, err := l.load(ctx)
	if err != nil || h.Checkpoint == "" {
		return 0, err
	}
	now, err := l.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	n, err := (&Reader{store: l.store, head: h}).oldEntries(ctx, h.Erased, before, now.Time())
	if err != nil || n == 0 {
		return 0, err
	}
	// A crash between the two writes leaves openings that the next step erases again.
	if err := l.store.EraseEvidence(ctx, h.Erased, h.Erased+n); err != nil {
		return 0, err
	}
	next := *h
	next.Erased += n
	if _, err := l.swap(ctx, h, &next); err != nil { // if another node was faster, the loop starts over
		return 0, err
	}
	return n, nil
}

var errYoung = errors.New("the entry is not old enough")

// oldEntries counts the entries from a number to the last old one before the first that isn't
// old, or to about maxStep.
func (r *Reader) oldEntries(ctx context.Context, from uint64, before, now time.Time) (old uint64, err error) {
	err = r.entries(ctx, from, r.head.at.Size, func(n uint64, en *store.Entry) error {
		a, err := ParseArtifact(en.Leaf) // if it has no time, it also goes with the next
		switch at := a.EmittedAt; {
		case old >= maxStep, err == nil && !at.Before(before) && !at.After(now):
			return errYoung
		case err == nil && at.Before(before):
			old = n + 1 - from
		}
		return nil
	})
	if errors.Is(err, errYoung) {
		err = nil
	}
	return old, err
}
