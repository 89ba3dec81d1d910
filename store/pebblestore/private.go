package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// machine is the machine's file system. Only the owner can read the files that the store
// creates there, whatever the umask and the directory: Pebble itself creates files that
// everybody can read.
var machine vfs.FS = private{vfs.Default}

type private struct{ vfs.FS }

// Create is [vfs.FS.Create].
func (p private) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	return hidden(f, name, err)
}

// OpenReadWrite is [vfs.FS.OpenReadWrite].
func (p private) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.FS.OpenReadWrite(name, category, opts...)
	return hidden(f, name, err)
}

// ReuseForWrite is [vfs.FS.ReuseForWrite].
func (p private) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.ReuseForWrite(old, name, category)
	return hidden(f, name, err)
}

// Lock is [vfs.FS.Lock].
func (p private) Lock(name string) (io.Closer, error) {
	lock, err := p.FS.Lock(name)
	return hidden(lock, name, err)
}

// hidden hides a file that was just created and is still empty. A crash before it leaves an
// empty file, which the next Open hides.
func hidden[F io.Closer](f F, name string, err error) (F, error) {
	if err == nil {
		if err = hide(name); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return f, err
}

// hide removes everybody's rights to a file or directory except the owner's.
func hide(name string) error {
	if runtime.GOOS == "windows" {
		return nil // it can't have such rights: a new file inherits its directory's
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode()&0o077 == 0 {
		return err
	}
	return os.Chmod(name, info.Mode()&^0o077)
}

// hideDirectory hides the directory and everything in it. If something belongs to somebody
// else, such as the root of a volume, it can't, and logs that.
func (s *Store) hideDirectory() {
	if s.fs != machine {
		return
	}
	names, err := s.fs.List(s.dir)
	for _, name := range append(names, ".") {
		if one := hide(filepath.Join(s.dir, name)); !errors.Is(one, os.ErrNotExist) {
			err = errors.Join(err, one)
		}
	}
	if err != nil {
		s.logger.Error("others on this machine can read the directory of the store", "error", fmt.Errorf("hide it: %w", err))
	}
}
