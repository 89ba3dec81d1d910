package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// A wrong "absent" is a second execution. So the tests of this file look for one, and so
// does inspect, with which every test that ends a process or cuts its power ends.

// randomDigests are n digests; the same seed gives the same.
func randomDigests(seed byte, n int) []digest {
	rng := rand.NewChaCha8([32]byte{seed})
	ds := make([]digest, n)
	for i := range ds {
		rng.Read(ds[i][:])
	}
	return ds
}

func newAbsence(complete bool) *absence {
	a := &absence{}
	a.layers.Store(&[]*filterLayer{newFilterLayer(firstLayer)})
	a.complete.Store(complete)
	return a
}

// Whatever others add at the same time, and however often the filter grows meanwhile, a
// key is not absent from the moment at which it was added.
func TestAnAddedKeyIsNeverAbsent(t *testing.T) {
	a := newAbsence(true)
	keys := randomDigests(1, 6*firstLayer) // beyond the beginning of the third layer
	const callers = 4
	var work sync.WaitGroup
	var wrong atomic.Int64
	// After each part they wait for each other: one that is to make the next layer, and isn't
	// given a processor, would have the others put all of their keys into a full one.
	for part := range slices.Chunk(keys, 1024) {
		for from := range callers {
			work.Go(func() {
				for i := from; i < len(part); i += callers {
					a.add(&part[i])
					if a.absent(&part[i]) {
						wrong.Add(1)
					}
				}
			})
		}
		work.Wait()
	}
	for i := range keys {
		if a.absent(&keys[i]) {
			wrong.Add(1)
		}
	}
	if wrong.Load() != 0 {
		t.Errorf("%d of %d keys are absent", wrong.Load(), len(keys))
	}
	if n := len(*a.layers.Load()); n != 3 {
		t.Errorf("it has %d layers, so it was not tested while it grew", n)
	}
	known := 0
	others := randomDigests(2, 100_000)
	for i := range others {
		if !a.absent(&others[i]) {
			known++
		}
	}
	if known > len(others)/33 { // about one in a hundred for each full layer
		t.Errorf("it takes %d of %d others for stored", known, len(others))
	}
}

func TestAFullFilterKnowsNothing(t *testing.T) {
	a := newAbsence(true)
	layers := make([]*filterLayer, maxLayers)
	for i := range layers {
		layers[i] = newFilterLayer(firstLayer)
	}
	layers[maxLayers-1].keys.Store(firstLayer - 1)
	a.layers.Store(&layers)
	keys := randomDigests(3, 3)
	if !a.absent(&keys[0]) {
		t.Fatal("an empty filter does not answer")
	}
	a.add(&keys[1])
	a.add(&keys[2])
	for i := range keys {
		if a.absent(&keys[i]) {
			t.Errorf("when it is full, key %d is absent", i)
		}
	}
}

// What was stored before is not absent while it is being added, nor where its index can't be
// read to the end: with a part of it the store goes on without the filter.
func TestNothingIsAbsentBeforeTheIndexWasRead(t *testing.T) {
	stored := testIDs("k", 3)
	for _, c := range []struct {
		name   string
		damage func(s *Store) error
	}{
		{"the store is being closed", func(*Store) error { return nil }},
		{"a record has no entry", func(s *Store) error {
			d := stored[0].Digest()
			return s.db.Delete(append([]byte{indexPrefix}, d[:]...), pebble.Sync)
		}},
		{"an entry has no record", func(s *Store) error {
			return s.db.Set(append([]byte{indexPrefix}, make([]byte, 32)...), nil, pebble.Sync)
		}},
		{"a key is too long", func(s *Store) error {
			return s.db.Set(append([]byte{indexPrefix}, make([]byte, 33)...), nil, pebble.Sync)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
			defer s.Close()
			for _, id := range stored {
				apply(t, s, testRecord(id, 1, semel.Completed), store.Revision{})
			}
			if err := c.damage(s); err != nil {
				t.Fatal(err)
			}
			a := newAbsence(false)
			if c.name == "the store is being closed" {
				a.stop = make(chan struct{})
				close(a.stop)
			}
			snap := s.db.NewSnapshot()
			if err := errors.Join(a.build(snap, uint64(len(stored))), snap.Close()); err == nil {
				t.Error("the index passes for whole")
			}
			if nobody := testID("nobody").Digest(); a.absent(&nobody) {
				t.Error("a filter that is not complete answers")
			}
		})
	}
}

// Records are created and purged while the filter is being built, of a directory that has
// some already.
func TestRecordsThatAreCreatedDuringTheBuildAreNotAbsent(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: disk, MemTableBytes: smallTables})
	const before, callers, each = 3000, 4, 100
	for i := range before {
		apply(t, s, testRecord(testID("before/"+strconv.Itoa(i)), 1, semel.Processing), store.Revision{})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: disk, MemTableBytes: smallTables})
	defer s.Close()
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			for i := range each {
				if err := claimOnce(t.Context(), s, testID(strconv.Itoa(c)+"/"+strconv.Itoa(i)), i%3 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	s.absent.building.Wait()
	if nobody := testID("nobody").Digest(); !s.absent.absent(&nobody) {
		t.Error("the filter is not complete")
	}
	stored := 0
	err := scan(s.db, indexPrefix, func(key, _ []byte) error {
		stored++
		if d := digest(key[1:]); s.absent.absent(&d) {
			return fmt.Errorf("%x is stored and absent", d)
		}
		return nil
	})
	if err != nil || stored != before+callers*(each-(each+2)/3) {
		t.Errorf("%d records are stored, error %v", stored, err)
	}
}

// claimOnce creates a record and sees that it can't be created again. Then it
// purges the record if it is told to.
func claimOnce(ctx context.Context, s *Store, id semel.ID, purge bool) error {
	rec := testRecord(id, 1, semel.Processing)
	if _, applied, err := s.Apply(ctx, store.Write{Record: new(rec)}); err != nil || !applied {
		return errors.Join(errors.New(id.Key+" could not be created"), err)
	}
	again := testRecord(id, 2, semel.Processing)
	if _, applied, err := s.Apply(ctx, store.Write{Record: new(again)}); err != nil || applied {
		return errors.Join(errors.New(id.Key+" was created twice"), err)
	}
	if purge {
		if n, err := s.Purge(ctx, []store.Ref{{ID: id, Revision: rec.Revision}}); err != nil || n != 1 {
			return errors.Join(errors.New(id.Key+" could not be purged"), err)
		}
	}
	return nil
}
