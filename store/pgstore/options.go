package pgstore

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/offsetclock"
)

// Options configures a [Store]. The zero value, and nil, mean the defaults.
type Options struct {
	// Schema holds the tables. Defaults to [DefaultSchema].
	Schema string
	// Migrate brings the schema up to date when the store is opened. Without it, Open refuses a
	// schema that lacks migrations. It refuses with [ErrInUse] to remove something that nodes
	// of an earlier version use while sessions with the same application_name are connected.
	Migrate bool
	// MaxConns is how many connections writes use. Each carries one batch at a time. Defaults
	// to 2, so that a batch that waits for a lock doesn't hold up all others. Reads and
	// everything else have up to [ReadConns] of their own, so that they go on when writes are
	// stuck, and notices have one more. If the URL has pool_max_conns, which bounds all of them
	// together, there are fewer.
	MaxConns int
	// AcquireTimeout is how long a call waits for a connection before it gives up with
	// [ErrBusy]. Defaults to 4 seconds, which is less than an engine waits for a store, so the
	// caller knows for certain that nothing was written. A write or a Get that waits for its
	// turn, behind others that the server is at work on, waits as long as its context allows.
	// While 16,384 of them or 64 MiB wait, others get ErrBusy at once.
	AcquireTimeout time.Duration
	// LockTimeout is how long a write waits for somebody else's transaction that holds its
	// record. Defaults to 100 ms. While a record stays locked, later writes of it don't wait.
	LockTimeout time.Duration
	// ListenURL is where the store listens for changes by other stores, because a
	// transaction pooler can't pass notices on. Defaults to the URL of the store.
	ListenURL string
	// Pooler says that the URL leads to a transaction pooler. Open usually notices one by
	// itself, because a pooler makes up process numbers. If the URL starts to lead to one only
	// later, open the store again.
	Pooler bool
	// Logger gets problems that no caller gets as an error: lost notices, a clock that can't be
	// read. Defaults to none.
	Logger *slog.Logger

	// For tests: this machine's clocks, how long to wait for an answer, how long connecting may
	// take, the pause between notices, maxBatch, and whether to send and receive no notices.
	machine                func() offsetclock.Moment
	answer, connect, pause time.Duration
	batch                  int
	noNotices              bool

	readConns int
	shared    bool // reads and writes share one connection
}

// Defaults of [Options].
const (
	DefaultSchema         = "semel"
	DefaultMaxConns       = 2
	DefaultAcquireTimeout = semel.DefaultStoreTimeout - time.Second
	DefaultLockTimeout    = 100 * time.Millisecond
)

// ReadConns is the most connections that reads, the clock and everything but writes and notices use.
const ReadConns = 4

func (o *Options) withDefaults() (Options, error) {
	d := *cmp.Or(o, new(Options))
	d.Schema = cmp.Or(d.Schema, DefaultSchema)
	d.MaxConns = cmp.Or(d.MaxConns, DefaultMaxConns)
	d.readConns = ReadConns
	d.batch = cmp.Or(d.batch, maxBatch)
	d.AcquireTimeout = cmp.Or(d.AcquireTimeout, DefaultAcquireTimeout)
	d.LockTimeout = cmp.Or(d.LockTimeout, DefaultLockTimeout)
	d.answer = cmp.Or(d.answer, answerLimit)
	d.connect = cmp.Or(d.connect, connectLimit)
	d.pause = cmp.Or(d.pause, noticePause)
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.machine == nil {
		d.machine = offsetclock.Machine()
	}
	switch {
	case d.MaxConns < 0 || d.MaxConns > 1000:
		return d, errors.New("MaxConns is 1 to 1000")
	case d.AcquireTimeout < 0 || d.LockTimeout < time.Millisecond:
		return d, errors.New("AcquireTimeout may not be negative, and LockTimeout not below a millisecond")
	}
	return d, nil
}

// within limits all connections of a store together. Notices take one. A third of the others is
// for writes, because one carries many writes; a single one is for both.
func (o *Options) within(total int) error {
	if total < 2 {
		return errors.New("pool_max_conns is at least 2: one connection hears notices")
	}
	rest := total - 1
	o.shared = rest == 1
	o.MaxConns = min(o.MaxConns, max(1, rest/3))
	o.readConns = min(o.readConns, max(1, rest-o.MaxConns))
	return nil
}
