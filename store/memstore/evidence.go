package memstore

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// evidence is the evidence log. Entries are numbered as they are written.
type evidence struct {
	mu       sync.RWMutex
	entries  []store.Entry
	subjects map[store.Subject][]uint64 // rising
	tiles    map[string][]byte
}

func (ev *evidence) append(entries []store.Entry) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.subjects == nil {
		ev.subjects = map[store.Subject][]uint64{}
	}
	for _, en := range entries {
		for _, s := range append([]store.Subject{en.Subject}, en.Also...) {
			if found := ev.subjects[s]; s != (store.Subject{}) && (len(found) == 0 || found[len(found)-1] != uint64(len(ev.entries))) {
				ev.subjects[s] = append(found, uint64(len(ev.entries)))
			}
		}
		ev.entries = append(ev.entries, en)
	}
}

// drop releases the whole log.
func (ev *evidence) drop() {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.entries, ev.subjects, ev.tiles = nil, nil, nil
}

// AppendEvidence is [store.EvidenceLog.AppendEvidence].
func (s *Store) AppendEvidence(_ context.Context, entries []store.Entry) error {
	if s.closed.Load() {
		return errClosed
	}
	s.evidence.append(entries)
	return nil
}

// ReadEvidence is [store.EvidenceLog.ReadEvidence].
func (s *Store) ReadEvidence(_ context.Context, from uint64, limit int) ([]store.Entry, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	ev := &s.evidence
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	if from >= uint64(len(ev.entries)) || limit <= 0 {
		return nil, nil
	}
	rest := ev.entries[from:]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

// FindEvidence is [store.EvidenceLog.FindEvidence].
func (s *Store) FindEvidence(_ context.Context, subject store.Subject, from uint64, limit int) ([]uint64, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	ev := &s.evidence
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	all := ev.subjects[subject]
	all = all[sort.Search(len(all), func(i int) bool { return all[i] >= from }):]
	return slices.Clone(all[:min(max(limit, 0), len(all))]), nil
}

// EraseEvidence is [store.EvidenceLog.EraseEvidence].
func (s *Store) EraseEvidence(_ context.Context, from, to uint64) error {
	if s.closed.Load() {
		return errClosed
	}
	ev := &s.evidence
	ev.mu.Lock()
	defer ev.mu.Unlock()
	for i := from; i < min(to, uint64(len(ev.entries))); i++ {
		ev.entries[i].Opening = nil
	}
	return nil
}

// PutEvidenceTiles is [store.EvidenceLog.PutEvidenceTiles].
func (s *Store) PutEvidenceTiles(_ context.Context, tiles map[string][]byte) error {
	if s.closed.Load() {
		return errClosed
	}
	ev := &s.evidence
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.tiles == nil {
		ev.tiles = map[string][]byte{}
	}
	maps.Copy(ev.tiles, tiles)
	return nil
}

// EvidenceTile is [store.EvidenceLog.EvidenceTile].
func (s *Store) EvidenceTile(_ context.Context, name string) ([]byte, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	ev := &s.evidence
	ev.mu.RLock()
	defer ev.mu.RUnlock()
	tile, ok := ev.tiles[name]
	if !ok {
		return nil, semel.ErrNotFound
	}
	return tile, nil
}
