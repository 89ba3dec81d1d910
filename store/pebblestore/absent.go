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

// absence knows of most keys that are not stored, without a look at the
// database. Nearly every claim is for a new key, and to find nothing costs Pebble
// more than the rest of the claim: it has to ask every level.
//
// It is a Bloom filter of all records that were ever stored since it was built:
// 12 bits of memory each, and about one absent key in a hundred that it takes for
// stored. It is built in the background from the index by digest; until it is
// there the database is asked. Purged records stay in it, so it is built anew
// when most of what it holds is gone.
type absence struct {
	filter atomic.Pointer[keyFilter] // answers; nil until built
	next   atomic.Pointer[keyFilter] // is being built
	builds sync.WaitGroup
	stop   chan struct{}
}

// stored takes note of a record that is going to be stored. It is called under
// the lock of the record's stripe, which is held until the change has joined its
// group: see build.
func (a *absence) stored(s *Store, key *digest) {
	if f := a.next.Load(); f != nil {
		f.add(key)
	}
	if f := a.filter.Load(); f != nil && f.add(key) && f.size() > 2*s.commits.records.Load()+2*firstLayer {
		a.rebuild(s)
	}
}

// absent reports that key is certainly not stored.
func (a *absence) absent(key *digest) bool {
	f := a.filter.Load()
	return f != nil && !f.mayHave(key)
}

// rebuild starts building, unless that is under way.
func (a *absence) rebuild(s *Store) {
	f := newKeyFilter()
	if !a.next.CompareAndSwap(nil, f) {
		return
	}
	a.builds.Go(func() {
		defer a.next.Store(nil)
		if err := a.build(s, f); err != nil {
			s.log.trouble("the store looks every new key up, because its index could not be read", "error", err)
			return
		}
		a.filter.Store(f)
	})
}

var errStopped = errors.New("stopped")

// build fills f with all records. Each change either finds f in a.next, or has
// joined a group before the stripes were locked; then the snapshot has it,
// because all groups up to that point are in the log when it is taken.
func (a *absence) build(s *Store, f *keyFilter) error {
	for i := range s.stripes {
		s.stripes[i].mu.Lock()
		//lint:ignore SA2001 to wait for whoever holds it is the purpose
		s.stripes[i].mu.Unlock()
	}
	if g := s.commits.newestGroup(); g != nil {
		<-g.logged
	}
	snap := s.db.NewSnapshot()
	defer snap.Close()
	m, err := readMeta(snap)
	if err != nil {
		return err
	}
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: []byte{indexPrefix}, UpperBound: []byte{indexPrefix + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	var n uint64
	for ok := it.First(); ok; ok = it.Next() {
		var key digest
		if copy(key[:], it.Key()[1:]) != len(key) {
			return fmt.Errorf("it has a key of %d bytes", len(it.Key()))
		}
		f.add(&key)
		if n++; n%1024 == 0 {
			select {
			case <-a.stop:
				return errStopped
			default:
			}
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if n != m.records {
		return fmt.Errorf("it has %d records instead of %d", n, m.records)
	}
	return nil
}

// close stops a build.
func (a *absence) close() {
	close(a.stop)
	a.builds.Wait()
}

// keyFilter is a Bloom filter that grows by layers, each four times as large as the
// one before.
type keyFilter struct {
	mu     sync.Mutex // held to grow
	layers atomic.Pointer[[]*filterLayer]
}

// filterLayer keeps the bits of one key together in one block, which is one line
// of the processor's cache.
type filterLayer struct {
	blocks   [][8]atomic.Uint64
	capacity int64
	keys     atomic.Int64
}

const (
	firstLayer = 1 << 17 // keys
	bitsPerKey = 12
	probes     = 7
)

func newKeyFilter() *keyFilter {
	f := &keyFilter{}
	f.layers.Store(&[]*filterLayer{newFilterLayer(firstLayer)})
	return f
}

func newFilterLayer(capacity int64) *filterLayer {
	return &filterLayer{blocks: make([][8]atomic.Uint64, capacity*bitsPerKey/512), capacity: capacity}
}

// add adds a key, and reports whether the filter had to grow.
func (f *keyFilter) add(key *digest) (grown bool) {
	layers := *f.layers.Load()
	l := layers[len(layers)-1]
	block, pattern := l.place(key)
	for range probes {
		block[pattern>>6&7].Or(1 << (pattern & 63))
		pattern >>= 9
	}
	if l.keys.Add(1) != l.capacity {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	layers = *f.layers.Load()
	grow := append(layers[:len(layers):len(layers)], newFilterLayer(4*l.capacity))
	f.layers.Store(&grow)
	return true
}

func (f *keyFilter) mayHave(key *digest) bool {
	for _, l := range *f.layers.Load() {
		if l.mayHave(key) {
			return true
		}
	}
	return false
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

// place gives the block of a key, and the bits in it, nine binary digits each.
// The key is a digest already, so parts of it serve as hashes.
func (l *filterLayer) place(key *digest) (*[8]atomic.Uint64, uint64) {
	at, _ := bits.Mul64(binary.LittleEndian.Uint64(key[8:]), uint64(len(l.blocks)))
	return &l.blocks[at], binary.LittleEndian.Uint64(key[16:])
}

// size is how many keys were added.
func (f *keyFilter) size() uint64 {
	var n int64
	for _, l := range *f.layers.Load() {
		n += l.keys.Load()
	}
	return uint64(n)
}
