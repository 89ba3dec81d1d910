package pebblestore

import (
	"context"
	"slices"
	"sync"
)

// leafHashes remembers the hashes of the newest entries of the evidence log until somebody
// takes them. So extending the Merkle tree each second doesn't have to read the new entries
// back, and tampering with the disk in that second doesn't get into the tree.
type leafHashes struct {
	mu   sync.Mutex
	end  uint64 // the number after the last one
	list [][32]byte
}

// maxHashes limits them to 16 MiB, a few seconds of the largest load. The store forgets older
// ones.
const maxHashes = 1 << 19

// add remembers the entries of a batch that is being written; end is the number after the last.
func (h *leafHashes) add(batch []*op, end uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = end
	for _, o := range batch {
		for i := range o.evidence {
			if o.evidence[i].Hash == [32]byte{} {
				h.list = h.list[:0] // there may be no gap
				continue
			}
			h.list = append(h.list, o.evidence[i].Hash)
		}
	}
	if n := len(h.list); n > maxHashes {
		h.list = slices.Clone(h.list[n-maxHashes/2:])
	}
}

// take returns the hashes of the entries from one number to before another, and forgets those
// and all earlier ones.
func (h *leafHashes) take(from, to uint64) [][32]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.end - uint64(len(h.list))
	if from < first || from >= min(to, h.end) {
		return nil
	}
	h.list = h.list[from-first:] // earlier ones are freed when the list next grows
	return slices.Clone(h.list[:min(to, h.end)-from])
}

// ReadEvidenceHashes returns the Hash of the [store.Entry] values that ReadEvidence returns, as
// far as the store remembers it. It forgets the hashes of earlier entries.
func (s *Store) ReadEvidenceHashes(ctx context.Context, from uint64, limit int) ([][32]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.hashes.take(from, min(s.commits.entries.Load(), from+uint64(max(limit, 0)))), nil
}
