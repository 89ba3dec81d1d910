package pebblestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// openToOthers finds what others may use in a directory, and the directory itself.
func openToOthers(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if empty := err == nil && info.Mode().IsRegular() && info.Size() == 0; empty {
			return nil // Pebble may be making it just now: it is hidden before there is anything in it
		}
		if err == nil && info.Mode()&0o077 != 0 {
			names = append(names, info.Mode().String()+" "+name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestOnlyTheOwnerReadsTheDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such rights")
	}
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777|fs.ModeSetgid); err != nil { // whatever the umask
		t.Fatal(err)
	}
	s := mustOpen(t, dir, &Options{MemTableBytes: smallTables})
	for n := range 50 { // enough for tables, and for logs that are used again
		rec := testRecord(testID(string(rune('a'+n))), 1, semel.Completed)
		rec.Result.Data = make([]byte, 32<<10)
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if names := openToOthers(t, dir); names != nil {
		t.Errorf("while it is open: %q", names)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if names := openToOthers(t, dir); names != nil {
		t.Errorf("when it is closed: %q", names)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode()&fs.ModeSetgid == 0 {
		t.Errorf("the directory lost more than the rights of others: %v, %v", info.Mode(), err)
	}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = os.Chmod(name, 0o644) // as somebody may have copied them
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mustOpen(t, dir, nil).Close(); err != nil {
		t.Fatal(err)
	}
	if names := openToOthers(t, dir); names != nil {
		t.Errorf("of a directory that was there before: %q", names)
	}
}
