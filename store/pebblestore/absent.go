package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// absence recognizes most keys that aren't stored without asking the database. Nearly every
// claim is for a new key, and finding nothing costs Pebble more than the rest of the claim,
// because it has to ask every level. ADR 21 says what the filter is worth.
//
// It is a Bloom filter of every record that has been stored since the directory was opened. It
// needs 12 bits of memory per record, and mistakes about one absent key in a hundred for a
// stored one. It never mistakes a stored key for an absent one:
//   - Records stored earlier are in a snapshot that Open takes before the first call. The
//     filter calls no key absent until all of them have been added and counted.
//   - Later records are added before they are queued, under the lock of their stripe.
//   - Nothing is ever removed. Purged records stay in the filter until the directory is
//     opened again, and once it is full it calls no key absent any more.
type absence struct {
	layers   atomic.Pointer[[]*filterLayer]
	complete atomic.Bool // everything that was stored at Open is in it
	full     atomic.Bool // some records stored since Open aren't in it
	stop     chan struct{}
	building sync.WaitGroup
}

// filterLayer keeps the bits of a key in one block, the size of a cache line. Each layer is
// four times as large as the one before.
type filterLayer struct {
	blocks [][8]atomic.Uint64
	keys   atomic.Int64
}

const (
	firstLayer = 1 << 17 // keys
	maxLayers  = 5       // for 44 million keys, in 64 MiB
	bitsPerKey = 12
	probes     = 7
)

// start begins adding the stored records. Call it before the store takes calls.
func (a *absence) start(s *Store, records uint64) {
	a.stop = make(chan struct{})
	a.layers.Store(&[]*filterLayer{newFilterLayer(firstLayer)})
	snap := s.db.NewSnapshot()
	a.building.Go(func() {
		err := a.build(snap, records)
		if err := errors.Join(err, snap.Close()); err != nil && !errors.Is(err, errStopped) {
			s.logger.Error("the store looks every new key up, because its index could not be read", "error", err)
		}
	})
}

var errStopped = errors.New("stopped")

// build adds the records of a snapshot. The filter answers only afterwards, and only if their
// number is what the store has counted.
func (a *absence) build(snap *pebble.Snapshot, records uint64) (err error) {
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: []byte{indexPrefix}, UpperBound: []byte{indexPrefix + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	n := uint64(0)
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != indexKeyLen {
			return fmt.Errorf("it has a key of %d bytes", len(it.Key()))
		}
		key := digest(it.Key()[1:])
		a.add(&key)
		n++
		select {
		case <-a.stop:
			return errStopped
		default:
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if n != records {
		return fmt.Errorf("it has %d records instead of %d", n, records)
	}
	a.complete.Store(true)
	return nil
}

// close stops adding records.
func (a *absence) close() {
	close(a.stop)
	a.building.Wait()
}

// absent reports whether key is certainly not stored.
func (a *absence) absent(key *digest) bool {
	if !a.complete.Load() || a.full.Load() {
		return false
	}
	for _, l := range *a.layers.Load() {
		if l.mayHave(key) {
			return false
		}
	}
	return true
}

// add adds a record that is about to be stored.
func (a *absence) add(key *digest) {
	if a.full.Load() {
		return
	}
	layers := *a.layers.Load()
	last := layers[len(layers)-1]
	last.add(key)
	if last.keys.Add(1) != last.capacity() {
		return // one caller fills the layer and continues
	}
	if len(layers) == maxLayers {
		a.full.Store(true)
		return
	}
	more := append(layers[:len(layers):len(layers)], newFilterLayer(4*last.capacity()))
	a.layers.Store(&more)
}

func newFilterLayer(capacity int64) *filterLayer {
	return &filterLayer{blocks: make([][8]atomic.Uint64, capacity*bitsPerKey/512)}
}

func (l *filterLayer) capacity() int64 { return int64(len(l.blocks)) * 512 / bitsPerKey }

func (l *filterLayer) add(key *digest) {
	block, pattern := l.place(key)
	for range probes {
		block[pattern>>6&7].Or(1 << (pattern & 63))
		pattern >>= 9
	}
}

func (l *filterLayer) mayHave(key *digest) bool {
	block, pattern := l.place(key)
	for range probes {
		if block[pattern>>6&7].Load()&(1<<(pattern&63)) == 0 {
			return false
		}
		pattern >>= 9
	}
	return true
}

// place returns a key's block, and its bits in the block, nine binary digits each. The key is a
// digest already, so parts of it serve as hashes.
func (l *filterLayer) place(key *digest) (*[8]atomic.Uint64, uint64) {
	at, _ := bits.Mul64(binary.LittleEndian.Uint64(key[8:]), uint64(len(l.blocks)))
	return &l.blocks[at], binary.LittleEndian.Uint64(key[16:])
}
