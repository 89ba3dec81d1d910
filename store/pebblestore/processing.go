package pebblestore

import (
	"cmp"
	"slices"
	"sync"
)

// processing remembers the addresses of records with an attempt in flight or held, so that a
// search for those doesn't read all records. It begins with the writes after Open; the first
// such search adds the rest, page by page.
//
// It may have an address too many, of an attempt that has ended, but never one too few;
// searches check the records themselves.
type processing struct {
	mu sync.Mutex
	at map[address]struct{}
	// From low on, at is complete.
	low address
}

func (p *processing) start(end address) { p.at, p.low = map[address]struct{}{}, end }

// changed notes what a batch has changed, before anybody can see it.
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

// saw notes what a search found at an address. The search must have come down to it from low or
// above without skipping a record.
func (p *processing) saw(at address, runs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if runs {
		p.at[at] = struct{}{}
	}
	p.low = min(p.low, at)
}

// before returns the known addresses before end, the highest first, and low.
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
