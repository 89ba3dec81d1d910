package figures

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/behind"
	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/internal/nodes"
	"github.com/semelhq/semel/store"
)

// erased drops erased records from the lists. Sums still include them. The next write rewrites
// this node's own cells without them, and also the cells of nodes that no longer run.
func (f *Figures) erased(e semel.Erased) {
	goes := func(r Record) bool { return e.Includes(r.ID, time.Unix(r.Last, 0)) }
	n := &f.own
	n.mu.Lock()
	defer n.mu.Unlock()
	n.erased = e.Includes
	n.records = without(n.records, goes, &n.unwritten.recent)
	n.hours = slices.Clone(n.hours)
	for i := range n.hours {
		n.hours[i].records = without(n.hours[i].records, goes, &n.unwritten.history)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.keys, func(_ semel.ID, t *tally) bool { return goes(t.Record) })
	f.touched = slices.DeleteFunc(f.touched, func(t *tally) bool { return goes(t.Record) })
}

// without is a list without the records that go, and says in changed if there were any.
func without(list []Record, goes func(Record) bool, changed *bool) []Record {
	if !slices.ContainsFunc(list, goes) {
		return list
	}
	*changed = true
	return slices.DeleteFunc(slices.Clone(list), goes)
}

// eraseOthers rewrites other nodes' cells that name erased records. A running node overwrites
// its own from memory.
func (f *Figures) eraseOthers(ctx context.Context) error {
	n := &f.own
	n.mu.Lock()
	erased := n.erased
	n.erased = nil
	n.mu.Unlock()
	if erased == nil {
		return nil
	}
	err := f.eraseCells(ctx, erased)
	r := &f.peers
	r.mu.Lock()
	r.nodes, r.at = nil, time.Time{}
	clear(r.cache)
	r.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.erased == nil {
		n.erased = erased // the next write tries again
	}
	return err
}

func (f *Figures) eraseCells(ctx context.Context, erased func(semel.ID, time.Time) bool) error {
	named, err := nodes.Load[int64](ctx, f.own.directory)
	if errors.Is(err, form.ErrNewer) {
		return nil // a newer program does it
	}
	if err != nil {
		return err
	}
	delete(named, f.own.id)
	for id := range named {
		if err := eraseCell(ctx, store.NewCell(f.store, cellID("recent/"+id)), erased, func(k *keptRecent) []*keptSlot { return []*keptSlot{&k.Minute} }); err != nil {
			return err
		}
		err := eraseCell(ctx, store.NewCell(f.store, cellID("history/"+id)), erased, func(k *keptHistory) (hours []*keptSlot) {
			for i := range k.Hours {
				hours = append(hours, &k.Hours[i])
			}
			return hours
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func eraseCell[K any](ctx context.Context, cell *store.Cell, erased func(semel.ID, time.Time) bool, slots func(*K) []*keptSlot) error {
	err := cell.Change(ctx, func(old store.CellValue) (store.CellValue, error) {
		var kept K
		if form.Read(old.Data, 1, &kept) != nil {
			return store.CellValue{}, behind.ErrNothing
		}
		found := false
		for _, s := range slots(&kept) {
			s.Records = slices.DeleteFunc(s.Records, func(r keptRecord) bool {
				id, err := store.DecodeID(r.ID)
				goes := err == nil && erased(id, time.Unix(r.Counts[5], 0))
				found = found || goes
				return goes
			})
		}
		if !found {
			return store.CellValue{}, behind.ErrNothing
		}
		data, err := json.Marshal(kept)
		// A crash before this write leaves the cell to the other nodes, and to nodes that
		// start later.
		return store.CellValue{Data: data, KeepFor: keepFor}, err
	})
	if errors.Is(err, behind.ErrNothing) {
		return nil
	}
	return err
}
