package pebblestore

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
)

// space watches how much room the disk has. When there is hardly more than it takes to make
// tables of the logs, no record is added any more: what is left is for the outcomes of those
// that are there, and for purging them. Should it not be enough for that, a write to the log
// fails and the process ends.
type space struct {
	fs     vfs.FS
	dir    string
	db     *pebble.DB
	log    *logger
	margin uint64
	plenty uint64 // with so much no closer look is taken
	low    atomic.Bool
}

// ErrFull is what a write fails with that would add a record to a disk that is nearly full.
// Nothing was written.
var ErrFull = fmt.Errorf("pebblestore: the disk is nearly full: %w", semel.ErrNotApplied)

func (p *space) watch(s *Store, o *Options) {
	p.fs, p.dir, p.db, p.log = s.fs, s.dir, s.db, &s.log
	p.margin, p.plenty = o.MemTableBytes, 8*o.MemTableBytes
	p.look()
}

// look reports whether there is hardly any room, as far as that can be known.
func (p *space) look() bool {
	usage, err := p.fs.GetDiskUsage(p.dir)
	low := false
	if err == nil && usage.AvailBytes < p.plenty {
		low = usage.AvailBytes < p.db.Metrics().WAL.Size+min(p.margin, usage.TotalBytes/20)
	}
	if p.low.Swap(low) != low {
		if low {
			p.log.trouble("the disk is nearly full: no record is added", "free", usage.AvailBytes)
		} else {
			p.log.trouble("the disk has room again", "free", usage.AvailBytes)
		}
	}
	return low
}

// full reports whether no record may be added.
func (p *space) full() bool { return p.low.Load() && p.look() }

// openRoom is what the files take that every opening makes anew.
const openRoom = 256 << 10

// enough refuses to open a directory whose logs could not be made tables of. Pebble would
// try for ever.
func (s *Store) enough(need uint64) error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		usage, err = s.fs.GetDiskUsage(s.fs.PathDir(s.dir))
	}
	if err != nil {
		return nil // it can't be known
	}
	if usage.AvailBytes < need {
		return fmt.Errorf("the disk is full: %d bytes are free, and opening may take %d. Make room", usage.AvailBytes, need)
	}
	return nil
}

// Room is how full the disk is.
type Room struct {
	Free, Total uint64 // bytes
	// Full says that no record is added before there is more room.
	Full bool
}

// Room tells how full the disk is that the store is on.
func (s *Store) Room() (Room, error) {
	usage, err := s.fs.GetDiskUsage(s.dir)
	return Room{usage.AvailBytes, usage.TotalBytes, s.space.look()}, err
}
