package pebblestore

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configures a [Store]. The zero value, and nil, mean the documented
// defaults, with which a store of ten million records stays well below 1 GiB of
// memory.
type Options struct {
	// FS is the file system, for tests. Defaults to that of the operating
	// system.
	FS vfs.FS
	// CacheBytes is how much memory blocks of tables may take, among them the
	// filters and indexes that every read needs. Give it more where replays of
	// old records are many. Defaults to 128 MiB.
	CacheBytes int64
	// MemTableBytes is how much is written before it is sorted out of the log
	// into tables. Up to four of them are in memory, and replayed after a
	// crash. Defaults to 64 MiB.
	MemTableBytes uint64
	// Strict refuses a directory that was not closed where its log ends in a way that
	// may be damage to what was acknowledged, and may be a write that a loss of power
	// cut off. Without it that is taken for the latter, and logged.
	Strict bool
	// ReadOnly opens a directory to look at it, also on a full disk, and changes nothing
	// in it. It has to be a store. What would write fails with [ErrReadOnly].
	ReadOnly bool
	// Logger is told of trouble that no caller gets as an error: failed
	// background work, a slow disk. Defaults to none.
	Logger *slog.Logger

	ctx context.Context // of opening
	// fatal ends the process, and is replaced in tests. It does not return.
	fatal func(message string)
	// time is replaced in tests.
	time timeSource
	// looked is called in tests, between the look at the database and the comparison.
	looked func()
}

// Defaults and bounds of [Options].
const (
	DefaultCacheBytes    = 128 << 20
	DefaultMemTableBytes = 64 << 20
)

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.CacheBytes = cmp.Or(d.CacheBytes, DefaultCacheBytes)
	d.MemTableBytes = cmp.Or(d.MemTableBytes, DefaultMemTableBytes)
	if d.ctx == nil {
		d.ctx = context.Background()
	}
	if d.FS == nil {
		d.FS = vfs.Default
	}
	if d.fatal == nil {
		d.fatal = exit
	}
	if d.time == nil {
		d.time = systemTime()
	}
	return d
}

// groupBytes bounds a batch well below the size from which Pebble treats it as
// a table of its own.
func (o *Options) groupBytes() int {
	return int(min(o.MemTableBytes/8, 4<<20))
}

// formatVersion is Pebble's own format, which is raised by a decision and not by
// an update of the library: older programs can't read newer formats. This one
// says in the log up to where it was synced, so that damage is told apart from a
// tail that was never synced.
const formatVersion = pebble.FormatTableFormatV6

// PebbleOptions is how Open sets Pebble up, for programs that compare the store
// with Pebble itself. Opts may be nil.
func PebbleOptions(opts *Options) *pebble.Options {
	o := opts.withDefaults()
	return o.pebble(&logger{slog: o.Logger, end: o.fatal})
}

// pebble is how Pebble is set up:
//   - ten bits of bloom filter per key keep a look-up from reading tables that do
//     not have the key. The last level needs none: keys that are not stored at
//     all are known to the store itself, see absence;
//   - blocks of 16 KiB keep the indexes of all tables small, and in the cache;
//   - the memory table is large, because a completion that meets its claim there
//     spares the tables from ever seeing the claim. Pebble takes memory tables out
//     of the cache's share, so that is added;
//   - writes are not stopped because tables wait to be merged, unless there are
//     very many: few of them overlap;
//   - tables wait until there are eight of them over each other, and the first level
//     below them is large. Each merging rewrites what is there between the digests
//     and the newest records and evidence, which is all of that level: half as many
//     mergings, and one level fewer, are a tenth less work.
func (o *Options) pebble(log *logger) *pebble.Options {
	po := &pebble.Options{
		FS:                          o.FS,
		FormatMajorVersion:          formatVersion,
		CacheSize:                   o.CacheBytes + 3*int64(o.MemTableBytes),
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       8,
		L0StopWritesThreshold:       100,
		LBaseMaxBytes:               512 << 20,
		MaxOpenFiles:                1000,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      log,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.trouble("background work of the store failed", "error", err) },
			DiskSlow:        func(i pebble.DiskSlowInfo) { log.trouble("the disk is slow", "operation", i.String()) },
			// The read that met the damage gets an error. The process goes on:
			// other records are whole.
			DataCorruption: func(i pebble.DataCorruptionInfo) { log.trouble("a file of the store is damaged", "detail", i.String()) },
		},
	}
	if o.FS == vfs.Default {
		po.WithFSDefaults() // watches for a slow disk
	}
	po.TargetFileSizes[0] = 4 << 20
	for i := range po.Levels {
		po.Levels[i].BlockSize = 16 << 10
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.FastestCompression }
	}
	po.Levels[len(po.Levels)-1].FilterPolicy = pebble.NoFilterPolicy
	return po
}
