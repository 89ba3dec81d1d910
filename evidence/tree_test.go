package evidence

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestRootsAreThoseOfTheChecksumDatabase compares the edge with the whole tree of tlog.
func TestRootsAreThoseOfTheChecksumDatabase(t *testing.T) {
	var edge tree
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, at := range indexes {
			hashes[i] = stored[at]
		}
		return hashes, nil
	})
	tiles := map[string][]byte{}
	const last = tileWidth*tileWidth + 2*tileWidth + 3
	for n := range int64(last) {
		if n < 600 || n%997 == 0 || n > last-300 {
			want, err := tlog.TreeHash(n, reader)
			if err != nil {
				t.Fatal(err)
			}
			if got := edge.root(); got != want {
				t.Fatalf("the root of %d leaves is %v, not %v", n, got, want)
			}
		}
		leaf := binary.BigEndian.AppendUint64(nil, uint64(n))
		if leafHash(leaf) != tlog.RecordHash(leaf) {
			t.Fatal("the hash of a leaf is another one")
		}
		hashes, err := tlog.StoredHashes(n, leaf, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		edge.add(leafHash(leaf), func(tile tlog.Tile, data []byte) {
			tiles[tile.Path()] = bytes.Clone(data)
		})
	}
	if len(tiles) != tileWidth+2+1 {
		t.Errorf("%d tiles are full", len(tiles))
	}
	for _, place := range []struct {
		level int
		index uint64
	}{{0, 0}, {0, 257}, {1, 0}} {
		tile := fullTile(place.level, place.index)
		want, err := tlog.ReadTileData(tile, reader)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tiles[tile.Path()], want) {
			t.Errorf("%s is another one", tile.Path())
		}
	}
}
