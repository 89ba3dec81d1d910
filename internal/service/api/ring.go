package api

import (
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/hub"
)

// ringSize is how many events wait for readers who come back.
const ringSize = 4096

// event is one of the engine's events, in the field of its kind. Those that are rare are kept
// apart, so that the ring is small.
type event struct {
	seq     int64
	kind    string
	id      semel.ID
	at      time.Time // by this machine's clock for purged and lost
	decided semel.Decided
	ended   semel.Ended
	purged  *semel.Purged
	lost    *semel.LeaseLost
}

// ring keeps the last events. Adding never waits for a reader.
type ring struct {
	mu      sync.Mutex
	events  [ringSize]event
	first   int64 // number of the first event ever
	next    int64 // number of the next event
	readers hub.Hub[struct{}]
}

// init starts counting at the time, so that numbers rise across restarts, and a reader of
// an earlier process notices that they missed something.
func (g *ring) init(start time.Time) {
	g.first = start.UnixMicro()
	g.next = g.first
}

func (g *ring) add(ev event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ev.seq = g.next
	g.events[ev.seq%ringSize] = ev
	g.next++
	g.readers.WakeAll()
}

// erase empties the events about erased identities, the purge itself included. Purges have this
// machine's time. Their numbers stay.
func (g *ring) erase(erased func(semel.ID, time.Time) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.events {
		ev := &g.events[i]
		at := ev.at
		if ev.purged != nil || ev.lost != nil {
			at = time.Time{}
		}
		if ev.id != (semel.ID{}) && erased(ev.id, at) {
			*ev = event{seq: ev.seq, kind: erasedKind}
		}
	}
}

// erasedKind is the kind of an event that no reader gets any more.
const erasedKind = "erased"

// join adds a reader, whom wake notifies until leave, and returns the newest event's number.
func (g *ring) join() (wake <-chan struct{}, leave func(), newest int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wake, leave = g.readers.Watch(struct{}{})
	return wake, leave, g.next - 1
}

// after appends to buf the events that follow number last, as many as buf has room for.
// next is the number of the first of them, or of the next event if there are none. It
// reports gap if there were others that aren't kept, or if this ring has no event with
// the number last: then buf starts with the oldest event.
func (g *ring) after(last int64, buf []event) (_ []event, next int64, gap bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from := max(g.first, g.next-ringSize)
	if last >= g.next || last < from-1 {
		gap = true
	} else {
		from = last + 1
	}
	for seq := from; seq < g.next && len(buf) < cap(buf); seq++ {
		buf = append(buf, g.events[seq%ringSize])
	}
	return buf, from, gap
}
