package faultnet

import (
	"maps"
	"math/rand/v2"
	"time"
)

// Place is where an exchange, a request with its answer, is cut. The proxy doesn't parse any
// protocol: a request begins with the first bytes from the client after an answer, and an
// answer with the first bytes from the server after a request.
type Place string

const (
	// Uncut: nowhere.
	Uncut Place = ""
	// InRequest lets some of the first bytes of the request pass, or none.
	InRequest Place = "in the request"
	// AfterRequest lets the request pass, until no more of it has come for a few
	// milliseconds. An answer that comes sooner passes too.
	AfterRequest Place = "after the request"
	// BeforeAnswer waits for the server's answer, and lets none of it pass.
	BeforeAnswer Place = "before the answer"
	// InAnswer lets some of the first bytes of the answer pass, never all of them.
	InAnswer Place = "in the answer"
)

// Cut says where an exchange is cut, and how its connection ends.
type Cut struct {
	Place Place
	// Mute leaves the connection open without carrying anything more, until the client
	// closes it. Otherwise the connection ends with RST.
	Mute bool
}

// requestPause is how long no more bytes of a request must come until it counts as whole.
const requestPause = 5 * time.Millisecond

// exchange is the state of the current exchange of a connection.
type exchange struct {
	cut      Cut
	begun    bool // the request has begun
	answered bool // the answer has begun
	mute     bool // nothing more passes
}

// CutEach calls draw for each exchange that begins from now on, one call at a time, and cuts
// the exchange as it says. Nil cuts nothing more. Connections that are mute stay mute.
func (n *Net) CutEach(draw func() Cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.draw = draw
}

// Cuts counts the exchanges that were cut, by how they were.
func (n *Net) Cuts() map[Cut]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.cuts)
}

// part says how many of these bytes pass, and whether the connection is cut after them.
func (n *Net) part(p *pair, size int, answers bool) (pass int, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := &p.exchange
	if x.mute {
		return 0, false
	}
	if !answers && (!x.begun || x.answered) {
		*x = exchange{begun: true}
		if n.draw != nil {
			x.cut = n.draw()
		}
	}
	x.answered = x.answered || answers
	switch place := x.cut.Place; {
	case answers && place == BeforeAnswer:
		return 0, true
	case answers && place == InAnswer:
		return rand.IntN(size), true
	case !answers && place == InRequest:
		x.mute = true // the server may answer the part that it gets before the connection ends
		return rand.IntN(size), true
	}
	return size, false
}

// patience is the deadline for more bytes; zero means none.
func (n *Net) patience(p *pair, answers bool) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := p.exchange; !answers && x.cut.Place == AfterRequest && !x.answered && !x.mute {
		return time.Now().Add(requestPause)
	}
	return time.Time{}
}

// quiet cuts an exchange once its request is whole, unless the answer has begun. It reports
// whether the connection goes on.
func (n *Net) quiet(p *pair) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.exchange.answered {
		n.cut(p)
	}
	return n.pairs[p]
}

// cut cuts the current exchange, or tears the connection. The caller holds n.mu.
func (n *Net) cut(p *pair) {
	if !n.pairs[p] {
		return
	}
	cut := p.exchange.cut
	p.exchange.cut = Cut{}
	if cut.Place != Uncut {
		n.cuts[cut]++
	}
	if cut.Mute {
		p.exchange.mute = true
		n.fired++
		return
	}
	n.reset(p)
}
