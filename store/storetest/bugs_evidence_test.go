package storetest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// evidenceBugs are bugs of the evidence log.
var evidenceBugs = []plantedBug{
	{
		"appends evidence whether the record is written or not",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if err := m.AppendEvidence(ctx, w.Evidence); err != nil {
					return nil, false, err
				}
				w.Evidence = nil
				return m.Apply(ctx, w)
			}
		},
		[]string{"evidence is written with its record", "of concurrent writes over one version", "random histories", "whatever fails, each version"},
	},
	{
		"finds entries by their first subject only",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				w.Evidence = slices.Clone(w.Evidence)
				for i := range w.Evidence {
					w.Evidence[i].Also = nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"entries are found by all of their subjects"},
	},
	{
		"loses the evidence of a write at times",
		func(p *planted, m *memstore.Store) {
			var n atomic.Int64
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				if n.Add(1)%20 == 0 {
					w.Evidence = nil
				}
				return m.Apply(ctx, w)
			}
		},
		[]string{"entries of one identity", "random histories", "the log is the same", "whatever fails, each version"},
	},
	{
		"appends evidence again when a write is sent again",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := m.Apply(ctx, w)
				if !applied && err == nil && revisionOf(cur) == w.Record.Revision {
					err = m.AppendEvidence(ctx, w.Evidence)
				}
				return cur, applied, err
			}
		},
		[]string{"evidence is written with its record", "random histories", "whatever fails, each version"},
	},
	{
		"numbers entries in another order for every reader",
		func(p *planted, m *memstore.Store) {
			p.read = func(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
				list, err := m.ReadEvidence(ctx, from, limit)
				slices.Reverse(list)
				return list, err
			}
		},
		[]string{"evidence is written with its record", "entries of one identity", "the log is the same", "entries come back"},
	},
	{
		"shows an entry a while after it was acknowledged",
		func(p *planted, m *memstore.Store) {
			p.read = func(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
				list, err := m.ReadEvidence(ctx, from, limit+1)
				return list[:max(len(list)-1, 0)], err
			}
		},
		[]string{"whoever reads sees", "evidence is written with its record", "the log is the same"},
	},
	{
		"loses the last entry when it is opened again",
		func(p *planted, m *memstore.Store) {
			if p.opened == 0 {
				return
			}
			all, _ := m.ReadEvidence(context.Background(), 0, 1<<30)
			lost := uint64(len(all)) - 1
			p.read = func(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
				list, err := m.ReadEvidence(ctx, from, limit)
				if from <= lost && lost < from+uint64(len(list)) {
					list = slices.Delete(slices.Clone(list), int(lost-from), int(lost-from)+1)
				}
				return list, err
			}
		},
		[]string{"the log is the same", "entries come back"},
	},
	{
		"leaves a gap in the numbers where a write was refused",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				cur, applied, err := m.Apply(ctx, w)
				if !applied && len(w.Evidence) > 0 {
					err = m.AppendEvidence(ctx, []store.Entry{{}})
				}
				return cur, applied, err
			}
		},
		[]string{"evidence is written with its record", "of concurrent writes over one version"},
	},
	{
		"finds entries of one subject only from a page on",
		func(p *planted, m *memstore.Store) {
			p.locate = func(ctx context.Context, subject store.Subject, from uint64, limit int) ([]uint64, error) {
				return m.FindEvidence(ctx, subject, from-from%64, limit)
			}
		},
		[]string{"entries are found by their subject"},
	},
	{
		"erases leaves with their openings",
		func(p *planted, m *memstore.Store) {
			var mu sync.Mutex
			erased := map[uint64]bool{}
			p.erase = func(ctx context.Context, from, to uint64) error {
				mu.Lock()
				defer mu.Unlock()
				for i := from; i < min(to, 1<<16); i++ {
					erased[i] = true
				}
				return nil
			}
			p.read = func(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
				list, err := m.ReadEvidence(ctx, from, limit)
				mu.Lock()
				defer mu.Unlock()
				for i := range list {
					if erased[from+uint64(i)] {
						list[i].Leaf, list[i].Opening = nil, nil
					}
				}
				return list, err
			}
		},
		[]string{"EraseEvidence deletes openings", "concurrent erasures"},
	},
	{
		"erases one opening too few",
		func(p *planted, m *memstore.Store) {
			p.erase = func(ctx context.Context, from, to uint64) error { return m.EraseEvidence(ctx, from, max(to, 1)-1) }
		},
		[]string{"EraseEvidence deletes openings", "concurrent erasures"},
	},
	{
		"forgets what was appended without a record",
		func(p *planted, m *memstore.Store) {
			p.log = func(ctx context.Context, entries []store.Entry) error {
				if len(entries) > 1 {
					entries = entries[:len(entries)-1]
				}
				return m.AppendEvidence(ctx, entries)
			}
		},
		[]string{"entries of one identity", "entries come back"},
	},
	{
		"keeps tiles by the end of their names",
		func(p *planted, m *memstore.Store) {
			end := func(name string) string { return name[max(0, len(name)-3):] }
			p.put = func(ctx context.Context, tiles map[string][]byte) error {
				short := map[string][]byte{}
				for name, tile := range tiles {
					short[end(name)] = tile
				}
				return m.PutEvidenceTiles(ctx, short)
			}
			p.tile = func(ctx context.Context, name string) ([]byte, error) { return m.EvidenceTile(ctx, end(name)) }
		},
		[]string{"tiles are kept"},
	},
	{
		"drops the attributes, the outbox and how a call was confirmed and compensated",
		func(p *planted, m *memstore.Store) {
			p.apply = func(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
				w.Record = new(*w.Record)
				w.Record.Attributes, w.Record.Outbox, w.Record.Confirmation, w.Record.Compensation = nil, nil, nil, nil
				return m.Apply(ctx, w)
			}
		},
		[]string{"every field"},
	},
}
