package evidence

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// The store has the tree in tiles of 256 hashes, like the Go checksum database, and only full
// ones: they never change, and every node makes the same ones. Nodes rebuild the edge of the
// tree from the leaves.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileBytes  = tileWidth * tlog.HashSize
)

func fullTile(level int, index uint64) tlog.Tile {
	return tlog.Tile{H: tileHeight, L: level, N: int64(index), W: tileWidth}
}

// tree is the right edge of a Merkle tree: on each level of tiles, the one that isn't full.
type tree struct {
	size   uint64
	levels [][]byte
}

// add appends a leaf. It calls full with each tile that it completes, in memory that it reuses.
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

// tileRoot returns the root over the hashes of a full tile.
func tileRoot(tile tlog.Tile, data []byte) tlog.Hash {
	var half [2]tlog.Hash
	for i := range half {
		half[i] = hashIn(tile, data, tlog.StoredHashIndex(tile.L*tileHeight+tileHeight-1, 2*tile.N+int64(i)))
	}
	return tlog.NodeHash(half[0], half[1])
}

// hashIn returns a hash that is in a tile, or that follows from the tile's hashes.
func hashIn(tile tlog.Tile, data []byte, index int64) tlog.Hash {
	h, err := tlog.HashFromTile(tile, data, index)
	if err != nil {
		panic(fmt.Sprintf("evidence: %s has no hash %d: %v", tile.Path(), index, err)) // signing anything now would be wrong
	}
	return h
}

// root returns the hash of the whole tree.
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

// leafHash returns the hash of a leaf in the tree.
func leafHash(leaf []byte) tlog.Hash { return tlog.RecordHash(leaf) }

func readFull(ctx context.Context, store logStore, tile tlog.Tile) ([]byte, error) {
	data, err := store.EvidenceTile(ctx, tile.Path())
	if err != nil {
		return nil, fmt.Errorf("evidence: %s: %w", tile.Path(), err)
	}
	if len(data) != tileBytes {
		return nil, fmt.Errorf("evidence: %s has %d bytes", tile.Path(), len(data))
	}
	return data, nil
}

// readEdge rebuilds the edge of a tree of this size: from leaves, and from the full tiles below
// each level.
func readEdge(ctx context.Context, store logStore, size uint64) (*tree, error) {
	t := &tree{size: size}
	for level := 0; size>>(tileHeight*level) > 0; level++ {
		end := size >> (tileHeight * level)
		data := make([]byte, 0, tileBytes)
		for n := end &^ (tileWidth - 1); n < end; {
			if level > 0 {
				tile := fullTile(level-1, n)
				below, err := readFull(ctx, store, tile)
				if err != nil {
					return nil, err
				}
				h := tileRoot(tile, below)
				data = append(data, h[:]...)
				n++
				continue
			}
			entries, err := store.ReadEvidence(ctx, n, int(end-n))
			if err != nil {
				return nil, err
			}
			if len(entries) == 0 {
				return nil, fmt.Errorf("evidence: the store has no entry %d, which a checkpoint has", n)
			}
			for i := range entries {
				h := leafHash(entries[i].Leaf)
				data = append(data, h[:]...)
			}
			n += uint64(len(entries))
		}
		t.levels = append(t.levels, data)
	}
	return t, nil
}

// tileReader reads tiles for proofs. It is used by one goroutine.
type tileReader struct {
	ctx    context.Context // of the one call that it serves
	store  logStore
	size   uint64 // of the tree
	edge   *tree  // nil: not read yet
	cached map[tlog.Tile][]byte
}

// maxCachedTiles limits what a reader remembers to 64 MiB. An export with proofs asks for the
// same tiles once for each entry.
const maxCachedTiles = 8192

// Height is [tlog.TileReader.Height].
func (r *tileReader) Height() int { return tileHeight }

// ReadTiles is [tlog.TileReader.ReadTiles].
func (r *tileReader) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, tile := range tiles {
		data, err := r.read(tile)
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func (r *tileReader) read(tile tlog.Tile) (data []byte, err error) {
	if tile.W < tileWidth {
		if r.edge == nil {
			if r.edge, err = readEdge(r.ctx, r.store, r.size); err != nil {
				return nil, err
			}
		}
		return r.edge.levels[tile.L][:tile.W*tlog.HashSize], nil // only tiles of the edge aren't full
	}
	if data, ok := r.cached[tile]; ok {
		return data, nil
	}
	if data, err = readFull(r.ctx, r.store, tile); err != nil {
		return nil, err
	}
	if len(r.cached) >= maxCachedTiles {
		clear(r.cached)
	}
	r.cached[tile] = data
	return data, nil
}

// SaveTiles is [tlog.TileReader.SaveTiles]. The store already has the full tiles.
func (r *tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
