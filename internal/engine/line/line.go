// Package line makes callers at one key wait in line, fairly by network.
package line

import (
	"slices"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// lasts is how long a caller may take to claim when their turn has come, for example to send a
// body. Then the next one may claim as well: a slow sender must not keep the others waiting.
const lasts = 2 * time.Second

// Max bounds the callers who wait at one key, and with them their memory and connections. A
// caller from a network with a place is at most 16th.
const Max = 16

// Caller is one delivery of a call.
type Caller struct {
	Key     store.ID
	Number  uint64 // unique to this delivery
	BoundTo string // names the caller
	Network [16]byte
}

// Lines has a line for each key at which an attempt runs or somebody waits. While it runs,
// deliveries with another credential wait in line, fairly by network. When it has ended, the
// next one may claim, and the network that had its turn goes to the end: a caller who keeps
// asking gets no more turns than one who asks once.
//
// The lines belong to one engine, and only say who waits: the stored record decides what a
// delivery gets.
type Lines struct {
	mu    sync.Mutex
	lines map[store.ID]line
}

// line is the line at one key. It exists while an attempt runs or somebody waits.
type line struct {
	holder  uint64   // the number of the delivery that has the turn
	boundTo string   // of the holder
	network [16]byte // of the holder
	claimed bool     // the holder has claimed; its turn lasts until the attempt ends
	until   time.Duration
	waiting *queue // nil: nobody has ever waited
}

// queue holds the deliveries that wait at one key, by network, in the order of their turns.
type queue struct {
	places []place
	count  int
}

type place struct {
	network [16]byte
	waiters []*waiter
}

type waiter struct {
	number  uint64
	boundTo string
	over    chan bool // gets whether the waiter's turn has come, or it must leave
}

// Free reports whether a delivery can skip waiting: its key has no line, or the delivery comes
// from the same caller, who may learn at once how the first delivery is doing.
func (t *Lines) Free(c *Caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, there := t.lines[c.Key]
	return !there || l.boundTo == c.BoundTo
}

// Over reports whether the line is gone.
func (t *Lines) Over(c *Caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, there := t.lines[c.Key]
	return !there
}

// Claim reports whether it's the delivery's turn, which then lasts until it ends.
func (t *Lines) Claim(c *Caller) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := c.Key
	l, there := t.lines[id]
	if !there {
		if t.lines == nil {
			t.lines = map[store.ID]line{}
		}
		l = line{holder: c.Number, boundTo: c.BoundTo, network: c.Network}
	}
	if l.holder != c.Number {
		return false
	}
	l.claimed = true
	t.lines[id] = l
	return true
}

// End ends a delivery's turn.
func (t *Lines) End(c *Caller, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := c.Key
	switch l, there := t.lines[id]; {
	case !there || l.holder != c.Number:
	case l.waiting == nil:
		delete(t.lines, id)
	default:
		t.next(id, l, now)
	}
}

// next gives the turn to the next delivery in line. The caller holds t.mu.
func (t *Lines) next(id store.ID, l line, now time.Duration) {
	if l.empty() {
		delete(t.lines, id)
		return
	}
	w, network := l.waiting.pop(l.network)
	l = line{holder: w.number, boundTo: w.boundTo, network: network, until: now + lasts, waiting: l.waiting}
	t.lines[id] = l
	if !l.empty() {
		t.passLater(id, l, now)
	}
	w.over <- true
}

// passLater passes the turn on once it's over, if the delivery hasn't claimed by then.
func (t *Lines) passLater(id store.ID, l line, now time.Duration) {
	time.AfterFunc(l.until-now, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if cur, there := t.lines[id]; there && cur.holder == l.holder && !cur.claimed {
			t.next(id, cur, l.until)
		}
	})
}

// Join puts a delivery into the line at its key, and returns the channel that says when its
// wait is over. It is nil if the delivery can't wait: there is no line, or no place in it.
func (t *Lines) Join(c *Caller, now time.Duration) <-chan bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := c.Key
	l, there := t.lines[id]
	if !there || l.holder == c.Number {
		return nil
	}
	if l.waiting == nil {
		l.waiting = new(queue)
		t.lines[id] = l
	}
	first := l.empty()
	w := &waiter{c.Number, c.BoundTo, make(chan bool, 1)}
	if !l.waiting.push(c.Network, w) {
		return nil
	}
	if first && !l.claimed {
		t.passLater(id, l, now)
	}
	return w.over
}

// Leave takes a delivery out of the line, unless its turn has just come.
func (t *Lines) Leave(c *Caller) (mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, there := t.lines[c.Key]
	if there && l.holder != c.Number {
		l.waiting.remove(c.Number)
	}
	return there && l.holder == c.Number
}

// Len returns how many keys have a line.
func (t *Lines) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

func (l *line) empty() bool { return l.waiting == nil || l.waiting.count == 0 }

// push adds a waiter at the end, in the place of its network. If the line is full, the network
// with the most waiters loses its newest one, provided that it has more than this one would
// have. Otherwise push reports false.
func (q *queue) push(network [16]byte, w *waiter) bool {
	at := slices.IndexFunc(q.places, func(p place) bool { return p.network == network })
	if q.count == Max {
		most, own := 0, 0
		for i := range q.places {
			if len(q.places[i].waiters) > len(q.places[most].waiters) {
				most = i
			}
		}
		if at >= 0 {
			own = len(q.places[at].waiters)
		}
		p := &q.places[most]
		if len(p.waiters) <= own+1 {
			return false
		}
		last := len(p.waiters) - 1
		p.waiters[last].over <- false
		p.waiters = p.waiters[:last]
		q.count--
	}
	if at < 0 {
		at = len(q.places)
		q.places = append(q.places, place{network: network})
	}
	q.places[at].waiters = append(q.places[at].waiters, w)
	q.count++
	return true
}

// pop takes out the next waiter. First, the network that had its turn goes to the end.
func (q *queue) pop(had [16]byte) (*waiter, [16]byte) {
	if at := slices.IndexFunc(q.places, func(p place) bool { return p.network == had }); at >= 0 {
		p := q.places[at]
		q.places = append(slices.Delete(q.places, at, at+1), p)
	}
	w, network := q.places[0].waiters[0], q.places[0].network
	q.remove(w.number)
	return w, network
}

// remove takes out a waiter, if it's there.
func (q *queue) remove(number uint64) {
	if q == nil {
		return
	}
	for i := range q.places {
		p := &q.places[i]
		at := slices.IndexFunc(p.waiters, func(w *waiter) bool { return w.number == number })
		if at < 0 {
			continue
		}
		p.waiters = slices.Delete(p.waiters, at, at+1)
		q.count--
		if len(p.waiters) == 0 {
			q.places = slices.Delete(q.places, i, i+1)
		}
		return
	}
}
