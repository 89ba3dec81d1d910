package archive

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// disk is a file system in memory that knows what would be left after the power
// was cut: what was synced, and of the rest as much as chance has it. It can be
// made to fail from some operation on.
type disk struct {
	mu     sync.Mutex
	now    map[string]*content
	done   []change // of names, oldest first
	synced int      // how many of them are durable
	ops    int      // that changed something
	failAt int      // the operation from which on all fail; 0: none
	once   bool     // only that one fails
	after  bool     // the failing operation is done before it fails
}

type content struct {
	data   []byte
	synced int
}

// change is one of the names: to is given the content, from is removed.
type change struct {
	to, from string
	content  *content
}

var errDisk = errors.New("the disk failed")

func newDisk() *disk { return &disk{now: map[string]*content{}} }

// op is an operation that changes something.
func (d *disk) op(do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops++
	if d.failAt > 0 && (d.ops == d.failAt || d.ops > d.failAt && !d.once) {
		if d.after && d.ops == d.failAt {
			do()
		}
		return errDisk
	}
	do()
	return nil
}

func (d *disk) apply(c change) {
	delete(d.now, c.from)
	if c.to != "" {
		d.now[c.to] = c.content
	}
	d.done = append(d.done, c)
}

// cut is the disk after the power was cut. Changes of names come one after the
// other, so a prefix of those that were not synced is left. Of what was written to
// a file and not synced a part is left, and zeros where a block is missing.
func (d *disk) cut(rng *rand.Rand) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := newDisk()
	files := map[*content]*content{}
	for _, c := range d.done[:d.synced+rng.IntN(len(d.done)-d.synced+1)] {
		if c.content != nil && files[c.content] == nil {
			data := slices.Clone(c.content.data)
			if n := c.content.synced + rng.IntN(len(data)-c.content.synced+1); rng.IntN(2) == 0 {
				data = data[:n]
			} else if rng.IntN(2) == 0 {
				clear(data[n:])
			}
			files[c.content] = &content{data, len(data)}
		}
		left.apply(change{c.to, c.from, files[c.content]})
	}
	left.synced = len(left.done)
	return left
}

func (d *disk) MkdirAll(string) error             { return nil }
func (d *disk) Lock(string) (io.Closer, error)    { return io.NopCloser(nil), nil }
func (d *disk) List(string) (l []string, e error) { return append(d.names(), lockFile), nil }

func (d *disk) names() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.now {
		names = append(names, filepath.Base(name))
	}
	slices.Sort(names)
	return names
}

func (d *disk) find(name string) *content {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now[name]
}

func (d *disk) Open(name string) (io.ReadCloser, error) {
	c := d.find(name)
	if c == nil {
		return nil, os.ErrNotExist
	}
	return io.NopCloser(&reader{c.data}), nil
}

// reader gives little at a time.
type reader struct{ rest []byte }

func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(len(r.rest), 1000)])
	r.rest = r.rest[n:]
	return n, nil
}

func (d *disk) Create(name string) (file, error) {
	c := &content{}
	return &diskFile{d, c}, d.op(func() { d.apply(change{to: name, content: c}) })
}

func (d *disk) Append(name string) (file, error) {
	if c := d.find(name); c != nil {
		return &diskFile{d, c}, nil
	}
	return d.Create(name)
}

func (d *disk) Rename(from, to string) error {
	c := d.find(from)
	if c == nil {
		return os.ErrNotExist
	}
	return d.op(func() { d.apply(change{to, from, c}) })
}

func (d *disk) Remove(name string) error {
	if d.find(name) == nil {
		return nil
	}
	return d.op(func() { d.apply(change{from: name}) })
}

func (d *disk) SyncDir(string) error { return d.op(func() { d.synced = len(d.done) }) }

type diskFile struct {
	d *disk
	c *content
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.d.op(func() { f.c.data = append(f.c.data, p...) })
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *diskFile) Sync() error  { return f.d.op(func() { f.c.synced = len(f.c.data) }) }
func (f *diskFile) Close() error { return f.d.op(func() {}) }
