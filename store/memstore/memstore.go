// Package memstore keeps records in memory. It is the oracle that the other
// stores are compared with, and serves tests and programs that need
// deduplication only while they run: everything is lost when the process ends.
package memstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/hub"
	"github.com/semelhq/semel/store"
)

// Store is a [semel.Store] in memory. It has all of [store.Extras] but an archive. Several
// engines may share one Store. Records take memory until they are purged, which
// [semel.Engine.Sweep] does after their window.
type Store struct {
	start  time.Time     // with its monotonic reading
	first  store.Instant // the same
	offset atomic.Int64  // nanoseconds added by Advance
	closed atomic.Bool
	shards [shardCount]shard
	// evidence is locked after a shard, never before.
	evidence evidence
}

const shardCount = 64

// seed is the same for all stores of the process, for a record may be copied from
// one to another with its hash.
var seed = maphash.MakeSeed()

type shard struct {
	mu       sync.Mutex
	closed   bool
	records  map[uint64]*entry // by hash; entries of equal hash are chained
	count    int
	due      dueIndex
	watchers hub.Hub[semel.ID]
}

// entry is the place of one identity. Records are shared with the engine and
// never change; a new version replaces the old one.
type entry struct {
	rec  *semel.Record
	next *entry // of the same hash
	// since is when the call that was first stored here was created. It orders
	// searches because, unlike the record's CreatedAt, it never changes.
	since store.Instant
	// before and after are the trees below it in the due index, whose entries have a
	// smaller weight.
	before, after *entry
	weight        uint32
}

var (
	_ semel.Store = (*Store)(nil)

	errClosed = errors.New("memstore: closed")
)

// New makes an empty store.
func New() *Store {
	now := time.Now()
	return &Store{start: now, first: store.InstantOf(now)}
}

// hashOf is computed once for each call, because it is among the most expensive steps.
func hashOf(id *semel.ID) uint64 {
	// Four hashes of strings, mixed so that equal members don't cancel out, take
	// half the time of one hash of the struct.
	const mix = 0x9e3779b97f4a7c15
	h := maphash.String(seed, id.Key)
	h = h*mix ^ maphash.String(seed, id.Principal)
	h = h*mix ^ maphash.String(seed, id.Operation)
	h = h*mix ^ maphash.String(seed, id.Tenant)
	return h
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash%shardCount] }

// find returns the entry of an identity, or nil. The shard is locked.
func (sh *shard) find(hash uint64, id *semel.ID) *entry {
	for en := sh.records[hash]; en != nil; en = en.next {
		if en.rec.ID == *id {
			return en
		}
	}
	return nil
}

// insert adds an empty entry. The shard is locked.
func (sh *shard) insert(hash uint64, since store.Instant) *entry {
	if sh.records == nil {
		sh.records = map[uint64]*entry{}
	}
	en := &entry{next: sh.records[hash], since: since}
	sh.records[hash] = en
	sh.count++
	return en
}

// remove takes an entry out. The shard is locked.
func (sh *shard) remove(hash uint64, en *entry) {
	if first := sh.records[hash]; first != en {
		for first.next != en {
			first = first.next
		}
		first.next = en.next
	} else if en.next != nil {
		sh.records[hash] = en.next
	} else {
		delete(sh.records, hash)
	}
	sh.due.remove(en)
	sh.count--
}

// Apply is [store.Store.Apply].
func (s *Store) Apply(_ context.Context, w store.Write) (semel.Record, bool, error) {
	next := &w.Record
	hash := hashOf(&next.ID)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return semel.Record{}, false, errClosed
	}
	en := sh.find(hash, &next.ID)
	switch {
	case en == nil && !w.Expect.IsZero():
		return semel.Record{}, false, nil
	case en != nil && en.rec.Revision != w.Expect:
		return *en.rec, false, nil
	case w.Deadline != 0 && s.now() >= w.Deadline:
		return semel.Record{}, false, store.ErrTooLate
	case en == nil:
		en = sh.insert(hash, next.CreatedAt)
	}
	sh.due.move(en, next)
	if len(w.Evidence) != 0 {
		s.evidence.append(w.Evidence)
	}
	sh.watchers.Wake(next.ID)
	return *next, true, nil
}

// Get is [store.Store.Get].
func (s *Store) Get(_ context.Context, id semel.ID) (semel.Record, error) {
	hash := hashOf(&id)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.closed {
		return semel.Record{}, errClosed
	}
	if en := sh.find(hash, &id); en != nil {
		return *en.rec, nil
	}
	return semel.Record{}, semel.ErrNotFound
}

// Now is [store.Store.Now]: the wall clock at New, carried on by the monotonic
// one, so that it never goes back.
func (s *Store) Now(context.Context) (store.Instant, error) {
	if s.closed.Load() {
		return 0, errClosed
	}
	return s.now(), nil
}

func (s *Store) now() store.Instant {
	return s.first.Add(time.Since(s.start) + time.Duration(s.offset.Load()))
}

// Advance moves the store's clock forward, for tests.
func (s *Store) Advance(d time.Duration) {
	s.offset.Add(int64(d))
}

// Purge is [store.Purger.Purge].
func (s *Store) Purge(_ context.Context, refs []store.Ref) (int, error) {
	n := 0
	for i := range refs {
		ref := &refs[i]
		hash := hashOf(&ref.ID)
		sh := s.shard(hash)
		sh.mu.Lock()
		if sh.closed {
			sh.mu.Unlock()
			return n, errClosed
		}
		if en := sh.find(hash, &ref.ID); en != nil && en.rec.Revision == ref.Revision {
			sh.remove(hash, en)
			sh.watchers.Wake(ref.ID)
			n++
		}
		sh.mu.Unlock()
	}
	return n, nil
}

// Watch is [store.Watcher.Watch].
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	return s.shard(hashOf(&id)).watchers.Watch(id)
}

// Durability is [store.DurabilityReporter.Durability].
func (s *Store) Durability(context.Context) (store.Durability, error) {
	return store.Durability{
		Level:  store.LevelProcess,
		Unsafe: []string{"the store is in memory: every record is lost when the process ends, and calls are then executed again"},
	}, nil
}

// Len is how many records are kept.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.count
		sh.mu.Unlock()
	}
	return n
}

// Close drops everything. Later calls fail.
func (s *Store) Close() error {
	s.closed.Store(true)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.closed, sh.records, sh.count, sh.due = true, nil, 0, dueIndex{}
		sh.mu.Unlock()
	}
	s.evidence.drop()
	return nil
}
