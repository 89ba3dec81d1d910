package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// otherBugs are bugs of the clock, the extras, and the life of a
// store.
var otherBugs = []plantedBug{
	{
		"goes back in time at every purge, so that fences start anew",
		func(p *planted, m *memstore.Store) {
			var start store.Instant
			var back atomic.Int64
			p.now = func(ctx context.Context) (store.Instant, error) {
				at, err := m.Now(ctx)
				if start.IsZero() {
					start = at
				}
				return at.Add(-time.Duration(back.Load())), err
			}
			p.purge = func(ctx context.Context, refs []store.Ref) (int, error) {
				at, _ := m.Now(ctx)
				back.Store(int64(at.Sub(start)))
				return m.Purge(ctx, refs)
			}
		},
		[]string{"fences rise across purges"},
	},
	{
		"has a clock that steps back",
		func(p *planted, m *memstore.Store) {
			var n atomic.Int64
			p.now = func(ctx context.Context) (store.Instant, error) {
				at, err := m.Now(ctx)
				return at.Add(-time.Duration(n.Add(1) % 100 * int64(time.Millisecond))), err
			}
		},
		[]string{"the clock never goes back"},
	},
	{
		"has a clock that stands still",
		func(p *planted, m *memstore.Store) {
			at, _ := m.Now(context.Background())
			p.now = func(context.Context) (store.Instant, error) { return at, nil }
		},
		[]string{"the clock advances", "a dead holder's call", "an outcome is replayed within its window"},
	},
	{
		"leaves out what is due at the very instant",
		func(p *planted, m *memstore.Store) {
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				q.Until = q.Until.Add(-1)
				return m.Due(ctx, q)
			}
		},
		[]string{"Due returns exactly", "random histories"},
	},
	{
		"always lists the same when more are due than it may list",
		func(p *planted, m *memstore.Store) {
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				limit := q.Limit
				q.Limit = 1 << 20
				page, err := m.Due(ctx, q)
				recs := page.Records
				if len(recs) > 50 {
					recs = recs[len(recs)-50:]
				}
				page.Records = recs[:min(limit, len(recs)/2)]
				return page, err
			}
		},
		[]string{"Due gives all that is due in pages"},
	},
	{
		"begins every page of what is due anew",
		func(p *planted, m *memstore.Store) {
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				q.After = ""
				return m.Due(ctx, q)
			}
		},
		[]string{"Due gives all that is due in pages"},
	},
	{
		"says that a full page of what is due is the last",
		func(p *planted, m *memstore.Store) {
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				page, err := m.Due(ctx, q)
				page.Next = ""
				return page, err
			}
		},
		[]string{"Due gives all that is due in pages"},
	},
	{
		"makes a write whatever its deadline",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				w.Deadline = 0
				return m.Apply(ctx, w)
			}
		},
		[]string{"a write that arrives after its deadline"},
	},
	{
		"looks at the deadline before it looks at what is stored",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if now, err := m.Now(ctx); err == nil && w.Deadline != 0 && now >= w.Deadline {
					return nil, false, store.ErrTooLate
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"a write that arrives after its deadline"},
	},
	{
		"lists the version that was due, not the one that is stored",
		func(p *planted, m *memstore.Store) {
			var mu sync.Mutex
			first := map[semel.ID]semel.Record{}
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := m.Apply(ctx, w)
				mu.Lock()
				defer mu.Unlock()
				if _, ok := first[w.Record.ID]; applied && !ok {
					first[w.Record.ID] = *w.Record
				}
				return cur, applied, err
			}
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				page, err := m.Due(ctx, q)
				mu.Lock()
				defer mu.Unlock()
				for i := range page.Records {
					page.Records[i] = first[page.Records[i].ID]
				}
				return page, err
			}
		},
		[]string{"Due follows every change", "random histories", "a sweep settles"},
	},
	{
		"purges whatever version is stored",
		func(p *planted, m *memstore.Store) {
			p.purge = func(ctx context.Context, refs []store.Ref) (int, error) {
				n := 0
				for _, ref := range refs {
					rec, err := m.Get(ctx, ref.ID)
					if err != nil {
						continue
					}
					ref.Revision = rec.Revision
					k, _ := m.Purge(ctx, []store.Ref{ref})
					n += k
				}
				return n, nil
			}
		},
		[]string{"Purge deletes a record", "a record that was changed since", "Purge counts", "of a purge and a write", "random histories", "concurrent histories"},
	},
	{
		"counts what it was asked to purge, not what it did",
		func(p *planted, m *memstore.Store) {
			p.purge = func(ctx context.Context, refs []store.Ref) (int, error) {
				_, err := m.Purge(ctx, refs)
				return len(refs), err
			}
		},
		[]string{"Purge deletes a record", "Purge counts", "random histories", "concurrent histories"},
	},
	{
		"tells watchers of the first change only",
		func(p *planted, m *memstore.Store) {
			p.watch = func(ctx context.Context, id semel.ID) (<-chan struct{}, func()) {
				inner, stop := m.Watch(ctx, id)
				ch := make(chan struct{}, 1)
				quit := make(chan struct{})
				go func() {
					select {
					case <-inner:
						ch <- struct{}{}
					case <-quit:
					}
				}()
				return ch, sync.OnceFunc(func() { close(quit); stop() })
			}
		},
		[]string{"Watch tells of every kind"},
	},
	{
		"works on after Close",
		func(p *planted, m *memstore.Store) { p.close = func() error { return nil } },
		[]string{"every call fails after Close"},
	},
	{
		"says after Close that nothing is stored",
		func(p *planted, m *memstore.Store) {
			shut := false
			p.close = func() error {
				p.mu.Lock()
				defer p.mu.Unlock()
				shut = true
				return nil
			}
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				if shut {
					return nil, semel.ErrNotFound
				}
				return m.Get(ctx, id)
			}
		},
		[]string{"every call fails after Close", "calls that run while the store closes"},
	},
	{
		"loses the last write when it is opened again",
		func(p *planted, m *memstore.Store) {
			if rec := p.last.Load(); rec != nil {
				_, _ = m.Purge(context.Background(), []store.Ref{ref(*rec)})
			}
		},
		[]string{"what was acknowledged is there", "random histories"},
	},
	{
		"brings back what was purged when it is opened again",
		func(p *planted, m *memstore.Store) {
			if rec := p.last.Load(); rec != nil {
				_, _, _ = m.Apply(context.Background(), store.Write{Record: rec})
			}
			p.purge = func(ctx context.Context, refs []store.Ref) (n int, err error) {
				for _, ref := range refs {
					rec, _ := m.Get(ctx, ref.ID)
					if k, _ := m.Purge(ctx, []store.Ref{ref}); k > 0 {
						n++
						p.last.Store(rec)
					}
				}
				return n, nil
			}
		},
		[]string{"random histories"},
	},
	{
		"forgets what is due when it is opened again",
		func(p *planted, m *memstore.Store) {
			if p.opened > 0 {
				p.due = func(context.Context, store.DueQuery) (store.DuePage, error) { return store.DuePage{}, nil }
			}
		},
		[]string{"what was acknowledged is there", "random histories"},
	},
	{
		"starts its clock anew when it is opened again",
		func(p *planted, m *memstore.Store) {
			start, _ := m.Now(context.Background())
			back := time.Duration(0)
			if p.opened > 0 {
				back = 30 * time.Second
			}
			p.now = func(ctx context.Context) (store.Instant, error) {
				at, err := m.Now(ctx)
				if at.Sub(start) < back {
					return start.Add(-back), err
				}
				return at, err
			}
		},
		[]string{"the clock does not go back when"},
	},
	{
		"takes a cancelled context for an answer",
		func(p *planted, m *memstore.Store) {
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				if ctx.Err() != nil {
					return nil, semel.ErrNotFound
				}
				return m.Get(ctx, id)
			}
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if ctx.Err() != nil {
					return nil, false, nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"a cancelled context"},
	},
}
