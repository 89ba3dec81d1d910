// Package memstore keeps records in memory. It is the oracle that the other
// stores are compared with, and serves tests and programs that need
// deduplication only while they run: everything is lost when the process ends.
package memstore

import (
	"context"
	"errors"
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
	start    time.Time     // with its monotonic reading
	first    store.Instant // the same
	offset   atomic.Int64  // nanoseconds added by Advance
	closed   atomic.Bool
	watchers hub.Hub[semel.ID]

	mu      sync.Mutex
	records map[semel.ID]entry
	due     dueIndex
	// evidence is locked after mu, never before.
	evidence evidence
}

// entry is what is stored for one identity. Records are shared with the engine and
// never change; a new version replaces the old one.
type entry struct {
	rec *semel.Record
	// since is when the call that was first stored here was created. It orders
	// searches because, unlike the record's CreatedAt, it never changes.
	since store.Instant
}

var (
	_ semel.Store = (*Store)(nil)

	errClosed = errors.New("memstore: closed")
)

// New makes an empty store.
func New() *Store {
	now := time.Now()
	return &Store{start: now, first: store.InstantOf(now), records: map[semel.ID]entry{}}
}

// Apply is [store.Store.Apply].
func (s *Store) Apply(_ context.Context, w store.Write) (*semel.Record, bool, error) {
	next := w.Record
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, false, errClosed
	}
	en, exists := s.records[next.ID]
	switch {
	case !exists && !w.Expect.IsZero():
		return nil, false, nil
	case exists && en.rec.Revision != w.Expect:
		return en.rec, false, nil
	case w.Deadline != 0 && s.now() >= w.Deadline:
		return nil, false, store.ErrTooLate
	case exists:
		s.due.remove(en.rec)
	default:
		en.since = next.CreatedAt
	}
	en.rec = next
	s.records[next.ID] = en
	s.due.add(next)
	if len(w.Evidence) != 0 {
		s.evidence.append(w.Evidence)
	}
	s.watchers.Wake(next.ID)
	return next, true, nil
}

// Get is [store.Store.Get].
func (s *Store) Get(_ context.Context, id semel.ID) (*semel.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, errClosed
	}
	if en, exists := s.records[id]; exists {
		return en.rec, nil
	}
	return nil, semel.ErrNotFound
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
func (s *Store) Purge(_ context.Context, refs []store.Ref) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return 0, errClosed
	}
	for i := range refs {
		ref := &refs[i]
		if en, exists := s.records[ref.ID]; exists && en.rec.Revision == ref.Revision {
			delete(s.records, ref.ID)
			s.due.remove(en.rec)
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

// Len is how many records are kept.
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
	s.records, s.due = nil, dueIndex{}
	s.evidence.drop()
	return nil
}
