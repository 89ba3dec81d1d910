package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// randomDigests are n digests; the same seed gives the same.
func randomDigests(seed byte, n int) []digest {
	rng := rand.NewChaCha8([32]byte{seed})
	ds := make([]digest, n)
	for i := range ds {
		rng.Read(ds[i][:])
	}
	return ds
}

func TestKeyFilter(t *testing.T) {
	const n = 20 * firstLayer // beyond the third layer's beginning
	f := newKeyFilter()
	added := randomDigests(1, n)
	for i := range added {
		f.add(&added[i])
	}
	t.Run("it has every key that was added", func(t *testing.T) {
		for i := range added {
			if !f.mayHave(&added[i]) {
				t.Fatalf("key %d of %d is missing", i, n)
			}
		}
		if f.size() != n {
			t.Errorf("its size is %d, not %d", f.size(), n)
		}
	})
	t.Run("it takes fewer than 2 in 100 others for added", func(t *testing.T) {
		wrong := 0
		others := randomDigests(2, 100_000)
		for i := range others {
			if f.mayHave(&others[i]) {
				wrong++
			}
		}
		t.Logf("%d of %d", wrong, len(others))
		if wrong > len(others)/50 {
			t.Errorf("%d of %d", wrong, len(others))
		}
	})
	t.Run("keys that are added at the same time are all there", func(t *testing.T) {
		f := newKeyFilter()
		keys := randomDigests(3, 2*firstLayer)
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := part; i < len(keys); i += 4 {
					f.add(&keys[i])
				}
			})
		}
		wg.Wait()
		for i := range keys {
			if !f.mayHave(&keys[i]) {
				t.Fatalf("key %d is missing", i)
			}
		}
	})
}

// TestRebuildingMissesNoRecord: records are created and purged while the filter
// is being built again and again. A record that a finished build had missed would
// be claimed a second time.
func TestRebuildingMissesNoRecord(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem(), MemTableBytes: smallTables})
	defer s.Close()
	const callers, each = 8, 400
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var builder sync.WaitGroup
	builds := 0
	builder.Go(func() {
		for ctx.Err() == nil {
			s.absent.rebuild(s)
			s.absent.builds.Wait()
			builds++
		}
	})
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				id := testID(strconv.Itoa(c) + "/" + strconv.Itoa(i))
				if err := claimOnce(ctx, s, id, i%3 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	stop()
	builder.Wait()
	if builds < 3 {
		t.Errorf("the filter was built %d times only", builds)
	}
	if s.absent.filter.Load() == nil {
		t.Error("no build has succeeded")
	}
	for c := range callers {
		for i := range each {
			id := testID(strconv.Itoa(c) + "/" + strconv.Itoa(i))
			d := id.Digest()
			if i%3 != 0 && s.absent.absent(&d) {
				t.Fatalf("%s is stored and taken for absent", id.Key)
			}
		}
	}
}

// claimOnce creates a record and sees that it can't be created again. Then it
// purges the record if it is told to.
func claimOnce(ctx context.Context, s *Store, id semel.ID, purge bool) error {
	rec := testRecord(id, 1, semel.Processing)
	if _, applied, err := s.Apply(ctx, semel.Write{Record: rec}); err != nil || !applied {
		return errors.Join(errors.New(id.Key+" could not be created"), err)
	}
	again := testRecord(id, 2, semel.Processing)
	if _, applied, err := s.Apply(ctx, semel.Write{Record: again}); err != nil || applied {
		return errors.Join(errors.New(id.Key+" was created twice"), err)
	}
	if purge {
		if n, err := s.Purge(ctx, []semel.Ref{{ID: id, Revision: rec.Revision}}); err != nil || n != 1 {
			return errors.Join(errors.New(id.Key+" could not be purged"), err)
		}
	}
	return nil
}

// TestTheFilterIsRebuiltWhenMostOfItIsPurged: the memory it takes follows the
// records that are stored, not those that ever were.
func TestTheFilterIsRebuiltWhenMostOfItIsPurged(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	s.absent.builds.Wait()
	before := s.absent.filter.Load()
	if before == nil {
		t.Fatal("the filter was not built")
	}
	// As if so many records had been created and purged since.
	var d digest
	for i := range uint64(4 * firstLayer) {
		binary.LittleEndian.PutUint64(d[8:], i*0x9e3779b97f4a7c15)
		binary.LittleEndian.PutUint64(d[16:], i*0xbf58476d1ce4e5b9)
		s.absent.stored(s, &d)
	}
	rec := testRecord(testID("kept"), 1, semel.Processing)
	if _, applied, err := s.Apply(t.Context(), semel.Write{Record: rec}); err != nil || !applied {
		t.Fatal(applied, err)
	}
	for i := range uint64(64 * firstLayer) {
		if s.absent.next.Load() != nil || s.absent.filter.Load() != before {
			break // a build has begun
		}
		binary.LittleEndian.PutUint64(d[8:], i*0x94d049bb133111eb)
		binary.LittleEndian.PutUint64(d[16:], i*0x2545f4914f6cdd1d)
		s.absent.stored(s, &d)
	}
	s.absent.builds.Wait()
	after := s.absent.filter.Load()
	if after == before {
		t.Fatal("the filter was not built anew")
	}
	if kept := rec.ID.Digest(); after.size() > firstLayer || !after.mayHave(&kept) {
		t.Errorf("the new filter has %d keys", after.size())
	}
}
