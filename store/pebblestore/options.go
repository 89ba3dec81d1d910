package pebblestore

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configures a [Store]. The zero value, and nil, mean the documented defaults, which
// keep a store of ten million records well below 1 GiB of memory.
type Options struct {
	// FS is the file system, for tests. Defaults to the operating system's, on which only the
	// owner can read the directory and its files.
	FS vfs.FS
	// CacheBytes is how much memory blocks of tables may take, including the filters and indexes
	// that every read needs. Give it more if you replay many old records. Defaults to 128 MiB.
	CacheBytes int64
	// MemTableBytes is the size of a memory table. When one is full it is written out. Up to two
	// are in memory, and replayed from the log after a crash. Defaults to 64 MiB.
	MemTableBytes uint64
	// Strict decides what to do with a directory that wasn't closed if its log ends in
	// something that may be damage to acknowledged writes, or a write that a power failure cut
	// off. With Strict, Open refuses such a directory. Without it, Open assumes a power
	// failure, and logs that.
	Strict bool
	// ReadOnly opens a store for inspection, even on a full disk, and changes nothing in its
	// directory. Writes fail with [ErrReadOnly].
	ReadOnly bool
	// Logger gets problems that no caller gets as an error: failed background work, a slow
	// disk. Defaults to none.
	Logger *slog.Logger

	ctx context.Context // of opening
	// fatal ends the process, and is replaced in tests. It does not return.
	fatal func(message string)
	time  machineClocks // replaced in tests
	// looked is called in tests, after reading the database and before the comparison.
	looked func()
}

// Defaults of [Options].
const (
	DefaultCacheBytes    = 128 << 20
	DefaultMemTableBytes = 64 << 20
)

func (o *Options) withDefaults() Options {
	d := *cmp.Or(o, new(Options))
	d.CacheBytes = cmp.Or(d.CacheBytes, DefaultCacheBytes)
	d.MemTableBytes = cmp.Or(d.MemTableBytes, DefaultMemTableBytes)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	d.ctx = cmp.Or(d.ctx, context.Background())
	if d.FS == nil || d.FS == vfs.Default {
		d.FS = machine
	}
	if d.fatal == nil {
		d.fatal = exit
	}
	if d.time.now == nil {
		d.time = systemTime()
	}
	return d
}

// batchBytes returns how large a batch may be: well below the size at which Pebble makes it a
// memory table of its own.
func (o *Options) batchBytes() int {
	return int(min(o.MemTableBytes/8, 4<<20))
}

// formatVersion is Pebble's own format. Older programs can't read newer formats, so an update
// of the library doesn't raise it. In this format the log says how far it was synced, which
// helps Pebble to tell damage from an unsynced end.
const formatVersion = pebble.FormatTableFormatV6

// blockSize is the size of a block in a table, in bytes.
const blockSize = 16 << 10

// PebbleOptions returns Pebble's options as Open sets them, for programs that compare the
// store with Pebble itself. Opts may be nil.
func PebbleOptions(opts *Options) *pebble.Options {
	o := opts.withDefaults()
	return o.pebble(&logger{o.Logger, o.fatal})
}

// pebble returns the options for Pebble:
//   - ten bits of Bloom filter per key keep a look-up from reading tables that don't
//     have the key. The last level needs none: keys that aren't stored at all are known to
//     the store itself, see absence;
//   - blocks of 16 KiB keep the index of ten million records in the cache; otherwise a
//     read fetches a part of that first (BenchmarkBlockSize);
//   - eight new tables wait over each other until Pebble merges them (BenchmarkL0Tables), and
//     24 until it stops writes, in place of 4 and 12: merging rewrites what is below, too;
//   - the memory table is large, because a completion that meets its claim there
//     spares the tables from ever seeing the claim. Pebble takes memory tables out
//     of the cache's share, so that is added.
func (o *Options) pebble(log *logger) *pebble.Options {
	po := &pebble.Options{
		FS:                 o.FS,
		FormatMajorVersion: formatVersion,
		CacheSize:          o.CacheBytes + int64(o.MemTableBytes),
		MemTableSize:       o.MemTableBytes,
		Logger:             log,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.Error("background work of the store failed", "error", err) },
			DiskSlow:        func(i pebble.DiskSlowInfo) { log.Error("the disk is slow", "operation", i.String()) },
			// The read that hit the damage gets an error. The process continues: other records
			// are intact.
			DataCorruption: func(i pebble.DataCorruptionInfo) { log.Error("a file of the store is damaged", "detail", i.String()) },
		},
	}
	if o.FS == machine {
		po.WithFSDefaults() // watches for a slow disk
	}
	po.L0CompactionThreshold, po.L0StopWritesThreshold = 8, 24
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].BlockSize = blockSize
	}
	po.Levels[len(po.Levels)-1].FilterPolicy = pebble.NoFilterPolicy
	return po
}
