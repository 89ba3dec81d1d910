package pebblestore

import (
	"context"
	"slices"
	"sync"

	"github.com/semelhq/semel"
)

// leafHashes remembers the hashes of the newest entries of the evidence log, until
// they are asked for. Who extends the Merkle tree every second then reads nothing of
// what was just written, and what somebody changed on the disk meanwhile doesn't
// become part of the tree.
type leafHashes struct {
	mu   sync.Mutex
	end  uint64 // the number after the last one
	list [][32]byte
}

// maxHashes bounds what is remembered, to 16 MiB: some seconds of the largest load.
// Older ones are forgotten.
const maxHashes = 1 << 19

// add takes note of entries that are written, in their order. The last one is before
// the number end.
func (h *leafHashes) add(end uint64, lists [][]semel.Entry) {
	if len(lists) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for _, list := range lists {
		for i := range list {
			if list[i].Hash == [32]byte{} {
				h.list = h.list[:0] // there may be no gap
				continue
			}
			h.list = append(h.list, list[i].Hash)
		}
	}
	if n := len(h.list); n > maxHashes {
		h.list = slices.Clone(h.list[n-maxHashes/2:])
	}
}

// take returns the hashes from a number on to before another, and forgets those
// before them.
func (h *leafHashes) take(from, to uint64) [][32]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.end - uint64(len(h.list))
	if from < first || from >= min(to, h.end) {
		return nil
	}
	h.list = h.list[from-first:] // what is before goes when the list next grows
	return slices.Clone(h.list[:min(to, h.end)-from])
}

// ReadEvidenceHashes returns [semel.Entry.Hash] of what ReadEvidence returns, as far
// as the store remembers it. Whoever asks has no use for those before any more.
func (s *Store) ReadEvidenceHashes(ctx context.Context, from uint64, limit int) ([][32]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.hashes.take(from, min(s.evidence.durable.Load(), from+uint64(max(limit, 0)))), nil
}
