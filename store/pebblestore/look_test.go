package pebblestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// A directory can be looked at on a full disk, whether it was closed or not, and is left
// as it was.
func TestADirectoryIsLookedAtOnAFullDisk(t *testing.T) {
	crashedFS, _ := crashed(t, 60)
	closed := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: closed})
	apply(t, s, testRecord(testID("a"), 1, semel.Completed), store.Revision{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, fs := range map[string]*vfs.MemFS{"after a crash": crashedFS.with(t, "store", "", nil).(*vfs.MemFS), "after it was closed": closed} {
		t.Run(name, func(t *testing.T) {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1 << 40})
			if _, err := Open("store", &Options{FS: fs}); err == nil || !strings.Contains(err.Error(), "the disk is full: 100 bytes are free, and opening may take ") {
				t.Errorf("Open gives %v", err)
			}
			before := filesOf(t, fs)
			s, err := Open("store", &Options{FS: fs, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			page, err := s.Search(t.Context(), store.Query{})
			if err != nil || len(page.Records) == 0 {
				t.Error(page, err)
			}
			if _, _, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(testID("z"), 1, semel.Processing))}); !errors.Is(err, ErrReadOnly) || !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("Apply gives %v", err)
			}
			if _, err := s.Purge(t.Context(), nil); !errors.Is(err, ErrReadOnly) {
				t.Errorf("Purge gives %v", err)
			}
			if err := errors.Join(s.AppendEvidence(t.Context(), nil), s.EraseEvidence(t.Context(), 0, 1), s.PutEvidenceTiles(t.Context(), nil)); !errors.Is(err, ErrReadOnly) {
				t.Errorf("the evidence log gives %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if after := filesOf(t, fs); before != after {
				t.Errorf("it had the files %s, and has %s", before, after)
			}
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 39, TotalBytes: 1 << 40})
			again := mustOpen(t, "store", &Options{FS: fs})
			found, err := again.Search(t.Context(), store.Query{})
			if err := errors.Join(err, again.Close()); err != nil || len(found.Records) != len(page.Records) {
				t.Errorf("then there are %d records, not %d; %v", len(found.Records), len(page.Records), err)
			}
		})
	}
	if _, err := Open("nowhere", &Options{FS: vfs.NewMem(), ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "there is no store") {
		t.Errorf("where nothing is, Open gives %v", err)
	}
}

func TestOpeningEndsWithItsContext(t *testing.T) {
	all, _ := crashed(t, 60)
	fs := &stuckFS{FS: all.with(t, "store", "", nil), stuck: make(chan struct{}), at: make(chan struct{}, 64)}
	defer close(fs.stuck)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the process is to end")
	go func() {
		<-fs.at
		cancel(stop)
	}()
	if _, err := OpenContext(ctx, "store", &Options{FS: fs}); !errors.Is(err, stop) {
		t.Errorf("OpenContext gives %v", err)
	}
}

// stuckFS makes no tables until it is told to.
type stuckFS struct {
	vfs.FS
	stuck chan struct{}
	at    chan struct{}
}

func (fs *stuckFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		fs.at <- struct{}{}
		<-fs.stuck
	}
	return fs.FS.Create(name, c)
}

// filesOf names the files of the store, but for the lock, which nobody removes.
func filesOf(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == lockFile }), " ")
}
