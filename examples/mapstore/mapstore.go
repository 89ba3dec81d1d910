// Package mapstore is the smallest store that passes the contract's tests: a Go map,
// a mutex and the codec. docs/writing-a-store.md builds it step by step. It is there
// to be read and copied; to keep records in memory, use package memstore.
package mapstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

var errClosed = errors.New("mapstore: the store is closed")

// snippet: Type

// Store keeps records in a map, for as long as the process runs. Use [New]. Its methods
// may be called concurrently.
type Store struct {
	start time.Time // has a monotonic reading

	mu      sync.Mutex
	records map[store.ID][]byte // encoded; nil once closed
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	return &Store{start: time.Now(), records: map[store.ID][]byte{}}
}

// end snippet

// snippet: Apply

// Apply is [store.Store.Apply].
func (s *Store) Apply(_ context.Context, w store.Write) (*store.Record, bool, error) {
	encoded, err := codec.Append(nil, w.Record)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current, err := s.load(w.Record.ID)
	var stored store.Revision // zero: no record
	switch {
	case err == nil:
		stored = current.Revision
	case !errors.Is(err, store.ErrNotFound):
		return nil, false, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	if stored != w.Expect {
		return current, false, nil
	}
	if w.Deadline != 0 && s.now() >= w.Deadline {
		return nil, false, store.ErrTooLate
	}
	// A crash before this line or after it loses the whole map: nothing is half done.
	s.records[w.Record.ID] = encoded
	return w.Record, true, nil
}

// end snippet

// snippet: Get

// Get is [store.Store.Get].
func (s *Store) Get(_ context.Context, id store.ID) (*store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(id)
}

// load reads a record. The caller holds the lock.
func (s *Store) load(id store.ID) (*store.Record, error) {
	if s.records == nil {
		return nil, errClosed
	}
	encoded, ok := s.records[id]
	if !ok {
		return nil, store.ErrNotFound
	}
	rec, err := codec.Decode(encoded)
	if err != nil {
		return nil, err
	}
	if rec.ID != id {
		return nil, codec.ErrOther
	}
	return rec, nil
}

// end snippet

// snippet: Now

// Now is [store.Store.Now].
func (s *Store) Now(context.Context) (store.Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		return 0, errClosed
	}
	return s.now(), nil
}

// now goes on from the wall clock at New by the monotonic clock, which never goes back.
func (s *Store) now() store.Instant {
	return store.InstantOf(s.start.Add(time.Since(s.start)))
}

// Close is [store.Store.Close].
func (s *Store) Close() error {
	s.mu.Lock() // no call is running any more once the lock is held
	defer s.mu.Unlock()
	s.records = nil
	return nil
}

// end snippet

// snippet: Extras

// Extras is [store.Store.Extras].
func (s *Store) Extras() store.Extras { return store.Extras{Durability: s} }

// Durability is [store.DurabilityReporter.Durability].
func (s *Store) Durability(context.Context) (store.Durability, error) {
	return store.Durability{
		Level:  store.LevelProcess,
		Unsafe: []string{"the store is a map: every record is lost when the process ends"},
	}, nil
}

// end snippet
