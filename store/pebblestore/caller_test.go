package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// caller works on a store and enters into the history what it was told. It has
// identities of its own, which go through their whole life again and again, and
// shares others, for which it fights with the other callers.
type caller struct {
	store   *Store
	history *history
	rng     *rand.Rand
	own     []semel.ID
	shared  []semel.ID
	// noted counts the entries of this run that belong to no record.
	run   int
	noted int64
}

// step makes one to three calls. An error is either one that the store returned
// or, wrapped in errWrong, an answer that can't be true.
func (c *caller) step(ctx context.Context) error {
	if len(c.own) > 0 && c.rng.IntN(8) == 0 {
		return c.note(ctx)
	}
	if len(c.shared) > 0 && c.rng.IntN(2) == 0 {
		return c.fight(ctx, c.shared[c.rng.IntN(len(c.shared))])
	}
	return c.live(ctx, c.own[c.rng.IntN(len(c.own))])
}

var errWrong = errors.New("wrong answer")

func wrong(id semel.ID, format string, args ...any) error {
	return fmt.Errorf("%w about %s: %s", errWrong, id.Key, fmt.Sprintf(format, args...))
}

// live takes an identity of the caller's own one step further. Nobody else
// writes it, so nothing may be refused.
func (c *caller) live(ctx context.Context, id semel.ID) error {
	cur, err := c.get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case cur.State == 0:
		_, err = c.write(ctx, id, cur, semel.Processing, true)
	case cur.State == semel.Processing && c.rng.IntN(4) == 0:
		_, err = c.write(ctx, id, cur, semel.Processing, true)
	case cur.State == semel.Processing:
		_, err = c.write(ctx, id, cur, semel.Completed, true)
	case c.rng.IntN(3) == 0:
		// A duplicate: it must find the outcome.
		var now semel.Record
		if now, err = c.write(ctx, id, semel.Record{}, semel.Processing, false); err == nil && now.Revision != cur.Revision {
			err = wrong(id, "a duplicate found fence %d in place of %d", now.Fence, cur.Fence)
		}
	default:
		err = c.purge(ctx, cur)
	}
	return err
}

// fight claims a shared identity, and completes it, whoever has claimed it. Only
// one of all callers may succeed with each.
func (c *caller) fight(ctx context.Context, id semel.ID) error {
	cur, err := c.write(ctx, id, semel.Record{}, semel.Processing, false)
	if err == nil && cur.State == semel.Processing {
		_, err = c.write(ctx, id, cur, semel.Completed, false)
	}
	return err
}

// get returns what is stored, or the zero Record.
func (c *caller) get(ctx context.Context, id semel.ID) (semel.Record, error) {
	cur, err := c.store.Get(ctx, id)
	if errors.Is(err, semel.ErrNotFound) {
		if err := c.history.gone(id); err != nil {
			return semel.Record{}, fmt.Errorf("%w: %w", errWrong, err)
		}
		return semel.Record{}, nil
	}
	if err != nil {
		return semel.Record{}, err
	}
	return *cur, c.told(id, *cur)
}

// told enters what the store says is stored.
func (c *caller) told(id semel.ID, cur semel.Record) error {
	err := genuine(id, cur)
	if err == nil {
		err = c.history.enter(verbTold, id, cur.State, written(cur.Fence))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	return nil
}

// write replaces prev by a new version and returns what is stored then.
func (c *caller) write(ctx context.Context, id semel.ID, prev semel.Record, state semel.State, must bool) (semel.Record, error) {
	rec := testRecord(id, c.history.version(id), state)
	now, err := c.store.Now(ctx)
	if err != nil {
		return semel.Record{}, err
	}
	if err := c.history.enter(verbTry, id, state, written(rec.Fence)); err != nil {
		return semel.Record{}, err
	}
	cur, applied, err := c.store.Apply(ctx, store.Write{
		Record: new(rec), Expect: prev.Revision, Evidence: []store.Entry{testEntry(id, prev.Fence, rec.Fence)},
	})
	if err != nil {
		return semel.Record{}, err
	}
	if cur == nil { // what it was to follow is gone
		cur = &semel.Record{}
	}
	if !applied && (must || cur.State == 0 || cur.Revision == prev.Revision) {
		return semel.Record{}, wrong(id, "a write over fence %d was refused because of fence %d", prev.Fence, cur.Fence)
	}
	if applied && prev.State == 0 {
		if err := c.history.enter(verbClaim, id, state, written(rec.Fence)); err != nil {
			return semel.Record{}, fmt.Errorf("%w: %w", errWrong, err)
		}
	}
	if applied {
		c.history.passed(now)
	}
	return *cur, c.told(id, *cur)
}

// purge removes records of the caller's own, in one call.
func (c *caller) purge(ctx context.Context, recs ...semel.Record) error {
	var refs []store.Ref
	for _, rec := range recs {
		if err := c.history.enter(verbTry, rec.ID, 0, purged(rec.Fence)); err != nil {
			return err
		}
		refs = append(refs, store.Ref{ID: rec.ID, Revision: rec.Revision})
	}
	n, err := c.store.Purge(ctx, refs)
	if err != nil {
		return err
	}
	if n != len(refs) {
		return wrong(recs[0].ID, "a purge of %d records purged %d", len(refs), n)
	}
	for _, rec := range recs {
		if err := c.history.enter(verbPurged, rec.ID, 0, purged(rec.Fence)); err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
	}
	return nil
}

const (
	crowdCallers = 4
	crowdOwn     = 3 // identities of each caller
	crowdShared  = 3 // new identities in each run
)

// crowd lets callers work on a store concurrently, each so many steps: on
// identities of their own, on shared ones that are new in this run, and one of
// them on the removal of those of older runs. Stored is what there is.
func crowd(ctx context.Context, s *Store, h *history, rng *rand.Rand, run int, stored found, steps int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	start := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				stop(err)
			}
		})
	}
	shared := testIDs(fmt.Sprintf("shared %d", run), crowdShared)
	for i := range crowdCallers {
		c := &caller{store: s, history: h, run: run, rng: rng64(rng), own: testIDs(fmt.Sprintf("own %d", i), crowdOwn), shared: shared}
		start(func() error {
			for range steps {
				if err := c.step(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var old []semel.Record
	for id, is := range stored {
		if !lasting(id) && !strings.HasPrefix(id.Key, fmt.Sprintf("shared %d ", run-1)) {
			old = append(old, testRecord(id, is.version, is.state))
		}
	}
	if len(old) > 0 && rng.IntN(2) == 0 {
		c := &caller{store: s, history: h}
		start(func() error { return c.purge(ctx, old...) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// lasting reports whether callers of every run work on an identity.
func lasting(id semel.ID) bool { return strings.HasPrefix(id.Key, "own ") }

// rng64 is a generator for one goroutine.
func rng64(rng *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }

func testIDs(prefix string, n int) []semel.ID {
	ids := make([]semel.ID, n)
	for i := range ids {
		ids[i] = testID(fmt.Sprintf("%s %d", prefix, i))
	}
	return ids
}
