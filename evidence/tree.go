package evidence

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"
)

// The tree is stored in tiles of 256 hashes, as the Go checksum database does. Only
// full ones are stored: they never change, and whoever makes one makes the same. The
// edge of the tree is made from the leaves again.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// tileName names a full tile in the store.
func tileName(level int, index uint64) string {
	return tlog.Tile{H: tileHeight, L: level, N: int64(index), W: tileWidth}.Path()
}

// tree is the right edge of a Merkle tree: for each level of tiles, the hashes of
// the one that is not full.
type tree struct {
	size   uint64
	levels [][]tlog.Hash
}

// add appends a leaf. full is called with each tile that it completes.
func (t *tree) add(h tlog.Hash, full func(level int, index uint64, hashes []tlog.Hash)) {
	t.size++
	for level := 0; ; level++ {
		if level == len(t.levels) {
			t.levels = append(t.levels, make([]tlog.Hash, 0, tileWidth))
		}
		t.levels[level] = append(t.levels[level], h)
		if len(t.levels[level]) < tileWidth {
			return
		}
		full(level, t.size>>(tileHeight*(level+1))-1, t.levels[level])
		h = perfect(t.levels[level])
		t.levels[level] = t.levels[level][:0]
	}
}

// root is the hash of the whole tree.
func (t *tree) root() tlog.Hash {
	var r rightFold
	for _, hashes := range t.levels {
		for bit, end := 0, len(hashes); end > 0; bit++ {
			if end&(1<<bit) != 0 {
				r.left(perfect(hashes[end-1<<bit : end]))
				end -= 1 << bit
			}
		}
	}
	return r.root()
}

// rightFold joins perfect trees from right to left.
type rightFold struct {
	hash tlog.Hash
	some bool
}

func (r *rightFold) left(h tlog.Hash) {
	if r.some {
		h = tlog.NodeHash(h, r.hash)
	}
	r.hash, r.some = h, true
}

func (r *rightFold) root() tlog.Hash {
	if !r.some {
		return emptyRoot
	}
	return r.hash
}

// emptyRoot is the root of a log without entries, by RFC 6962.
var emptyRoot, _ = tlog.TreeHash(0, nil)

// perfect is the root over 2^n hashes.
func perfect(hashes []tlog.Hash) tlog.Hash {
	if len(hashes) == 1 {
		return hashes[0]
	}
	half := len(hashes) / 2
	return tlog.NodeHash(perfect(hashes[:half]), perfect(hashes[half:]))
}

// stack is the same edge for one who only wants roots, often: the roots of the
// perfect trees that the leaves make, the largest first.
type stack struct {
	size   uint64
	hashes []tlog.Hash
}

func (s *stack) add(h tlog.Hash) {
	for n := s.size; n&1 == 1; n >>= 1 {
		last := len(s.hashes) - 1
		h = tlog.NodeHash(s.hashes[last], h)
		s.hashes = s.hashes[:last]
	}
	s.hashes = append(s.hashes, h)
	s.size++
}

func (s *stack) root() tlog.Hash {
	var r rightFold
	for i := len(s.hashes) - 1; i >= 0; i-- {
		r.left(s.hashes[i])
	}
	return r.root()
}

// leafHash is the hash of a leaf in the tree. It is tlog.RecordHash without its
// allocations.
func leafHash(leaf []byte) tlog.Hash {
	var stack [1 << 10]byte
	return sha256.Sum256(append(append(stack[:0], leafMark), leaf...))
}

// leafMark comes before a leaf that is hashed (RFC 6962).
const leafMark = 0
