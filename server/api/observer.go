package api

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Observer records an engine's events, for the decisions that records show and for the
// stream of decisions. Its memory is bounded, and it never makes the engine wait for a
// reader.
type Observer struct {
	ring   ring
	counts [countShards]countShard
	seed   maphash.Seed
	now    func() time.Time
}

// NewObserver makes an observer. It serves one engine.
func NewObserver() *Observer {
	o := &Observer{seed: maphash.MakeSeed(), now: time.Now}
	start := o.now()
	o.ring.init(start)
	for i := range o.counts {
		o.counts[i].init(start)
	}
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

const (
	countShards   = 16
	countPerShard = 6250 // 100,000 records in all
)

// countShard counts the decisions about the most recently decided records.
type countShard struct {
	mu      sync.Mutex
	of      map[uint64]int32
	entries []countEntry
	newest  int32
	oldest  int32
	// since is when an entry was last evicted. Nothing was counted since then about a
	// record without an entry.
	since time.Time
}

type countEntry struct {
	hash         uint64
	newer, older int32
	since        time.Time
	counts       [len(countedDecisions)]uint32
}

var countedDecisions = [...]semel.Decision{
	semel.Execute, semel.Replay, semel.InFlight, semel.Conflict, semel.Held, semel.TooLate, semel.Throttled, semel.OtherDoor, semel.OtherCaller,
}

const noEntry = -1

func (s *countShard) init(start time.Time) {
	s.of, s.newest, s.oldest, s.since = map[uint64]int32{}, noEntry, noEntry, start
}

// hash stands for the identity. Its seed is random, so nobody can make two identities
// collide; by chance it takes billions of records.
func (o *Observer) hash(id semel.ID) uint64 { return maphash.Comparable(o.seed, id) }

func (o *Observer) count(id semel.ID, d semel.Decision) {
	h := o.hash(id)
	s := &o.counts[h%countShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.of[h]
	if ok {
		s.unlink(at)
	} else {
		at = s.free(o.now)
		s.entries[at] = countEntry{hash: h, since: s.since}
		s.of[h] = at
	}
	s.link(at)
	for i, known := range countedDecisions {
		if known == d {
			s.entries[at].counts[i]++
		}
	}
}

// free returns an unused entry, or evicts that of the record whose last decision is
// oldest.
func (s *countShard) free(now func() time.Time) int32 {
	if len(s.entries) < countPerShard {
		s.entries = append(s.entries, countEntry{})
		return int32(len(s.entries) - 1)
	}
	at := s.oldest
	s.unlink(at)
	delete(s.of, s.entries[at].hash)
	s.since = now()
	return at
}

// link makes the entry the newest.
func (s *countShard) link(at int32) {
	e := &s.entries[at]
	e.newer, e.older = noEntry, s.newest
	if s.newest != noEntry {
		s.entries[s.newest].newer = at
	}
	s.newest = at
	if s.oldest == noEntry {
		s.oldest = at
	}
}

func (s *countShard) unlink(at int32) {
	e := &s.entries[at]
	if e.newer == noEntry {
		s.newest = e.older
	} else {
		s.entries[e.newer].older = e.older
	}
	if e.older == noEntry {
		s.oldest = e.newer
	} else {
		s.entries[e.older].newer = e.newer
	}
}

// decisions returns how many decisions of each kind were made about the record, and since
// when they are counted.
func (o *Observer) decisions(id semel.ID) (map[semel.Decision]int, time.Time) {
	h := o.hash(id)
	s := &o.counts[h%countShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[semel.Decision]int{}
	at, ok := s.of[h]
	if !ok {
		return counts, s.since.UTC()
	}
	for i, n := range s.entries[at].counts {
		if n > 0 {
			counts[countedDecisions[i]] = int(n)
		}
	}
	return counts, s.entries[at].since.UTC()
}
