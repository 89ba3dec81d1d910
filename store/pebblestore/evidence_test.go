package pebblestore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Tables that records and the log shared would be merged again and again.
func TestTablesOfTheLogHaveNothingElse(t *testing.T) {
	s := mustOpen(t, t.TempDir(), nil)
	defer s.Close()
	for i, id := range testIDs("k", 50) {
		w := store.Write{Record: new(testRecord(id, 1, semel.Completed)), Evidence: []store.Entry{testEntry(id, 0, 1)}}
		if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
			t.Fatalf("Apply gives %v, %v", ok, err)
		}
		if err := s.PutEvidenceTiles(t.Context(), map[string][]byte{fmt.Sprint(i): {1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	levels, err := s.db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	found := map[byte]int{}
	for _, level := range levels {
		for _, table := range level {
			first, last := table.Smallest.UserKey[0], table.Largest.UserKey[0]
			if first != last && last >= tilePrefix {
				t.Errorf("a table has keys from %c to %c", first, last)
			}
			found[last]++
		}
	}
	if len(found) != 5 { // records and indexes, tiles, leaves, subjects, openings
		t.Errorf("the tables are %v", found)
	}
}

// What is not durable is shown to nobody: a checkpoint over it would be a lie after
// a loss of power.
func TestNobodySeesEntriesThatMayBeLost(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: disk})
	defer s.Close()
	const callers, each = 8, 200
	var wrong atomic.Pointer[string]
	ctx, stop := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		for ctx.Err() == nil {
			durable := s.commits.entries.Load()
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			again, err := Open("store", &Options{FS: after})
			if err != nil {
				text := err.Error()
				wrong.Store(&text)
				return
			}
			if n := again.commits.entries.Load(); n < durable {
				text := fmt.Sprintf("%d entries were shown, and %d are there after a loss of power", durable, n)
				wrong.Store(&text)
			}
			if err := again.Close(); err != nil {
				text := err.Error()
				wrong.Store(&text)
			}
		}
	})
	for c := range callers {
		writers.Go(func() {
			for i := range each {
				id := testID(fmt.Sprint(c, " ", i))
				w := store.Write{Record: new(testRecord(id, 1, semel.Processing)), Evidence: []store.Entry{testEntry(id, 0, 1)}}
				if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
					t.Errorf("Apply gives %v, %v", ok, err)
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	if text := wrong.Load(); text != nil {
		t.Fatal(*text)
	}
	if n := s.commits.entries.Load(); n != callers*each {
		t.Fatalf("%d entries are durable, not %d", n, callers*each)
	}
}

// A log that was damaged is not taken for one with fewer entries.
func TestALogWithAGapIsReported(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	for i := range 5 {
		id := testID(fmt.Sprint(i))
		w := store.Write{Record: new(testRecord(id, 1, semel.Processing)), Evidence: []store.Entry{testEntry(id, 0, 1)}}
		if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
			t.Fatalf("Apply gives %v, %v", ok, err)
		}
	}
	if err := s.db.Delete(entryKey(leafPrefix, 2), nil); err != nil {
		t.Fatal(err)
	}
	if list, err := s.ReadEvidence(t.Context(), 0, 2); err != nil || len(list) != 2 {
		t.Errorf("before the gap ReadEvidence gives %d entries, error %v", len(list), err)
	}
	for _, from := range []uint64{0, 2} {
		if list, err := s.ReadEvidence(t.Context(), from, 10); err == nil || !strings.Contains(err.Error(), "number 2: it is missing") {
			t.Errorf("from number %d on ReadEvidence gives %d entries, error %v", from, len(list), err)
		}
	}
	if err := s.db.Set(entryKey(leafPrefix, 2), []byte{200}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadEvidence(t.Context(), 0, 10); err == nil || !strings.Contains(err.Error(), "number 2: it is damaged") {
		t.Errorf("of a damaged entry ReadEvidence gives %v", err)
	}
}

// Wherever the log ends after a crash, a record and its evidence are both there or neither
// is. The log is cut off between any two batches, which is between any two syncs too.
func TestNoCrashComesBetweenARecordAndItsEvidence(t *testing.T) {
	write := func(s *Store, c, n int) {
		for i := range n {
			id := testID(fmt.Sprint(c, " ", i%3))
			before := int64(i / 3)
			w := store.Write{Record: new(testRecord(id, before+1, semel.Processing)), Evidence: []store.Entry{testEntry(id, before, before+1)}}
			if before > 0 {
				w.Expect = testRecord(id, before, semel.Processing).Revision
			}
			if _, ok, err := s.Apply(t.Context(), w); !ok || err != nil {
				t.Errorf("Apply gives %v, %v", ok, err)
			}
		}
	}
	for name, callers := range map[string]int{"one after the other": 1, "at once": 16} {
		t.Run(name, func(t *testing.T) {
			r := newWALRig(t, func(s *Store) {
				var work sync.WaitGroup
				for c := range callers {
					work.Go(func() { write(s, c, 12) })
				}
				work.Wait()
			})
			all := readFiles(t, r.store.fs, "store")
			most := 0
			for end := range r.ends {
				s, err := Open("store", &Options{FS: all.with(t, "store", r.name, r.content[:end])})
				if err != nil {
					t.Fatal(err)
				}
				stored, err := inspect(t.Context(), s)
				if err != nil {
					t.Fatalf("cut off at byte %d: %v", end, err)
				}
				told := map[string]bool{}
				list, err := s.ReadEvidence(t.Context(), 0, 1000)
				if err != nil {
					t.Fatal(err)
				}
				for _, en := range list {
					told[string(en.Leaf)] = true
				}
				versions := 0
				for id, is := range stored {
					for v := int64(1); v <= is.version; v++ {
						if versions++; !told[string(testEntry(id, v-1, v).Leaf)] {
							t.Fatalf("cut off at byte %d: version %d of %s is there, and not its evidence", end, v, id.Key)
						}
					}
				}
				if versions != len(list) {
					t.Fatalf("cut off at byte %d: there are %d entries of %d writes", end, len(list), versions)
				}
				most = max(most, versions)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if most != 12*callers || len(r.ends) < 4 {
				t.Errorf("%d writes in %d batches prove nothing", most, len(r.ends))
			}
		})
	}
}
