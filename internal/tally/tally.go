// Package tally counts the answers to each call's deliveries, over all nodes of a store and
// across restarts, and keeps the ids of the last ones, so that people find the call. It writes
// both in the background, so no delivery waits, and they are a few seconds late.
package tally

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// maxFresh bounds the records with unwritten counts, some 200 bytes each, and some 500 with ids
// of deliveries. Beyond it, deliveries of other records aren't counted.
const maxFresh = 100_000

// Counts says how often deliveries of a call got each decision.
type Counts map[semel.Decision]int

// Tally keeps the counts of a store's records in cells beside them, for as long as the records.
// Any number of Tallies, in any number of processes, add to the same counts. It may be used
// concurrently.
//
// A count may be too low: a crash or a failing store loses some, and some are still on their
// way to the store. It is never too high.
type Tally struct {
	// Uncounted reports whether a record has no counts, for example because it costs its caller
	// no quota. Set it before you use the tally. Nil: all records have counts.
	Uncounted func(*semel.Record) bool
	// Queue has the unwritten counts, by record.
	*behind.Queue[semel.ID, note]

	store semel.Store
}

// New returns a Tally for the records of a store.
func New(st semel.Store) *Tally {
	t := &Tally{store: st}
	t.Queue = behind.New(maxFresh, t.keep)
	return t
}

// Count notes a delivery's decision. It doesn't count executions: the record has the number of
// its attempts.
func (t *Tally) Count(id semel.ID, d semel.Decision) {
	if d == semel.Execute {
		return
	}
	t.Note(id, func(n *note, _ int) (grown int) {
		grown = n.begin()
		n.counts[d]++
		return grown
	})
}

// note is the unwritten part for a record.
type note struct {
	counts   Counts
	requests marks // of its newest deliveries
}

// begin makes an empty note, and returns how much it has grown.
func (n *note) begin() (grown int) {
	if n.counts == nil {
		n.counts, grown = Counts{}, 1
	}
	return grown
}

// Of counts the answers to a record's call since the record exists. It can't read the counts of
// a newer program: then the error wraps [form.ErrNewer].
func (t *Tally) Of(ctx context.Context, rec *semel.Record) (Counts, error) {
	all := Counts{}
	if rec.Attempt > 0 {
		all[semel.Execute] = rec.Attempt
	}
	// Read the cell first: a count that is written in between is then missing, instead of
	// counted twice.
	cell, err := store.NewCell(t.store, store.CountsOf(rec.ID)).Load(ctx)
	if err != nil {
		return nil, err
	}
	was, err := parse(cell.Data, rec)
	all.add(was.Counts)
	t.Look(rec.ID, func(n *note) { all.add(n.counts) })
	return all, err
}

func (c Counts) add(more Counts) {
	for d, n := range more {
		c[d] += n
	}
}

// kept is the content of a cell: the counts, and which record of the identity they belong to.
type kept struct {
	Since  store.Instant `json:"since"` // the record's CreatedAt
	Counts Counts        `json:"counts"`
}

// parse reads a cell. A damaged cell, or one of an earlier record of the identity, counts as
// empty. The error is [form.ErrNewer].
func parse(data []byte, rec *semel.Record) (kept, error) {
	var k kept
	err := form.Read(data, 1, &k)
	if err != nil || k.Since != rec.CreatedAt || k.Counts == nil {
		k = kept{Since: rec.CreatedAt, Counts: Counts{}}
	}
	if !errors.Is(err, form.ErrNewer) {
		return k, nil
	}
	return k, fmt.Errorf("the counts of the call: %w", err)
}

// keep adds to the counts of a record, and to the ids of its deliveries. If a newer program
// writes its cell, they are lost.
func (t *Tally) keep(ctx context.Context, id semel.ID, more *note) error {
	return behind.Beside(ctx, t.store, id, store.CountsOf(id), func(rec *semel.Record, old store.CellValue) (value store.CellValue, err error) {
		if t.Uncounted != nil && t.Uncounted(rec) {
			return value, behind.ErrNothing
		}
		next, err := parse(old.Data, rec)
		if err != nil {
			return value, err
		}
		marks, added := marksOf(old.Attributes).plus(more.requests, rec)
		if !added && len(more.counts) == 0 {
			return value, behind.ErrNothing
		}
		next.Counts.add(more.counts)
		value.Attributes = marks.attributes(id)
		value.Data, err = json.Marshal(next)
		return value, err
	})
}
