package api

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/semelhq/semel"
)

// Observer hears an engine's events, for the decisions that records show and for
// the stream of decisions. Its memory is bounded. It never makes the engine wait
// for a reader.
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

// Events is what the engine is given, or what is called beside others.
func (o *Observer) Events() *semel.Events {
	return &semel.Events{
		Decided: func(ev semel.DecidedEvent) {
			o.count(ev.ID, ev.Decision)
			o.ring.add(event{kind: "decided", id: ev.ID, payload: ev})
		},
		Ended:  func(ev semel.EndedEvent) { o.ring.add(event{kind: "ended", id: ev.ID, payload: ev}) },
		Purged: func(ev semel.PurgedEvent) { o.ring.add(event{kind: "purged", id: ev.ID, payload: ev, at: o.now()}) },
		LeaseLost: func(ev semel.LeaseLostEvent) {
			o.ring.add(event{kind: "lease_lost", id: ev.ID, payload: ev, at: o.now()})
		},
	}
}

const (
	countShards   = 16
	countPerShard = 6250 // 100,000 records in all
)

// countShard counts the decisions about the records that were decided on last.
type countShard struct {
	mu      sync.Mutex
	of      map[uint64]int32
	entries []countEntry
	newest  int32
	oldest  int32
	// since is when the last entry was given up: of a record without an entry
	// nothing was counted since then.
	since time.Time
}

type countEntry struct {
	hash         uint64
	newer, older int32
	since        time.Time
	counts       [len(countedDecisions)]uint32
}

var countedDecisions = [...]semel.Decision{
	semel.Execute, semel.Replay, semel.InFlight, semel.Conflict, semel.Held, semel.Expired, semel.Throttled, semel.OtherDoor, semel.OtherCaller,
}

const noEntry = -1

func (s *countShard) init(start time.Time) {
	s.of, s.newest, s.oldest, s.since = map[uint64]int32{}, noEntry, noEntry, start
}

// hash stands for the identity. Its seed is random, so nobody can make two
// identities meet; by chance it takes billions of records.
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

// free is an entry to use, that of the record decided on longest ago if there is
// no other.
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

// decisions is how many decisions of each kind were made about the record, and
// since when they are counted.
func (o *Observer) decisions(id semel.ID) (map[string]int, time.Time) {
	h := o.hash(id)
	s := &o.counts[h%countShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	at, ok := s.of[h]
	if !ok {
		return counts, s.since.UTC()
	}
	for i, n := range s.entries[at].counts {
		if n > 0 {
			counts[string(countedDecisions[i])] = int(n)
		}
	}
	return counts, s.entries[at].since.UTC()
}
