package pebblestore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is a file system in a real directory that fails as ordered. If it forgets,
// what was not synced is lost when the process ends, as if the power had failed,
// and what could not be synced is lost at once, as on Linux: syncing again says
// that all is well.
type disk struct {
	vfs.FS
	kind    string // of the fault
	from    int64  // the operation that fails, or nothing before begin
	forgets bool

	count atomic.Int64
	on    atomic.Bool
	fired atomic.Bool
	mu    sync.Mutex
	cache map[string]*cachedFile
}

// The faults of a disk.
const (
	faultNone = ""
	faultOnce = "one operation fails"
	faultSync = "every sync fails"
	faultFull = "the disk is full"
)

func newDisk(kind string, from int64, forgets bool) *disk {
	return &disk{FS: vfs.Default, kind: kind, from: from, forgets: forgets, cache: map[string]*cachedFile{}}
}

// fs is what the store gets.
func (d *disk) fs() vfs.FS {
	if d.kind == faultNone && !d.forgets {
		return vfs.Default
	}
	return errorfs.Wrap(d, errorfs.InjectorFunc(d.operation))
}

// begin lets the disk fail from now on.
func (d *disk) begin() { d.on.Store(true) }

func (d *disk) operation(op errorfs.Op) error {
	var err error
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	switch {
	case d.kind == faultOnce && d.count.Add(1) == d.from:
		err = syscall.EIO
	case d.kind == faultSync && d.on.Load() && sync:
		err = syscall.EIO
	case d.kind == faultFull && d.on.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate):
		err = syscall.ENOSPC
	}
	if err == nil {
		return nil
	}
	if sync {
		d.mu.Lock()
		f := d.cache[op.Path]
		d.mu.Unlock()
		if f != nil {
			f.lose()
		}
	}
	if !d.fired.Swap(true) {
		fmt.Println(wordFault, int(op.Kind), op.Path)
	}
	return err
}

func (d *disk) cached(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !d.forgets {
		return f, err
	}
	c := &cachedFile{File: f}
	d.mu.Lock()
	d.cache[name] = c
	d.mu.Unlock()
	return c, nil
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	return d.cached(name, f, err)
}

func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	return d.cached(newname, f, err)
}

// cachedFile keeps what is written in memory until it is synced.
type cachedFile struct {
	vfs.File
	mu     sync.Mutex
	unsafe []byte
}

func (f *cachedFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsafe = append(f.unsafe, p...)
	return len(p), nil
}

func (f *cachedFile) WriteAt([]byte, int64) (int, error) {
	return 0, errors.New("the file takes writes at its end only")
}

func (f *cachedFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.File.Write(f.unsafe)
	f.unsafe = f.unsafe[:0]
	return errors.Join(err, f.File.Sync())
}

func (f *cachedFile) SyncData() error { return f.Sync() }

func (f *cachedFile) SyncTo(int64) (fullSync bool, err error) { return true, f.Sync() }

// Fd keeps Pebble from going around the cache.
func (f *cachedFile) Fd() uintptr { return vfs.InvalidFd }

func (f *cachedFile) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsafe = f.unsafe[:0]
}
