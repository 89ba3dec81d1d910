package pebblestore

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// On a disk that is nearly full, what a caller is told of a new record is definite. What
// is there can be ended and purged, and new records are taken again when there is room.
func TestADiskThatIsNearlyFullTakesNoNewRecords(t *testing.T) {
	fs := vfs.NewMem()
	usage := func(avail uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: avail, TotalBytes: 1 << 40}) }
	usage(1 << 39)
	s := mustOpen(t, "store", &Options{FS: fs})
	defer s.Close()
	first, second := testRecord(testID("a"), 1, semel.Processing), testRecord(testID("a"), 2, semel.Completed)
	apply(t, s, first, store.Revision{})
	usage(DefaultMemTableBytes - 1)
	claim := func(key string) error {
		_, ok, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(testID(key), 1, semel.Processing))})
		if ok != (err == nil) {
			t.Errorf("Apply gives %v, %v", ok, err)
		}
		return err
	}
	_ = claim("b") // after which it is known
	if err := claim("c"); !errors.Is(err, ErrFull) || !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a claim gives %v", err)
	}
	if _, err := s.Get(t.Context(), testID("c")); !errors.Is(err, semel.ErrNotFound) {
		t.Errorf("then Get gives %v", err)
	}
	apply(t, s, second, first.Revision)
	if cur, ok, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(testID("a"), 9, semel.Processing))}); ok || err != nil || cur.Revision != second.Revision {
		t.Errorf("a duplicate is told of fence %d, %v, %v", cur.Fence, ok, err)
	}
	if n, err := s.Purge(t.Context(), []store.Ref{{ID: second.ID, Revision: second.Revision}}); n != 1 || err != nil {
		t.Errorf("Purge gives %d, %v", n, err)
	}
	usage(2 * DefaultMemTableBytes)
	if err := claim("d"); err != nil {
		t.Errorf("with room again a claim gives %v", err)
	}
}

// Pebble would try to open a directory on a full disk for ever.
func TestADirectoryOnAFullDiskIsNotWaitedFor(t *testing.T) {
	all, _ := crashed(t, 60)
	t.Run("when the disk says so", func(t *testing.T) {
		fs := all.with(t, "store", "", nil).(*vfs.MemFS)
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1 << 40})
		if _, err := Open("store", &Options{FS: fs}); err == nil || !strings.Contains(err.Error(), "the disk is full: 100 bytes are free") {
			t.Fatalf("Open gives %v", err)
		}
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 39, TotalBytes: 1 << 40})
		if err := mustOpen(t, "store", &Options{FS: fs}).Close(); err != nil {
			t.Error(err)
		}
	})
	for name, failure := range map[string]error{"when it fails as full": syscall.ENOSPC, "when it fails otherwise": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			var fails atomic.Bool
			mem := all.with(t, "store", "", nil)
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if fails.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					return failure
				}
				return nil
			}))
			fails.Store(true)
			if _, err := Open("store", &Options{FS: fs}); !errors.Is(err, failure) {
				t.Fatalf("Open gives %v", err)
			}
			if _, err := Open("store", &Options{FS: fs}); err == nil || !strings.Contains(err.Error(), "in use") {
				t.Errorf("while it is still tried, Open gives %v", err)
			}
			fails.Store(false)
			var s *Store
			for err := errors.New("not yet"); err != nil; {
				if s, err = Open("store", &Options{FS: fs}); err != nil && !strings.Contains(err.Error(), "in use") {
					t.Fatal(err)
				}
			}
			if page, err := s.Search(t.Context(), store.Query{}); err != nil || len(page.Records) == 0 {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Closing does not wait for tables that can't be written: all is in the log.
func TestAStoreOnAFullDiskIsClosed(t *testing.T) {
	var fails atomic.Bool
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	s := mustOpen(t, "store", &Options{FS: fs})
	rec := testRecord(testID("a"), 1, semel.Completed)
	apply(t, s, rec, store.Revision{})
	fails.Store(true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: mem})
	defer s.Close()
	if got, err := s.Get(t.Context(), rec.ID); err != nil || got.Revision != rec.Revision {
		t.Errorf("then Get gives fence %d, %v", got.Fence, err)
	}
}
