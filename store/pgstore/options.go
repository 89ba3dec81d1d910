package pgstore

import (
	"cmp"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Options configures a [Store]. The zero value, and nil, mean the defaults.
type Options struct {
	// Schema holds the tables. Defaults to [DefaultSchema].
	Schema string
	// Migrate brings the schema up to date when the store is opened. Without it,
	// Open refuses a schema that lacks migrations.
	Migrate bool
	// Partition keeps results apart from the records, in partitions of a table, one
	// for each period of this length in which they expire. A partition is dropped
	// as a whole, which is much less work than to delete large results one by one.
	// With Migrate a schema that has none gets them; otherwise it must have been
	// made with [Partition], and with the same length. Zero: as the schema is.
	Partition time.Duration
	// Strict refuses to open where a setting of the server is unsafe; see
	// [Store.Durability].
	Strict bool
	// MaxConns is how many connections writes take, each of which carries one batch
	// at a time. Defaults to 2. Reads, the clock and the rest have up to
	// [ReadConns] of their own, so that they go on when writes are stuck, and
	// notices one more.
	MaxConns int
	// MaxBatch is how many writes share a statement. Defaults to 256.
	MaxBatch int
	// AcquireTimeout is how long a write waits for its turn before it gives up
	// with [ErrBusy], and any call for a connection. Defaults to 250 ms. Beside
	// 16,384 writes that wait, or 64 MiB of them, others get it at once.
	AcquireTimeout time.Duration
	// LockTimeout is how long a write waits for a transaction of somebody else
	// that holds its record. Defaults to 100 ms. While a record stays locked, later
	// writes of it do not wait.
	LockTimeout time.Duration
	// ListenURL is where the store listens for the changes that other stores
	// make, for a transaction pooler can't pass notices on. Defaults to the URL of
	// the store.
	ListenURL string
	// Pooler says that the URL leads to a transaction pooler. A pooler that tells
	// process numbers of its own, as they do, is noticed without it.
	Pooler bool
	// NoNotices neither listens nor tells others of changes. Who waits for an
	// outcome from another process then has to poll.
	NoNotices bool
	// Logger is told of trouble that no caller gets as an error: lost notices, a
	// clock that can't be read. Defaults to none.
	Logger *slog.Logger

	// shift is added to the clock, in nanoseconds, and machine are the clocks that it
	// is carried on by, for tests.
	shift   *atomic.Int64
	machine func() moment
	// apart is the size from which on a result is kept apart, for tests.
	apart int
	// space bounds the writes that wait, for tests.
	space space
	// silence is how often silent connections are looked at, and connect how long
	// making one may take, for tests.
	silence, connect time.Duration
}

// Defaults of [Options].
const (
	DefaultSchema         = "semel"
	DefaultMaxConns       = 2
	DefaultMaxBatch       = 256
	DefaultAcquireTimeout = 250 * time.Millisecond
	DefaultLockTimeout    = 100 * time.Millisecond
)

// ReadConns is how many connections reads, the clock and the rest take at most.
const ReadConns = 4

func (o *Options) withDefaults() (Options, error) {
	var d Options
	if o != nil {
		d = *o
	}
	d.Schema = cmp.Or(d.Schema, DefaultSchema)
	d.MaxConns = cmp.Or(d.MaxConns, DefaultMaxConns)
	d.MaxBatch = cmp.Or(d.MaxBatch, DefaultMaxBatch)
	d.AcquireTimeout = cmp.Or(d.AcquireTimeout, DefaultAcquireTimeout)
	d.LockTimeout = cmp.Or(d.LockTimeout, DefaultLockTimeout)
	d.silence = cmp.Or(d.silence, silencePeriod)
	d.connect = cmp.Or(d.connect, connectLimit)
	d.apart, d.space = cmp.Or(d.apart, apartBytes), cmp.Or(d.space, maxWaiting)
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.shift == nil {
		d.shift = new(atomic.Int64)
	}
	if d.machine == nil {
		d.machine = machineClock()
	}
	if d.Partition != 0 {
		if err := checkPeriod(d.Partition); err != nil {
			return d, err
		}
	}
	switch {
	case d.MaxConns < 0 || d.MaxConns > 1000 || d.MaxBatch < 0 || d.MaxBatch > 10_000:
		return d, errors.New("MaxConns is 1 to 1000 and MaxBatch 1 to 10,000")
	case d.AcquireTimeout < 0 || d.LockTimeout < time.Millisecond:
		return d, errors.New("AcquireTimeout may not be negative, and LockTimeout not below a millisecond")
	}
	return d, nil
}
