package archive

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// files is the file system of an archive. Tests replace it by one that loses power.
type files interface {
	// MkdirAll makes a directory with its parents, durably.
	MkdirAll(dir string) error
	// Lock keeps other processes out of the directory of a file until it is closed.
	Lock(name string) (io.Closer, error)
	// List returns the names in a directory, in any order.
	List(dir string) ([]string, error)
	Open(name string) (io.ReadCloser, error)
	// Create makes a file, which must not exist.
	Create(name string) (file, error)
	// Append opens a file to write at its end, and makes it if it doesn't exist.
	Append(name string) (file, error)
	Rename(from, to string) error
	// Remove removes a file if it exists.
	Remove(name string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// file is a file that is written to.
type file interface {
	io.WriteCloser
	// Sync makes the writes durable.
	Sync() error
}

// osFiles is the file system of the operating system.
type osFiles struct{}

func (fs osFiles) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return errors.New("it is not a directory")
	case err == nil || !errors.Is(err, os.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := fs.MkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(parent)
}

func (osFiles) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osFiles) List(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

func (osFiles) Open(name string) (io.ReadCloser, error) { return os.Open(name) }

func (osFiles) Create(name string) (file, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

func (osFiles) Append(name string) (file, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) Remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (osFiles) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it keeps names by a journal, and has no such call
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
