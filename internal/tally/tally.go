// Package tally counts what the deliveries of each call got, over all nodes of a store and
// across restarts. Counts are gathered in memory and written behind, so no delivery waits for
// them, and they are some seconds late.
package tally

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/store"
)

// Pause is how long counts are gathered before they are written. A process that is killed
// loses those of its last pause.
const Pause = 5 * time.Second

// maxFresh bounds the records with counts that aren't written yet, some 200 bytes each.
// While there are so many, what deliveries of others get isn't counted.
const maxFresh = 100_000

// stopTime bounds writing when the process stops.
const stopTime = 5 * time.Second

// Counts are how often deliveries of a call got each decision.
type Counts map[semel.Decision]int

// Tally keeps the counts of a store's records in cells beside them. Any number of Tallies,
// in any number of processes, add to the same counts. It is safe for concurrent use.
//
// A count may be too low, by what a crash or a failing store has lost and, for a moment, by
// what is being written. It is never too high.
type Tally struct {
	// Uncounted says of which records no counts are kept, such as those that cost their
	// caller no quota. Set it before the tally is used. Nil: of none.
	Uncounted func(*semel.Record) bool

	store semel.Store

	mu    sync.Mutex
	fresh map[semel.ID]Counts // not written yet
	// writing is what will be written next. A count is never both in a map and in its cell:
	// while its cell is written it is in neither.
	writing map[semel.ID]Counts
}

// New counts for the records of a store.
func New(st semel.Store) *Tally { return &Tally{store: st, fresh: map[semel.ID]Counts{}} }

// Count takes note of what a delivery got. Executions aren't counted: the record has the
// number of its attempts.
func (t *Tally) Count(id semel.ID, d semel.Decision) {
	if d == semel.Execute {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.fresh[id]
	if !ok {
		if len(t.fresh) >= maxFresh {
			return
		}
		c = Counts{}
		t.fresh[id] = c
	}
	c[d]++
}

// Of returns what the deliveries of a record's call got since the record was made. Counts that a
// newer program keeps are left out, and the error wraps [form.ErrNewer].
func (t *Tally) Of(ctx context.Context, rec *semel.Record) (Counts, error) {
	all := Counts{}
	if rec.Attempt > 0 {
		all[semel.Execute] = rec.Attempt
	}
	// The cell comes first: what is written after that is missing from the maps, and not
	// counted twice.
	kept, err := store.NewCell(t.store, cellOf(rec.ID)).Load(ctx)
	if err != nil {
		return nil, err
	}
	was, err := parse(kept.Data, rec)
	all.add(was.Counts)
	t.mu.Lock()
	defer t.mu.Unlock()
	all.add(t.fresh[rec.ID])
	all.add(t.writing[rec.ID])
	return all, err
}

func (c Counts) add(more Counts) {
	for d, n := range more {
		c[d] += n
	}
}

// Run writes counts until ctx is done, and what is left then.
func (t *Tally) Run(ctx context.Context) {
	tick := time.NewTicker(Pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.write(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer cancel()
			t.write(ctx)
			return
		}
	}
}

// write writes the counts that are fresh, one record after the other, so that they never
// take more of the store than one caller does.
func (t *Tally) write(ctx context.Context) {
	t.mu.Lock()
	t.writing, t.fresh = t.fresh, map[semel.ID]Counts{}
	batch := t.writing
	t.mu.Unlock()
	for id, c := range batch {
		if ctx.Err() != nil {
			break
		}
		t.mu.Lock()
		delete(t.writing, id)
		t.mu.Unlock()
		t.keep(ctx, id, c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = nil
}

// tries bounds how often a cell is written that other nodes write, too.
const tries = 16

// kept is what a cell holds: the counts, and which record of the identity they are about.
type kept struct {
	Since  store.Instant `json:"since"` // when the record was made
	Counts Counts        `json:"counts"`
}

// parse reads a cell. What is about an earlier record of the identity, or damaged, counts for
// nothing. The error is [form.ErrNewer].
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

// keep adds counts to those of a record. Counts are lost if the store fails: a write that
// isn't known to have failed must not be repeated. They are lost, too, where a newer program
// counts.
func (t *Tally) keep(ctx context.Context, id semel.ID, more Counts) {
	rec, err := t.store.Get(ctx, id)
	if err != nil || t.Uncounted != nil && t.Uncounted(rec) {
		return // it is gone, and its counts with it, or the store fails, or nobody pays for them
	}
	cell := store.NewCell(t.store, cellOf(id))
	old, err := cell.Load(ctx)
	for range tries {
		if err != nil {
			return
		}
		next, newer := parse(old.Data, rec)
		if newer != nil {
			return
		}
		next.Counts.add(more)
		data, jerr := json.Marshal(next)
		if jerr != nil {
			return // a decision is a word
		}
		// A crash before this write loses the counts, a crash after it nothing. The
		// cell is purged when its time is over.
		cur, ok, serr := cell.Swap(ctx, old, store.CellValue{Data: data, KeepFor: keepFor(rec)})
		if ok || serr != nil {
			return
		}
		old, err = cur, ctx.Err()
	}
}

// keepFor is how long counts are kept: about as long as the record.
func keepFor(rec *semel.Record) time.Duration {
	const least = 24 * time.Hour // for one that has no end yet, or a short one
	if rec.ExpiresAt == 0 {
		return max(rec.Policy.Window, least)
	}
	return max(rec.ExpiresAt.Sub(rec.UpdatedAt), least)
}

// cellOf is where the counts of an identity are. It doesn't tell the key.
func cellOf(id semel.ID) semel.ID {
	d := id.Digest()
	return semel.ID{Tenant: id.Tenant, Operation: "semel.counts", Key: hex.EncodeToString(d[:])}
}
