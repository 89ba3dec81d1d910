package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/turns"
	"github.com/semelhq/semel/store"
)

// pages are the questions that people and the background ask a store. What each costs must not
// depend on how many records there are.
var pages = []struct {
	name string
	step func(b *testing.B, t *target) step
}{
	{"search for what is in flight", running},
	{"search for an attribute", func(_ *testing.B, t *target) step {
		return func(ctx context.Context, c *turns.Caller) error {
			return t.find(ctx, 1, store.Query{Limit: 50, Attributes: store.Attributes{"order": known(c.Rand.IntN(t.records))}})
		}
	}},
	{"search for an attribute and a state", func(_ *testing.B, t *target) step {
		return func(ctx context.Context, c *turns.Caller) error {
			return t.find(ctx, 1, store.Query{Limit: 50, State: semel.Completed, Tenant: new("bench"), Attributes: store.Attributes{"order": known(c.Rand.IntN(t.records))}})
		}
	}},
	{"search for an attribute of no record", func(_ *testing.B, t *target) step {
		return func(ctx context.Context, c *turns.Caller) error {
			return t.find(ctx, 0, store.Query{Limit: 50, Attributes: store.Attributes{"order": c.Key()}})
		}
	}},
	{"page of the newest records", func(_ *testing.B, t *target) step {
		return func(ctx context.Context, _ *turns.Caller) error {
			return t.find(ctx, 1, store.Query{Limit: 50})
		}
	}},
	{"page of due records", func(b *testing.B, t *target) step {
		return func(ctx context.Context, _ *turns.Caller) error {
			for q := (store.DueQuery{Until: store.Instant(math.MaxInt64), Limit: 50}); ; {
				page, err := t.store.Extras().Due.Due(ctx, q)
				if err != nil || len(page.Records) > 0 {
					return err
				}
				if q.After = page.Next; q.After == "" {
					return errors.New("nothing is due")
				}
			}
		}
	}},
	{"claim, outcome, replay and purge", func(_ *testing.B, t *target) step {
		return func(ctx context.Context, c *turns.Caller) error {
			key := c.Key()
			if err := t.run(ctx, key); err != nil {
				return err
			}
			ans, err := t.engine.Begin(ctx, call(key))
			if err != nil {
				return err
			}
			if n, err := t.store.Extras().Purge.Purge(ctx, []store.Ref{ans.Record.Ref()}); n != 1 || err != nil {
				return fmt.Errorf("%d records were purged: %w", n, err)
			}
			return nil
		}
	}},
}

// find asks for a page, which must have at least n records, or none.
func (t *target) find(ctx context.Context, n int, q store.Query) error {
	page, err := t.store.Extras().Search.Search(ctx, q)
	if err == nil && (len(page.Records) < n || n == 0 && len(page.Records) > 0) {
		return fmt.Errorf("%d records were found, want %d", len(page.Records), n)
	}
	return err
}

// running leaves some attempts in flight, and returns a step that finds them all.
func running(b *testing.B, t *target) step {
	const attempts = 100
	c := turns.NewCaller(0)
	for range attempts {
		if ans, err := t.engine.Begin(b.Context(), call(c.Key())); err != nil || ans.Decision != semel.Execute {
			b.Fatal(ans.Decision, err)
		}
	}
	return func(ctx context.Context, _ *turns.Caller) error {
		n := 0
		for q := (store.Query{State: semel.Processing, Limit: store.MaxSearchLimit}); ; {
			page, err := t.store.Extras().Search.Search(ctx, q)
			if err != nil {
				return err
			}
			n += len(page.Records)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if n < attempts {
			return fmt.Errorf("%d of %d attempts were found", n, attempts)
		}
		return nil
	}
}
