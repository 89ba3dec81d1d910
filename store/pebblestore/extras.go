package pebblestore

import (
	"context"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Extras is [store.Store.Extras].
func (s *Store) Extras() store.Extras {
	return store.Extras{Due: s, Purge: s, Watch: s, Search: s, Durability: s, Evidence: s, Hashes: s, Clock: s, Queues: s, Local: true}
}

// Queues is [store.QueueReporter.Queues]. A read-only store has none.
func (s *Store) Queues() []store.QueueState {
	if s.readOnly {
		return nil
	}
	l := s.commits.queue.Load()
	return []store.QueueState{{Name: "writes", Full: l.Full, Batches: l.Batches, Items: l.Items, Silent: l.Silent(), Answered: l.Answered}}
}

// Watch is [store.Watcher.Watch]. It reports a change once the change is durable.
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	key := id.Digest()
	return s.stripe(&key).watchers.Watch(key)
}

// Durability is [store.DurabilityReporter.Durability]. There is no setting that makes
// the store less durable: every answer waits for the disk.
func (s *Store) Durability(context.Context) (store.Durability, error) {
	return store.Durability{Level: store.LevelDisk, Settings: []store.Setting{{Name: "sync", Value: "every write"}}}, nil
}
