// Package redisstore keeps records in Redis or Valkey, on one server or in a Cluster, so
// that any number of processes can share them. Every change of a record is one round
// trip: a script that does a compare-and-set and updates the indexes.
//
// How durable your records are depends on the servers' settings, which
// [Store.Durability] reads. A single server with "appendfsync always" keeps everything
// that it acknowledged. With replicas, and in a Cluster, a failover can lose
// acknowledged records, and with them the knowledge that a call was executed:
// replication is asynchronous, and no setting of this package changes that. If you
// can't accept that, choose another store.
//
// You need Redis 7.0 or Valkey 7.2, or a later version.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/store"
)

// Store is a [semel.Store] in Redis. Any number of Stores, in any number of processes, can
// share the same records.
type Store struct {
	opts  Options
	keys  keyspace
	link  *link
	clock offsetclock.Clock
	// readTime reads the clock of a server, and is replaced by tests.
	readTime func(ctx context.Context, c rueidis.Client) (store.Instant, error)
	// queues has one queue for a single server. In a Cluster each shard has its own, because
	// all keys of a script must be in one slot.
	queues []*gather.Queue[*write]
	room   *gather.Room
	asks   chan struct{} // a semaphore that holds one element for each running ask
	name   string        // distinguishes this Store from all others on the same servers
	sends  atomic.Uint64 // see token
	// indexed: every record has its entries in the index of attributes.
	indexed atomic.Bool

	// calls is held for reading by every call, so that Close can wait for them.
	calls  sync.RWMutex
	closed atomic.Bool
	// life is the context of background work. Close cancels it.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

var (
	_ semel.Store = (*Store)(nil)

	errClosed = errors.New("redisstore: closed")
)

// enter begins a call; leave ends it.
func (s *Store) enter() error {
	s.calls.RLock()
	if s.closed.Load() {
		s.calls.RUnlock()
		return errClosed
	}
	return nil
}

func (s *Store) leave() { s.calls.RUnlock() }

// Apply is [store.Store.Apply]: one run of a script, which concurrent callers share (group
// commit).
//
// The run is atomic, even in the append-only file and on replicas. A crash before it leaves
// nothing. A crash after it leaves the record and its index entries, as far as the server is
// durable: the engine recognizes the record by its revision, or [Store.Due] returns it when its
// lease is over.
func (s *Store) Apply(ctx context.Context, from store.Write) (*semel.Record, bool, error) {
	if err := s.enter(); err != nil {
		return nil, false, notApplied(err)
	}
	defer s.leave()
	w, err := s.newWrite(&from)
	if err != nil {
		return nil, false, err
	}
	err = s.queues[w.shard.index%len(s.queues)].Do(ctx, w)
	switch {
	case errors.Is(err, gather.ErrNotSent):
		err = notApplied(err)
	case err == nil: // otherwise the worker still uses w
		err = w.err
	}
	if err != nil {
		return nil, false, fmt.Errorf("redisstore: apply: %w", err)
	}
	w.done()
	return w.current, w.made, nil
}

// Get is [store.Store.Get]. It always reads from a master.
func (s *Store) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	_, key := s.keys.find(id)
	c := s.link.client()
	answers, err := s.ask(ctx, c, c.B().Get().Key(key).Build())
	if err != nil {
		return nil, fmt.Errorf("redisstore: get: %w", err)
	}
	value, err := answers[0].ToString()
	if rueidis.IsRedisNil(err) {
		return nil, semel.ErrNotFound
	}
	if err != nil {
		return nil, s.failed("get", err)
	}
	return s.decode(c, digestOf(key), value)
}

// Extras is [store.Store.Extras].
func (s *Store) Extras() store.Extras {
	return store.Extras{Due: s, Purge: s, Watch: s, Search: s, Durability: s, Writes: s, Clock: s, Queues: s}
}

// Queues is [store.QueueReporter.Queues]. In a Cluster each shard has a queue, and all share a
// room; Queues reports them as one.
func (s *Store) Queues() []store.QueueState {
	var all gather.Load
	for _, q := range s.queues {
		l := q.Load()
		for i, n := range l.Batches {
			all.Batches[i] += n
		}
		all.Full, all.Items = l.Full, all.Items+l.Items
		if all.Since.IsZero() || !l.Since.IsZero() && l.Since.Before(all.Since) {
			all.Since = l.Since
		}
		if l.Answered.After(all.Answered) { // a hanging shard is silent; its neighbours aren't
			all.Answered = l.Answered
		}
	}
	return []store.QueueState{{Name: "writes", Full: all.Full, Batches: all.Batches, Items: all.Items, Silent: all.Silent(), Answered: all.Answered}}
}

// failed returns the error of a call that the server didn't answer.
func (s *Store) failed(call string, err error) error {
	s.link.replaceAfter(err, s.link.client())
	return fmt.Errorf("redisstore: %s: %w", call, err)
}

// Close is [store.Store.Close]. The records stay where they are.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.end()
	s.calls.Lock() // wait until running calls have returned
	defer s.calls.Unlock()
	s.link.close()
	s.work.Wait()
	return nil
}
