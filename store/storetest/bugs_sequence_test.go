package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// sequenceBugs are bugs that spoil sequences. Each is one that a store may have with the marks of
// sequences, or with the keys of their numbers, and with nothing else.
var sequenceBugs = []plantedBug{
	{
		"loses the mark of a sequence when it is replaced",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if w.Record.Mark != nil && !w.Expect.IsZero() {
					w.Record = new(*w.Record)
					w.Record.Mark = nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"keeps only the newest number of a mark",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if mark := w.Record.Mark; mark != nil {
					w.Record = new(*w.Record)
					w.Record.Mark = &store.Mark{Newest: mark.Newest}
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"moves a mark without a look at what is stored",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if w.Record.Mark != nil {
					return blind(ctx, m, w)
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"creates a number where there is one",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if w.Record.Sequence != 0 && w.Expect.IsZero() {
					return blind(ctx, m, w)
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"has one record for all numbers of a sequence",
		func(p *planted, m *memstore.Store) {
			cut := func(id semel.ID) semel.ID {
				if key, n := id.Number(); n != 0 {
					id.Key = key + store.ScopeMark
				}
				return id
			}
			p.get = func(ctx context.Context, id semel.ID) (*semel.Record, error) { return m.Get(ctx, cut(id)) }
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				w.Record = new(*w.Record)
				w.Record.ID = cut(w.Record.ID)
				return m.Apply(ctx, w)
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"leaves the numbers of a sequence when they are purged",
		func(p *planted, m *memstore.Store) {
			p.purge = func(ctx context.Context, refs []store.Ref) (int, error) {
				others := slices.DeleteFunc(slices.Clone(refs), func(r store.Ref) bool { return strings.Contains(r.ID.Key, store.ScopeMark) })
				if _, err := m.Purge(ctx, others); err != nil {
					return 0, err
				}
				return len(refs), nil
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"finds the numbers of a sequence on the first page only",
		func(p *planted, m *memstore.Store) {
			p.find = func(ctx context.Context, q store.Query) (store.Page, error) {
				page, err := m.Search(ctx, q)
				if q.Key != "" || q.KeyPrefix != "" {
					page.Next = ""
					page.Records = page.Records[:min(len(page.Records), 2)]
				}
				return page, err
			}
		},
		[]string{"histories of sequences"},
	},
	{
		"forgets marks that are due, as if they had no time to be looked at",
		func(p *planted, m *memstore.Store) {
			p.due = func(ctx context.Context, q store.DueQuery) (store.DuePage, error) {
				page, err := m.Due(ctx, q)
				page.Records = slices.DeleteFunc(page.Records, func(r semel.Record) bool { return r.Mark != nil })
				return page, err
			}
		},
		[]string{"histories of sequences"},
	},
}
