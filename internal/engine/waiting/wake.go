package waiting

import (
	"hash/maphash"
	"sync"

	"github.com/semelhq/semel/store"
)

// seed is the hash seed for the shards of all [Wakes].
var seed = maphash.MakeSeed()

// Wakes wakes the listeners for changes of a record.
type Wakes struct {
	shards [32]wakeShard
}

type wakeShard struct {
	mu sync.Mutex
	m  map[store.ID]*wakeGroup
}

// wakeGroup is shared by all listeners for one record.
type wakeGroup struct {
	members int
	woken   chan struct{}
}

func (w *Wakes) shard(id store.ID) *wakeShard {
	return &w.shards[maphash.Comparable(seed, id)%uint64(len(w.shards))]
}

// Listen returns a channel that is closed at the next wake. Call unlisten when you no
// longer listen.
func (w *Wakes) Listen(id store.ID) (woken <-chan struct{}, unlisten func()) {
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.m[id]
	if g == nil {
		if s.m == nil {
			s.m = map[store.ID]*wakeGroup{}
		}
		g = &wakeGroup{woken: make(chan struct{})}
		s.m[id] = g
	}
	g.members++
	return g.woken, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g.members--; g.members == 0 && s.m[id] == g {
			delete(s.m, id)
		}
	}
}

// Wake closes the channels of all listeners for the record.
func (w *Wakes) Wake(id store.ID) {
	s := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.m[id]; g != nil {
		close(g.woken)
		delete(s.m, id)
	}
}
