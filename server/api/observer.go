package api

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/semelhq/semel"
)

// Observer records an engine's events, for the decisions that records show and for the
// stream of decisions. Its memory is bounded, and it never makes the engine wait for a
// reader.
type Observer struct {
	ring ring
	seed maphash.Seed
	now  func() time.Time

	mu     sync.Mutex
	counts *simplelru.LRU[uint64, *recordCounts] // of the records decided last
	// since is when a record was last given up. Nothing was counted since then about one
	// without counts.
	since time.Time
}

// NewObserver makes an observer. It serves one engine.
func NewObserver() *Observer {
	counts, err := simplelru.NewLRU[uint64, *recordCounts](maxCounts, nil)
	if err != nil {
		panic(err) // the size is not positive
	}
	o := &Observer{seed: maphash.MakeSeed(), now: time.Now, counts: counts}
	o.since = o.now()
	o.ring.init(o.since)
	return o
}

// Events are for the engine's options, alone or together with others.
func (o *Observer) Events() *semel.Events {
	return &semel.Events{
		Decided: func(ev semel.Event) {
			o.count(ev.ID, ev.Decision)
			o.ring.add(event{kind: "decided", Event: ev})
		},
		Ended: func(ev semel.Event) { o.ring.add(event{kind: "ended", Event: ev}) },
		Purged: func(ev semel.Event) {
			ev.At = o.now()
			o.ring.add(event{kind: "purged", Event: ev})
		},
		LeaseLost: func(ev semel.Event) {
			ev.At = o.now()
			o.ring.add(event{kind: "lease_lost", Event: ev})
		},
	}
}

// maxCounts is of how many records decisions are counted: some 100 bytes each.
const maxCounts = 100_000

// recordCounts are the decisions about one record since an instant.
type recordCounts struct {
	since time.Time
	of    [len(countedDecisions)]uint32
}

var countedDecisions = [...]semel.Decision{
	semel.Execute, semel.Replay, semel.InFlight, semel.Conflict, semel.Held, semel.TooLate, semel.Throttled, semel.OtherDoor, semel.OtherCaller,
}

// hash stands for the identity. Its seed is random, so nobody can make two identities
// collide; by chance it takes billions of records.
func (o *Observer) hash(id semel.ID) uint64 { return maphash.Comparable(o.seed, id) }

func (o *Observer) count(id semel.ID, d semel.Decision) {
	h := o.hash(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.counts.Get(h)
	if !ok {
		c = &recordCounts{since: o.since}
		if evicted := o.counts.Add(h, c); evicted {
			o.since = o.now()
		}
	}
	for i, known := range countedDecisions {
		if known == d {
			c.of[i]++
		}
	}
}

// decisions returns how many decisions of each kind were made about the record, and since
// when they are counted.
func (o *Observer) decisions(id semel.ID) (map[semel.Decision]int, time.Time) {
	h := o.hash(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := map[semel.Decision]int{}
	c, ok := o.counts.Peek(h)
	if !ok {
		return counts, o.since.UTC()
	}
	for i, n := range c.of {
		if n > 0 {
			counts[countedDecisions[i]] = int(n)
		}
	}
	return counts, c.since.UTC()
}
