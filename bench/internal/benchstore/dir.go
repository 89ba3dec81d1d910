package benchstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	lockName   = "semel-bench.lock"
	dataPrefix = "semel-bench-"
)

// workDir is a subdirectory of the user's directory, where the benchmark keeps its data.
type workDir struct {
	path string
	lock io.Closer
	file string // of the lock
}

// openDir makes the user's directory if it doesn't exist, locks it, and makes a
// subdirectory in it. It refuses a directory with anything else than what earlier runs
// left, and one that another run is using.
func openDir(dir string) (*workDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() != lockName && !(e.IsDir() && strings.HasPrefix(e.Name(), dataPrefix)) {
			return nil, fmt.Errorf("%s holds %s, which is not of a benchmark: give it a directory of its own", dir, e.Name())
		}
	}
	w := &workDir{file: filepath.Join(dir, lockName)}
	if w.lock, err = vfs.Default.Lock(w.file); err != nil {
		return nil, fmt.Errorf("%s is in use by another benchmark: %w", dir, err)
	}
	if w.path, err = os.MkdirTemp(dir, dataPrefix); err != nil {
		return nil, errors.Join(err, w.lock.Close())
	}
	return w, nil
}

// sub is the directory of one store.
func (w *workDir) sub(name string) string { return filepath.Join(w.path, name) }

// close removes the data, unless they should be kept, and unlocks the user's directory.
func (w *workDir) close(keep bool) error {
	var err error
	if !keep {
		err = os.RemoveAll(w.path)
	}
	return errors.Join(err, os.Remove(w.file), w.lock.Close())
}
