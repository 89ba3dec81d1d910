// Package redisstore keeps records in Redis or Valkey, one server or a Cluster, so
// that any number of processes share them. Every change of a record is one round
// trip: a script that compares and sets, and keeps the indexes.
//
// What it promises is what the servers' settings give, which
// [Store.Durability] reads. A single server that syncs its append-only file
// always keeps what it acknowledged. With replicas, and in a Cluster, a failover
// may lose acknowledged records and with them the knowledge that a call was
// executed: replication is asynchronous, and no setting of this package changes
// that. Where that is not acceptable, another store is the choice.
//
// It needs Redis 7.0 or Valkey 7.2, or later ones.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// Store is a [semel.Store] in Redis. Any number of Stores, in any number of
// processes, work on the same records.
type Store struct {
	opts  Options
	keys  keyspace
	link  link
	clock clock
	watch watchers
	// writes are of one shard each.
	writes []batcher
	room   room
	stages stages
	asks   chan struct{} // has one for each question that is on its way, see ask
	name   string        // of this Store among all that use the servers
	sends  atomic.Uint64 // see token

	// calls is held for reading by every call, so that Close can wait for them.
	calls  sync.RWMutex
	closed atomic.Bool
	// life ends background work. It is cancelled by Close.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

var (
	_ semel.Store           = (*Store)(nil)
	_ semel.DueStore        = (*Store)(nil)
	_ semel.PurgeStore      = (*Store)(nil)
	_ semel.WatchStore      = (*Store)(nil)
	_ semel.SearchStore     = (*Store)(nil)
	_ semel.DurabilityStore = (*Store)(nil)

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

// Apply is [semel.Store.Apply]: one run of a script, which writes of concurrent callers
// of a shard share, and a lone one waits for nobody. On a single server larger values
// travel beside it, in the same transaction, see [stage.eval].
//
// All of that is atomic, in the append-only file and on replicas too. A crash
// before it leaves nothing; a crash after it leaves the record, in the stream of
// its shard, and where it can't wait, in the due index, as far as the server's
// durability goes. The engine finds it by its revision; [Store.Due] completes the
// indexes.
func (s *Store) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	if err := s.enter(); err != nil {
		return semel.Record{}, false, notApplied(err)
	}
	defer s.leave()
	rec := &w.Record
	digest := rec.ID.Digest()
	call := writes.Get().(*write)
	if err := call.fill(s, &w, &digest); err != nil {
		return semel.Record{}, false, err
	}
	if err := s.writes[call.shard.index].do(ctx, call); err != nil {
		return semel.Record{}, false, fmt.Errorf("redisstore: apply: %w", err) // the client may still send it
	}
	defer call.free()
	switch {
	case call.made:
		return *rec, true, nil
	case call.there == "": // what it was to follow is gone
		return semel.Record{}, false, nil
	}
	cur, err := s.decode(call.client, rec.ID, []byte(call.there))
	return cur, false, err
}

// Get is [semel.Store.Get]. It reads from the master.
func (s *Store) Get(ctx context.Context, id semel.ID) (semel.Record, error) {
	if err := s.enter(); err != nil {
		return semel.Record{}, err
	}
	defer s.leave()
	digest := id.Digest()
	_, key := s.keys.find(&digest)
	c := s.link.client()
	res, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult {
		return []rueidis.RedisResult{c.Do(ctx, c.B().Get().Key(key).Build())}
	})
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: get: %w", err)
	}
	value, err := res[0].AsBytes()
	if rueidis.IsRedisNil(err) {
		return semel.Record{}, semel.ErrNotFound
	}
	if err != nil {
		return semel.Record{}, s.failed("get", err)
	}
	return s.decode(c, id, value)
}

// decode reads the value of an identity. Every record that is read comes through
// here or through [Store.decodeAt].
func (s *Store) decode(c rueidis.Client, id semel.ID, value []byte) (semel.Record, error) {
	rec, err := recordcodec.Decode(value[min(headLen, len(value)):])
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: the record of %s: %w", id, err)
	}
	if rec.ID != id {
		s.link.replace(c)
		return semel.Record{}, fmt.Errorf("redisstore: the record of %s: %w", id, errMixedUp)
	}
	return rec, nil
}

// failed is how a call that got no answer to rely on ends.
func (s *Store) failed(call string, err error) error {
	if isReadOnly(err) && !s.link.cluster {
		s.link.replace(s.link.client()) // as in send
	}
	return fmt.Errorf("redisstore: %s: %w", call, err)
}

// Close is [semel.Store.Close]. The records stay where they are.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.end()
	s.calls.Lock() // until running calls have returned
	defer s.calls.Unlock()
	s.watch.close()
	s.link.close()
	s.work.Wait()
	return nil
}
