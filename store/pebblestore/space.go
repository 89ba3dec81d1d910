package pebblestore

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/semelhq/semel/store"
)

// space watches how much room the disk has. When there is hardly enough to turn the logs into tables,
// the store adds no more records: the rest is reserved for the outcomes of existing records, and for
// purging them. If even that runs out, a write to the log fails and the process ends.
type space struct {
	fs     vfs.FS
	dir    string
	db     *pebble.DB
	log    *logger
	margin uint64
	plenty uint64 // with this much room, look doesn't ask Pebble
	low    atomic.Bool
}

// ErrFull is the error of a write that would add a record while the disk is nearly full.
// Nothing was written.
var ErrFull = fmt.Errorf("pebblestore: the disk is nearly full: %w", store.ErrNotApplied)

func (p *space) watch(s *Store, o *Options) {
	p.fs, p.dir, p.db, p.log = s.fs, s.dir, s.db, &s.logger
	p.margin, p.plenty = o.MemTableBytes, 8*o.MemTableBytes
	p.look()
}

// look reports whether there is hardly any room left, as far as the file system says.
func (p *space) look() bool {
	usage, err := p.fs.GetDiskUsage(p.dir)
	low := false
	if err == nil && usage.AvailBytes < p.plenty {
		low = usage.AvailBytes < p.db.Metrics().WAL.Size+min(p.margin, usage.TotalBytes/20)
	}
	if p.low.Swap(low) != low {
		if low {
			p.log.Error("the disk is nearly full: no record is added", "free", usage.AvailBytes)
		} else {
			p.log.Info("the disk has room again", "free", usage.AvailBytes)
		}
	}
	return low
}

// full reports whether no record may be added.
func (p *space) full() bool { return p.low.Load() && p.look() }

// openRoom is the size of the files that every opening creates.
const openRoom = 256 << 10

// enough fails if there isn't room to turn the logs into tables: Pebble would try forever.
func (s *Store) enough(need uint64) error {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		usage, err = s.fs.GetDiskUsage(s.fs.PathDir(s.dir))
	}
	if err != nil {
		return nil // this file system doesn't say
	}
	if usage.AvailBytes < need {
		return fmt.Errorf("the disk is full: %d bytes are free, and opening may take %d. Make room", usage.AvailBytes, need)
	}
	return nil
}

// Room says how full the disk is.
type Room struct {
	Free, Total uint64 // bytes
	// Full: the store adds no records until there is more room.
	Full bool
}

// Room returns how full the store's disk is.
func (s *Store) Room() (Room, error) {
	usage, err := s.fs.GetDiskUsage(s.dir)
	return Room{usage.AvailBytes, usage.TotalBytes, s.space.look()}, err
}
