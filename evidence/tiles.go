package evidence

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/store"
)

// headID is the cell that holds the head of the log.
var headID = store.ID{Operation: "semel.cell", Key: "evidence"}

// readFull reads a full tile.
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

// readEdge makes the edge of the tree of a size: from leaves, and from the full tiles
// below each level.
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
	ctx    context.Context // of the one call that it is made for
	store  logStore
	size   uint64 // of the tree
	edge   *tree  // nil: not read yet
	cached map[tlog.Tile][]byte
}

// maxCachedTiles bounds what a reader remembers, to 64 MiB. An export with proofs asks for
// the same tiles once for each entry.
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
		return r.edge.levels[tile.L][:tile.W*tlog.HashSize], nil // others than those of the edge are full
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

// SaveTiles is [tlog.TileReader.SaveTiles]. The store has the full tiles already.
func (r *tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
