// Package memstore keeps records in memory. It is the oracle that the other
// stores are compared with, and serves tests and programs that need
// deduplication only while they run: everything is lost when the process ends.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/dueindex"
	"github.com/semelhq/semel/internal/hub"
	"github.com/semelhq/semel/store"
)

// Store is a [semel.Store] in memory. It has all of [store.Extras] but an archive. Several
// engines may share one Store. Records take memory until they are purged, which
// [semel.Engine.Sweep] does after their window.
type Store struct {
	start    time.Time     // with its monotonic reading
	first    store.Instant // the same
	offset   atomic.Int64  // added by Advance, in nanoseconds
	closed   atomic.Bool
	watchers hub.Hub[semel.ID]

	mu      sync.Mutex
	records map[hash]entry
	due     dueindex.Index
	// evidence is locked after mu, never before.
	evidence evidence
}

// entry is one identity's entry. Records are shared with the engine and never change; a new
// version replaces the old one.
type entry struct {
	rec *semel.Record
	// since is when the call that was first stored here was created. It orders
	// searches because, unlike the record's CreatedAt, it never changes.
	since store.Instant
	due   int // its place in the list of the due index
}

// hash stands for an identity. With identities as keys, most of the collector's work would go
// into them, and most of the bytes that move when the map grows.
type hash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf(id *semel.ID) (h hash) {
	// Hashing the strings and mixing the results, so that equal ones don't cancel out, takes
	// half as long as hashing the struct.
	const mix = 0x9e3779b97f4a7c15
	for i, seed := range seeds {
		h[i] = ((maphash.String(seed, id.Key)*mix^maphash.String(seed, id.Principal))*mix^maphash.String(seed, id.Operation))*mix ^ maphash.String(seed, id.Tenant)
	}
	return h
}

// find returns the entry of an identity. The caller holds s.mu. Two identities share a hash
// about as often as two random UUIDs are equal. Then one of them gets an error, never the
// other's entry.
func (s *Store) find(h hash, id *semel.ID) (en entry, exists bool, err error) {
	en, exists = s.records[h]
	switch {
	case s.closed.Load():
		return en, false, errClosed
	case exists && en.rec.ID != *id:
		return en, false, errHash
	}
	return en, exists, nil
}

var (
	_ semel.Store = (*Store)(nil)

	errClosed = errors.New("memstore: closed")
	errHash   = fmt.Errorf("memstore: another identity has the same hash: %w", store.ErrNotApplied)
)

// New makes an empty store.
func New() *Store {
	now := time.Now()
	return &Store{start: now, first: store.InstantOf(now), records: map[hash]entry{}}
}

// Apply is [store.Store.Apply].
func (s *Store) Apply(_ context.Context, w store.Write) (*semel.Record, bool, error) {
	next := w.Record
	h := hashOf(&next.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	en, exists, err := s.find(h, &next.ID)
	switch {
	case err != nil:
		return nil, false, err
	case !exists && !w.Expect.IsZero():
		return nil, false, nil
	case exists && en.rec.Revision != w.Expect:
		return en.rec, false, nil
	case w.Deadline != 0 && s.now() >= w.Deadline:
		return nil, false, store.ErrTooLate
	case !exists:
		en = entry{since: next.CreatedAt, due: s.due.Add(next)}
	case en.rec.NextAt == next.NextAt:
		s.due.Replace(en.rec, en.due, next)
	default:
		s.due.Replace(en.rec, en.due, nil)
		en.due = s.due.Add(next)
	}
	en.rec = next
	s.records[h] = en
	if len(w.Evidence) != 0 {
		s.evidence.append(w.Evidence)
	}
	s.watchers.Wake(next.ID)
	return next, true, nil
}

// Get is [store.Store.Get].
func (s *Store) Get(_ context.Context, id semel.ID) (*semel.Record, error) {
	h := hashOf(&id)
	s.mu.Lock()
	defer s.mu.Unlock()
	en, exists, err := s.find(h, &id)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, semel.ErrNotFound
	}
	return en.rec, nil
}

// Now is [store.Store.Now]: the wall clock at New, advanced by the monotonic clock, so that it
// never goes back.
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
func (s *Store) Purge(_ context.Context, refs []store.Ref) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return 0, errClosed
	}
	for i := range refs {
		ref := &refs[i]
		h := hashOf(&ref.ID)
		if en, exists, _ := s.find(h, &ref.ID); exists && en.rec.Revision == ref.Revision {
			delete(s.records, h)
			s.due.Replace(en.rec, en.due, nil)
			s.watchers.Wake(ref.ID)
			n++
		}
	}
	return n, nil
}

// Watch is [store.Watcher.Watch].
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	return s.watchers.Watch(id)
}

// Durability is [store.DurabilityReporter.Durability].
func (s *Store) Durability(context.Context) (store.Durability, error) {
	return store.Durability{
		Level:  store.LevelProcess,
		Unsafe: []string{"the store is in memory: every record is lost when the process ends, and calls are then executed again"},
	}, nil
}

// Len returns how many records the store holds.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// Close drops everything. Later calls fail.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.due = nil, dueindex.Index{}
	s.evidence.drop()
	return nil
}
