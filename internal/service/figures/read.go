package figures

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/semelhq/semel/internal/form"
	"github.com/semelhq/semel/internal/nodes"
	"github.com/semelhq/semel/store"
)

type reader struct {
	mu    sync.Mutex // held while reading the store, so that one read serves all readers
	at    time.Time  // of the last reading
	err   error      // why it failed
	nodes []counted  // of the last complete one
	cache map[string]peer
}

type counted struct {
	id             string // of the node
	minutes, hours []slot
	// minute is the running one, with the records of its hour.
	minute slot
}

// peer is a node as it was read last.
type peer struct {
	counted
	folded int64 // minutes in the history
	quiet  bool  // it had written nothing for a while
	at     time.Time
}

const (
	// fresh is how long a reading counts as current, however many people look. Together with
	// the intervals of writing and of the dashboard's polling, people see figures less than
	// two seconds old.
	fresh = 200 * time.Millisecond
	// quietAfter is how long a node writes nothing before it is read only once a minute:
	// most such nodes have ended.
	quietAfter = 3 * time.Minute
)

// others returns the figures of other nodes, or the last it read if the store is away.
func (f *Figures) others(ctx context.Context, now store.Instant, away error) ([]counted, error) {
	r := &f.peers
	r.mu.Lock()
	defer r.mu.Unlock()
	if away != nil || time.Since(r.at) < fresh {
		return r.nodes, cmp.Or(away, r.err)
	}
	limited, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	nodes, err := f.readOthers(limited, now)
	if ctx.Err() != nil {
		return nil, ctx.Err() // it says nothing about the store
	}
	if r.err, r.at = err, time.Now(); err == nil {
		r.nodes = nodes
	}
	return r.nodes, r.err
}

func (f *Figures) readOthers(ctx context.Context, now store.Instant) ([]counted, error) {
	r := &f.peers
	named, err := nodes.Load[int64](ctx, f.own.directory)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(r.cache, func(id string, _ peer) bool { _, ok := named[id]; return !ok })
	var list []counted
	for id := range named {
		if id == f.own.id {
			continue
		}
		p, ok := r.cache[id]
		if !ok || !p.quiet || time.Since(p.at) >= time.Minute {
			if p, err = f.load(ctx, id, p, now); err != nil {
				return nil, err
			}
			r.cache[id] = p
		}
		list = append(list, p.counted)
	}
	return list, nil
}

// load reads a node that was like old. The running minute is read first: if it is over
// meanwhile, it is in the history that is read then.
func (f *Figures) load(ctx context.Context, id string, old peer, now store.Instant) (peer, error) {
	value, err := store.NewCell(f.store, cellID(f.own.prefix+"recent/"+id)).Load(ctx)
	if err != nil {
		return peer{}, err
	}
	var recent keptRecent
	p := peer{counted: counted{id: id, minute: newSlot(0)}, quiet: now.Sub(value.At) > quietAfter, at: time.Now()}
	if value.Data != nil {
		if err := form.Read(value.Data, 1, &recent); err != nil {
			return p, nil // a newer program's, which counts for itself
		}
		if p.minute, err = recent.Minute.slot(recent.Series); err != nil {
			p.minute = newSlot(0)
		}
	}
	if old.at.IsZero() || old.folded != recent.Seq-1 {
		if old, err = f.loadHistory(ctx, id); err != nil {
			return peer{}, err
		}
	}
	p.minutes, p.hours, p.folded = old.minutes, old.hours, old.folded
	if recent.Seq <= p.folded {
		p.minute = newSlot(0) // it is in the history
	}
	return p, nil
}

func (f *Figures) loadHistory(ctx context.Context, id string) (p peer, err error) {
	value, err := store.NewCell(f.store, cellID(f.own.prefix+"history/"+id)).Load(ctx)
	if err != nil || value.Data == nil {
		return p, err
	}
	var kept keptHistory
	if form.Read(value.Data, 1, &kept) != nil {
		return p, nil
	}
	p.folded = kept.Folded
	for _, list := range []struct {
		kept []keptSlot
		to   *[]slot
	}{{kept.Minutes, &p.minutes}, {kept.Hours, &p.hours}} {
		for i := range list.kept {
			if s, err := list.kept[i].slot(kept.Series); err == nil {
				*list.to = append(*list.to, s)
			}
		}
	}
	return p, nil
}
