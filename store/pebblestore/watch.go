package pebblestore

import (
	"context"

	"github.com/semelhq/semel"
)

// Watch is [semel.WatchStore.Watch]. It tells of a change when that is durable.
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	key := id.Digest()
	st := s.stripe(&key)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.watchers == nil {
		st.watchers = map[digest]map[chan struct{}]struct{}{}
	}
	if st.watchers[key] == nil {
		st.watchers[key] = map[chan struct{}]struct{}{}
	}
	st.watchers[key][ch] = struct{}{}
	return ch, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.watchers[key], ch)
		if len(st.watchers[key]) == 0 {
			delete(st.watchers, key)
		}
	}
}

// notify wakes those who watch a record. The caller holds st.mu.
func (st *stripe) notify(key *digest) {
	if len(st.watchers) == 0 {
		return
	}
	for ch := range st.watchers[*key] {
		select {
		case ch <- struct{}{}:
		default: // a notice is waiting already
		}
	}
}
