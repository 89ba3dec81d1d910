package evidence

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// cellName names the cell that holds the head of the log.
const cellName = "evidence"

// appendHashes is a tile as it is stored.
func appendHashes(hashes []tlog.Hash) []byte {
	data := make([]byte, 0, len(hashes)*tlog.HashSize)
	for i := range hashes {
		data = append(data, hashes[i][:]...)
	}
	return data
}

// fullTile reads a full tile.
func fullTile(ctx context.Context, store Store, level int, index uint64) ([]tlog.Hash, error) {
	data, err := store.EvidenceTile(ctx, tileName(level, index))
	if err != nil {
		return nil, fmt.Errorf("evidence: %s: %w", tileName(level, index), err)
	}
	if len(data) != tileWidth*tlog.HashSize {
		return nil, fmt.Errorf("evidence: %s has %d bytes", tileName(level, index), len(data))
	}
	hashes := make([]tlog.Hash, tileWidth)
	for i := range hashes {
		copy(hashes[i][:], data[i*tlog.HashSize:])
	}
	return hashes, nil
}

// partialTile makes a tile that is not full: from leaves, or from the full tiles
// below it.
func partialTile(ctx context.Context, store Store, level int, index uint64, width int) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, 0, tileWidth)
	first := index << tileHeight
	if level > 0 {
		for i := range uint64(width) {
			below, err := fullTile(ctx, store, level-1, first+i)
			if err != nil {
				return nil, err
			}
			hashes = append(hashes, perfect(below))
		}
		return hashes, nil
	}
	for len(hashes) < width {
		entries, err := store.ReadEvidence(ctx, first+uint64(len(hashes)), width-len(hashes))
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("evidence: the store has no entry %d, which a checkpoint has", first+uint64(len(hashes)))
		}
		var d dates
		for i := range entries {
			hashes = append(hashes, leafHash(unpackLeaf(entries[i].Leaf, &d)))
		}
	}
	return hashes, nil
}

// readEdge makes the edge of the tree of a size.
func readEdge(ctx context.Context, store Store, size uint64) (*tree, error) {
	t := &tree{size: size}
	for level := 0; size>>(tileHeight*level) > 0; level++ {
		n := size >> (tileHeight * level)
		hashes, err := partialTile(ctx, store, level, n>>tileHeight, int(n%tileWidth))
		if err != nil {
			return nil, err
		}
		t.levels = append(t.levels, hashes)
	}
	return t, nil
}

// tileReader reads tiles for proofs. It is used by one goroutine.
type tileReader struct {
	ctx    context.Context // of the one call that it is made for
	store  Store
	cached map[tlog.Tile][]byte
}

// maxCachedTiles bounds what a reader remembers, to 64 MiB.
const maxCachedTiles = 8192

// Height is [tlog.TileReader.Height].
func (r *tileReader) Height() int { return tileHeight }

// ReadTiles is [tlog.TileReader.ReadTiles].
func (r *tileReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, tile := range tiles {
		if data, ok := r.cached[tile]; ok {
			all[i] = data
			continue
		}
		var hashes []tlog.Hash
		err := errors.New("evidence: a tile without a place")
		switch {
		case tile.L < 0 || tile.N < 0 || tile.H != tileHeight:
		case tile.W == tileWidth:
			hashes, err = fullTile(r.ctx, r.store, tile.L, uint64(tile.N))
		default:
			hashes, err = partialTile(r.ctx, r.store, tile.L, uint64(tile.N), tile.W)
		}
		if err != nil {
			return nil, err
		}
		all[i] = appendHashes(hashes)
		if len(r.cached) >= maxCachedTiles {
			clear(r.cached)
		}
		r.cached[tile] = all[i]
	}
	return all, nil
}

// SaveTiles is [tlog.TileReader.SaveTiles]. What is worth saving is stored already.
func (r *tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
