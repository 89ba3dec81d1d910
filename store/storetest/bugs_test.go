package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// plantedBug is a bug that a store may have, with the beginnings of the names of
// cases that must catch it.
type plantedBug struct {
	name   string
	plant  func(p *planted, m *memstore.Store)
	caught []string
}

var plantedBugs = slices.Concat(writeBugs, otherBugs, searchBugs, attributeBugs, evidenceBugs, sequenceBugs)

// completions counts them for the bug that drops some, also while the store is opened
// again.
var completions atomic.Int64

// writeBugs are bugs of Apply and Get.
var writeBugs = []plantedBug{
	{
		"ignores Expect",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) { return blind(ctx, m, w) }
		},
		[]string{"a record is created only", "compare-and-set", "of concurrent creators", "no update is lost", "the same write sent again",
			"of 200 simultaneous", "random histories", "concurrent histories", "engines that share"},
	},
	{
		"lets a stale holder overwrite: ignores Expect at terminal writes",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if w.Record.State.Terminal() {
					return blind(ctx, m, w)
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"a dead holder's call", "random histories", "engines that share"},
	},
	{
		"acknowledges one write in a hundred without writing it",
		func(p *planted, m *memstore.Store) {
			var n atomic.Int64
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if n.Add(1)%100 == 50 {
					return w.Record, true, nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"every field", "no update is lost", "random histories", "concurrent histories", "engines that share"},
	},
	{
		"drops one completion in a hundred",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if w.Record.State == semel.Completed && completions.Add(1)%100 == 50 {
					return w.Record, true, nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"random histories", "engines that share"},
	},
	{
		"reports as failed what it applied, and as applied what failed",
		func(p *planted, m *memstore.Store) {
			var n atomic.Int64
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := m.Apply(ctx, w)
				if n.Add(1)%50 == 0 {
					applied = !applied
				}
				return cur, applied, err
			}
		},
		[]string{"random histories", "concurrent histories", "engines that share"},
	},
	{
		"shows a refused writer its own record",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				_, applied, err := m.Apply(ctx, w)
				return w.Record, applied, err
			}
		},
		[]string{"a record is created only", "a write that expects a record", "of concurrent creators", "random histories", "concurrent histories"},
	},
	{
		"reads from a cache that is one version behind at times",
		func(p *planted, m *memstore.Store) {
			var mu sync.Mutex
			var n int
			old := map[semel.ID]semel.Record{}
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				mu.Lock()
				defer mu.Unlock()
				before, err := m.Get(ctx, w.Record.ID)
				cur, applied, aerr := m.Apply(ctx, w)
				if applied && err == nil {
					old[w.Record.ID] = *before
				}
				return cur, applied, aerr
			}
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				mu.Lock()
				defer mu.Unlock()
				if rec, ok := old[id]; ok {
					if n++; n%10 == 0 {
						return &rec, nil
					}
				}
				return m.Get(ctx, id)
			}
		},
		[]string{"the store writes neither", "random histories", "concurrent histories"},
	},
	{
		"keeps times to the microsecond",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				w.Record.UpdatedAt -= w.Record.UpdatedAt % store.Instant(time.Microsecond)
				return m.Apply(ctx, w)
			}
		},
		[]string{"every field", "a record is created only"},
	},
	{
		"takes an empty result for none",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if len(w.Record.Result.Data) == 0 {
					w.Record = new(*w.Record)
					w.Record.Result.Data = nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"every field", "no result and an empty result"},
	},
	{
		"joins the members of an identity with a colon",
		func(p *planted, m *memstore.Store) {
			join := func(id semel.ID) semel.ID {
				return semel.ID{Operation: "o", Key: strings.Join([]string{id.Tenant, id.Principal, id.Operation, id.Key}, ":")}
			}
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				id := w.Record.ID
				w.Record = new(*w.Record)
				w.Record.ID = join(id)
				cur, applied, err := m.Apply(ctx, w)
				if cur != nil {
					cur = new(*cur)
					cur.ID = id
				}
				return cur, applied, err
			}
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				rec, err := m.Get(ctx, join(id))
				if rec != nil {
					rec = new(*rec)
					rec.ID = id
				}
				return rec, err
			}
		},
		[]string{"identities that differ"},
	},
	{
		"keeps keys without their case",
		func(p *planted, m *memstore.Store) {
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				id.Key = strings.ToLower(id.Key)
				return m.Get(ctx, id)
			}
		},
		[]string{"identities that differ"},
	},
	{
		"uses the caller's buffer again",
		func(p *planted, m *memstore.Store) {
			var mu sync.Mutex
			buf := make([]byte, 0, 1<<20)
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) {
				rec, err := m.Get(ctx, id)
				if err != nil {
					return nil, err
				}
				mu.Lock()
				defer mu.Unlock()
				buf = append(buf[:0], rec.Result.Data...)
				rec = new(*rec)
				rec.Result.Data = buf
				return rec, nil
			}
		},
		[]string{"the store writes neither"},
	},
}
