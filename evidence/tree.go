package evidence

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// The store has the tree in tiles of 256 hashes, as the Go checksum database does, and only
// full ones: they never change, and every node makes the same. Nodes make the edge of the tree
// from the leaves again.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileBytes  = tileWidth * tlog.HashSize
)

// fullTile is the place of a full tile.
func fullTile(level int, index uint64) tlog.Tile {
	return tlog.Tile{H: tileHeight, L: level, N: int64(index), W: tileWidth}
}

// tree is the right edge of a Merkle tree: for each level of tiles, the one that is not
// full.
type tree struct {
	size   uint64
	levels [][]byte
}

// add appends a leaf. full is called with each tile that it completes, in memory that is
// used again.
func (t *tree) add(h tlog.Hash, full func(tile tlog.Tile, data []byte)) {
	t.size++
	for level := 0; ; level++ {
		if level == len(t.levels) {
			t.levels = append(t.levels, make([]byte, 0, tileBytes))
		}
		data := append(t.levels[level], h[:]...)
		t.levels[level] = data
		if len(data) < tileBytes {
			return
		}
		tile := fullTile(level, t.size>>(tileHeight*(level+1))-1)
		if full != nil {
			full(tile, data)
		}
		h = tileRoot(tile, data)
		t.levels[level] = data[:0]
	}
}

// tileRoot is the root over the hashes of a full tile.
func tileRoot(tile tlog.Tile, data []byte) tlog.Hash {
	var half [2]tlog.Hash
	for i := range half {
		half[i] = hashIn(tile, data, tlog.StoredHashIndex(tile.L*tileHeight+tileHeight-1, 2*tile.N+int64(i)))
	}
	return tlog.NodeHash(half[0], half[1])
}

// hashIn is a hash that a tile has, or that follows from its hashes.
func hashIn(tile tlog.Tile, data []byte, index int64) tlog.Hash {
	h, err := tlog.HashFromTile(tile, data, index)
	if err != nil {
		panic(fmt.Sprintf("evidence: %s has no hash %d: %v", tile.Path(), index, err)) // nothing may be signed
	}
	return h
}

// root is the hash of the whole tree.
func (t *tree) root() tlog.Hash {
	h, _ := tlog.TreeHash(int64(t.size), tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			tile := tlog.TileForIndex(tileHeight, index)
			hashes[i] = hashIn(tile, t.levels[tile.L], index)
		}
		return hashes, nil
	}))
	return h
}

// leafHash is the hash of a leaf in the tree.
func leafHash(leaf []byte) tlog.Hash { return tlog.RecordHash(leaf) }
