package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// refuses expects that a directory is not opened, and that the error says why.
func refuses(t *testing.T, dir string, words ...string) {
	t.Helper()
	s, err := Open(dir, nil)
	if err == nil {
		s.Close()
		t.Fatal("the directory was opened")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestADirectoryIsOpenOnce(t *testing.T) {
	const sentence = "the directory is in use by another process or another Store of this one"
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, dir, nil)
	t.Run("not twice in a process", func(t *testing.T) { refuses(t, dir, sentence) })
	t.Run("not under another name", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		refuses(t, link, sentence)
		t.Chdir(filepath.Dir(dir))
		refuses(t, "./store", sentence)
	})
	t.Run("not by another process", func(t *testing.T) {
		c := startChild(t, orders{Dir: dir})
		follower{afterStart: time.Minute}.follow(t, c, newHistory(0))
		if code := c.ended(t); code != codeOpen || !strings.Contains(c.stderr.String(), sentence) {
			t.Errorf("the other process ended with code %d: %s", code, c.stderr.String())
		}
	})
	t.Run("and works on, and again when it was closed", func(t *testing.T) {
		id := testID("k")
		rec := testRecord(id, 1, semel.Completed)
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); !ok || err != nil {
			t.Fatalf("Apply gives %v, %v", ok, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, dir, nil)
		defer s.Close()
		if got, err := s.Get(t.Context(), id); err != nil || got.Revision != rec.Revision {
			t.Fatalf("Get gives %v, %v", got.Revision, err)
		}
	})
}

// listing is what is in a directory, by name.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	t.Run("a newer format, which is left as it is", func(t *testing.T) {
		dir := t.TempDir()
		if err := mustOpen(t, dir, nil).Close(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, formatFile)
		old, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		newer := strings.Replace(string(old), fmt.Sprint(Format), fmt.Sprint(Format+1), 1)
		if err := os.WriteFile(file, []byte(newer), 0o600); err != nil {
			t.Fatal(err)
		}
		before := listing(t, dir)
		refuses(t, dir, fmt.Sprintf("format %d", Format+1), fmt.Sprintf("up to %d", Format), "use the program that wrote it, or a later one")
		if !maps.Equal(before, listing(t, dir)) {
			t.Error("the directory was changed")
		}
		if err := os.WriteFile(file, old, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := mustOpen(t, dir, nil).Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a format that cannot be read", func(t *testing.T) {
		for _, text := range []string{"", "\n", "semel pebblestore\n", "semel pebblestore x\n", "semel pebblestore 0\n", "semel pebblestore -1\n", "something else 1\n"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, formatFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, "does not say what the directory holds")
		}
	})
	t.Run("a directory of somebody else, where nothing is touched", func(t *testing.T) {
		for _, name := range []string{"notes.txt", "MANIFEST-000001", "000002.log", ".hidden"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, "not empty", "no semel store")
			if got := listing(t, dir); len(got) != 1 || got[name] != "mine" {
				t.Errorf("the directory holds %q", got)
			}
		}
	})
	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		refuses(t, file)
	})
	t.Run("but not what a crash of the first Open has left", func(t *testing.T) {
		for _, names := range [][]string{{}, {lockFile}, {lockFile, formatFile + tempSuffix}} {
			dir := t.TempDir()
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := mustOpen(t, dir, nil).Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The clock of the store is set ahead, as if the wall clock had been, and was set
// back afterwards.
func TestTheClockDoesNotGoBackWithTheWallClock(t *testing.T) {
	const early = 48 * time.Hour
	for name, closed := range map[string]bool{"across a Close": true, "across a loss of power after a write": false} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			opts := &Options{FS: disk, time: ahead(early)}
			s := mustOpen(t, "store", opts)
			opts.time = machineClocks{}
			last, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if closed {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(testID("k"), 1, semel.Completed))}); !ok || err != nil {
					t.Fatalf("Apply gives %v, %v", ok, err)
				}
				opts.FS = disk.CrashClone(vfs.CrashCloneCfg{})
				defer s.Close()
			}
			for range 3 {
				s := mustOpen(t, "store", opts)
				for range 100 {
					now, err := s.Now(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if now < last {
						t.Fatalf("the clock went back by %v", last.Sub(now))
					}
					last = now
				}
				if d := time.Until(last.Time()); d > early || d < early-time.Minute {
					t.Errorf("the clock is %v ahead and was %v ahead", d, early)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Purge leaves the space of what it deletes to compactions. Pebble looks for
// something to compact when it has written a memory table out, so a little
// traffic is needed, or opening the directory anew.
func TestPurgeGivesTheDiskBack(t *testing.T) {
	dir := t.TempDir()
	opts := &Options{MemTableBytes: 1 << 20}
	s := mustOpen(t, dir, opts)
	defer func() { _ = s.Close() }()
	records := max(thorough.Scaled(15_000), 10_000)
	fill(t, s, "bulk", records)
	full := size(t, dir)
	if full < 4<<20 {
		t.Fatalf("the records take %d bytes only", full)
	}
	empty(t, s, "bulk", records)
	fill(t, s, "later", records/10)
	left := shrinks(t, dir, full/2)
	t.Logf("of %d bytes %d are left with a tenth of the records", full, left)

	empty(t, s, "later", records/10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, opts)
	left = shrinks(t, dir, full/50)
	t.Logf("and %d with none of them, when opened anew", left)
}

// fill stores so many new records, from many callers.
func fill(t *testing.T, s *Store, prefix string, n int) {
	t.Helper()
	const callers = 64
	errs := make(chan error, callers)
	ids := testIDs(prefix, n)
	for c := range callers {
		go func() {
			var err error
			for i := c; i < n && err == nil; i += callers {
				var ok bool
				if _, ok, err = s.Apply(t.Context(), store.Write{Record: new(testRecord(ids[i], 1, semel.Completed))}); err == nil && !ok {
					err = errors.New("a new record was refused")
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// empty purges what fill stored, as sweeps do.
func empty(t *testing.T, s *Store, prefix string, n int) {
	t.Helper()
	var refs []store.Ref
	for _, id := range testIDs(prefix, n) {
		refs = append(refs, store.Ref{ID: id, Revision: testRecord(id, 1, semel.Completed).Revision})
	}
	for part := range slices.Chunk(refs, 250) {
		if n, err := s.Purge(t.Context(), part); n != len(part) || err != nil {
			t.Fatalf("Purge gives %d, %v", n, err)
		}
	}
}

// shrinks waits until a directory is no larger than that.
func shrinks(t *testing.T, dir string, to int64) int64 {
	t.Helper()
	patience, tick := time.After(60*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		now := size(t, dir)
		if now <= to {
			return now
		}
		select {
		case <-tick.C:
		case <-patience:
			t.Fatalf("the directory still takes %d bytes and not %d", now, to)
		}
	}
}

// size is how many bytes the files of a directory have.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ignoreGone: a compaction may remove a file at any time.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
