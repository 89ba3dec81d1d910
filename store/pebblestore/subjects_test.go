package pebblestore

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// crowded is a subject that begins like those of many other entries.
func crowded(n uint64) (s semel.Subject) {
	s[0] = 1
	binary.BigEndian.PutUint64(s[8:], n)
	return s
}

// Entries are found in runs, in what is in no run yet, and across both, also by a
// process that opens the directory later.
func TestEntriesAreFoundBySubjectInRunsAndAfterThem(t *testing.T) {
	if testing.Short() {
		t.Skip("two runs of entries take ten seconds to write")
	}
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: disk})
	const entries = 2*runEntries + 1000
	var frequent, last semel.Subject
	for i := range frequent {
		frequent[i], last[i] = 0xaa, 0xff
	}
	want := map[semel.Subject][]uint64{}
	var batch []semel.Entry
	for n := range uint64(entries) {
		e := semel.Entry{Leaf: []byte{byte(n)}}
		switch {
		case n%1000 == 7:
			e.Subject = frequent
		case n == 0 || n == runEntries-1 || n == runEntries || n == entries-1:
			e.Subject = last
		case n%10 == 1: // more than a block of a run has
			e.Subject = crowded(n % 3000)
		case n%10 == 2: // none
		default:
			e.Subject = testSubject(testID(string(binary.BigEndian.AppendUint64(nil, n/2))))
		}
		if e.Subject != (semel.Subject{}) {
			want[e.Subject] = append(want[e.Subject], n)
		}
		if batch = append(batch, e); len(batch) == 4096 || n == entries-1 {
			if err := s.AppendEvidence(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	check := func(t *testing.T, s *Store) {
		t.Helper()
		looked := 0
		for subject, all := range want {
			if looked++; looked > 500 && subject != frequent && subject != last && subject[0] != 1 {
				continue
			}
			for _, from := range []uint64{0, all[len(all)/2], all[len(all)/2] + 1, runEntries, entries} {
				rest := all[sortSearch(all, from):]
				for _, limit := range []int{1, 3, entries} {
					found, err := s.FindEvidence(t.Context(), subject, from, limit)
					if err != nil || !slices.Equal(found, rest[:min(limit, len(rest))]) {
						t.Fatalf("of %x from number %d on, FindEvidence gives %d, error %v, not up to %d of %d", subject, from, found, err, limit, rest)
					}
				}
			}
		}
		for _, nobody := range []semel.Subject{crowded(3001), testSubject(testID("nobody")), {}} {
			if found, err := s.FindEvidence(t.Context(), nobody, 0, 10); err != nil || len(found) != 0 {
				t.Fatalf("of a subject that no entry has, FindEvidence gives %d, error %v", found, err)
			}
		}
	}
	check(t, s)
	for _, lost := range []*vfs.MemFS{disk.CrashClone(vfs.CrashCloneCfg{}), disk} {
		if lost == disk {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		again := mustOpen(t, "store", &Options{FS: lost})
		if x := &again.subjectIndex; x.done != 2*runEntries || len(x.recent) != entries-2*runEntries {
			t.Errorf("after it was opened again %d entries are in runs and %d are remembered", x.done, len(x.recent))
		}
		check(t, again)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func sortSearch(all []uint64, from uint64) int {
	i, _ := slices.BinarySearch(all, from)
	return i
}

// A log that can't be read to the end is searched as far as it goes, and the store
// works on without an index of the rest.
func TestWhatCannotBeIndexedIsLookedForInTheLog(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: disk})
	one := semel.Subject{1}
	for range 3 {
		if err := s.AppendEvidence(t.Context(), []semel.Entry{{Leaf: []byte("leaf"), Subject: one}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Set(chunkKey(leafPrefix, 1), []byte{200}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: disk})
	defer s.Close()
	if !s.subjectIndex.broken {
		t.Error("the index takes no notice of a damaged chunk")
	}
	if err := s.AppendEvidence(t.Context(), []semel.Entry{{Leaf: []byte("leaf"), Subject: one}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindEvidence(t.Context(), one, 0, 10); err == nil {
		t.Error("FindEvidence passes over a damaged chunk")
	}
	if found, err := s.FindEvidence(t.Context(), one, 0, 1); err != nil || !slices.Equal(found, []uint64{0}) {
		t.Errorf("before the damaged chunk FindEvidence gives %d, error %v", found, err)
	}
	if found, err := s.FindEvidence(t.Context(), one, 2, 10); err != nil || !slices.Equal(found, []uint64{2, 3}) {
		t.Errorf("after the damaged chunk FindEvidence gives %d, error %v", found, err)
	}
}
