package pebblestore

import (
	"cmp"
	"slices"
	"sync"
)

// processing knows in memory where the records are whose newest attempt is in flight or held, so
// that a search for them doesn't read all others. It begins with what is written after the
// store was opened; the first such search reads the rest, page by page.
//
// An address in it may be of a record that has ended, never the other way round: searches read
// the records.
type processing struct {
	mu sync.Mutex
	at map[address]struct{}
	// low is from where on all are known.
	low address
}

func (p *processing) start(end address) { p.at, p.low = map[address]struct{}{}, end }

// changed notes what a batch has changed, before anybody hears of it.
func (p *processing) changed(batch []*op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range batch {
		switch {
		case o.bare:
		case o.rec != nil && !o.rec.State.Terminal():
			p.at[o.at] = struct{}{}
		default:
			delete(p.at, o.at)
		}
	}
}

// saw notes what a search has found at an address. All that lies between it and low, as that
// was when the search began there, was seen by that search.
func (p *processing) saw(at address, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if runs {
		p.at[at] = struct{}{}
	}
	p.low = min(p.low, at)
}

// before are the known addresses before end, the highest first, and low.
func (p *processing) before(end address) (known []address, low address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.at {
		if at >= p.low && at < end {
			known = append(known, at)
		}
	}
	slices.SortFunc(known, func(a, b address) int { return cmp.Compare(b, a) })
	return known, p.low
}
