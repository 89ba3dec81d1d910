package evidence

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Options configures a [Log]. Nil, and zero values, mean the documented defaults.
type Options struct {
	// Node names this process to people, and tells it apart from others that integrate the log.
	// Defaults to a random name.
	Node string
	// Every is the pause between two checkpoints. Defaults to 1 second.
	Every time.Duration
	// KeepEvery is the pause between two checkpoints that stay in the store, to locate a fault
	// later. Defaults to 1 minute.
	KeepEvery time.Duration
	// FlushEvery is how long an entry that nobody waits for may wait to be written together
	// with others. A crash can lose this much at the level decisions. Defaults to 10
	// milliseconds.
	FlushEvery time.Duration
	// CountEvery is how long the log counts deliveries that are too many for entries of their
	// own, before it writes one entry with their number; see [Log.Decided]. A crash can lose
	// this much of the counts. Defaults to 1 minute.
	CountEvery time.Duration
	// MaxQueue bounds the entries that wait to be written. Beyond it a delivery waits for room,
	// up to MaxWait, and is then refused. Defaults to 16,384.
	MaxQueue int
	// MaxWait bounds how long a delivery waits for room, or for its evidence to be
	// durable. Defaults to 5 seconds.
	MaxWait time.Duration
	// KeepOpenings is the age at which openings are erased. Zero: never.
	KeepOpenings time.Duration
	// Keepers get every checkpoint that this node signs.
	Keepers []Keeper
	// SignedFile is where this node remembers the checkpoint that was last signed, so that it
	// doesn't sign a log that was cut off or put back between two starts of the process. It
	// should survive restarts, and be out of reach for people who can write to the store.
	// Without one the node compares the log with what this process has seen.
	SignedFile string
	// OnError gets the errors of the background work. Optional.
	OnError func(err error)
}

// Defaults of [Options].
const (
	DefaultEvery      = time.Second
	DefaultKeepEvery  = time.Minute
	DefaultFlushEvery = 10 * time.Millisecond
	DefaultCountEvery = time.Minute
	DefaultMaxQueue   = 16_384
	DefaultMaxWait    = 5 * time.Second
)

// Log is the evidence log of a store. It is the [semel.Witness] of any number of
// engines on that store. Its methods may be called concurrently.
type Log struct {
	store logStore
	cell  *store.Cell
	keys  *Keys
	trust *Trust
	opts  Options

	domains [domainCount][16]byte // keys of keyed digests

	node  [8]byte       // begins the ids of artifacts
	ids   atomic.Uint64 // number of ids given out
	level atomic.Pointer[store.Level]

	queue   queue
	counter counter

	turn sync.Mutex // held by the goroutine that integrates
	edge *tree      // nil: read it from the store
	last *lastSigned

	halted atomic.Pointer[error] // why this node doesn't sign any more
	forked atomic.Pointer[error] // a keeper's objection to the log

	cosigned atomic.Pointer[string] // signed by a witness, for the next head
}

// LookAt finds entries in the log of a store: use nothing of it but Reader, Name, Subject and Tenant.
// It neither writes nor signs, and you don't close it.
func LookAt(st semel.Store, keys *Keys) (*Log, error) {
	if st == nil || keys == nil {
		return nil, errors.New("evidence: a log needs a store and keys")
	}
	kept, err := logOf(st)
	if err != nil {
		return nil, err
	}
	return &Log{store: kept, cell: store.NewCell(st, headID), keys: keys, trust: keys.Trust(), domains: keys.domainKeys()}, nil
}

// New makes a log on a store, which must be able to keep one. Nodes with the same keys on one store make one.
func New(st semel.Store, keys *Keys, opts *Options) (*Log, error) {
	l, err := LookAt(st, keys)
	if err != nil {
		return nil, err
	}
	if opts != nil {
		l.opts = *opts
	}
	o := &l.opts
	if _, err := rand.Read(l.node[:]); err != nil {
		return nil, fmt.Errorf("evidence: random names: %w", err)
	}
	o.Node = cmp.Or(o.Node, hex.EncodeToString(l.node[:]))
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.KeepEvery = cmp.Or(o.KeepEvery, DefaultKeepEvery)
	o.FlushEvery = cmp.Or(o.FlushEvery, DefaultFlushEvery)
	o.CountEvery = cmp.Or(o.CountEvery, DefaultCountEvery)
	o.MaxQueue = cmp.Or(o.MaxQueue, DefaultMaxQueue)
	o.MaxWait = cmp.Or(o.MaxWait, DefaultMaxWait)
	if o.Every < 0 || o.KeepEvery < 0 || o.FlushEvery < 0 || o.CountEvery < 0 || o.MaxQueue < 0 || o.MaxWait < 0 || o.KeepOpenings < 0 {
		return nil, errors.New("evidence: durations and bounds may not be negative")
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if l.last, err = openLastSigned(o.SignedFile, keys.origin); err != nil {
		return nil, err
	}
	l.queue.init(l.store, o)
	l.counter.init(l)
	l.readLevel(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), o.MaxWait)
	defer cancel()
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) readLevel(ctx context.Context) {
	ds := l.store.Extras().Durability
	if ds == nil {
		return
	}
	if d, err := ds.Durability(ctx); err == nil {
		l.level.Store(&d.Level)
	}
}

func (l *Log) durability() store.Level {
	if level := l.level.Load(); level != nil {
		return *level
	}
	return ""
}

// Close writes the counts and the queue, and waits until they are durable or ctx is done. The
// error says what may be lost. The log then refuses further deliveries.
func (l *Log) Close(ctx context.Context) error {
	return errors.Join(l.counter.close(ctx), l.queue.close(ctx))
}

// logStore is a store that keeps the log beside its records.
type logStore struct {
	semel.Store
	store.EvidenceLog
}

func logOf(st semel.Store) (logStore, error) {
	x := st.Extras()
	if x.Evidence == nil {
		return logStore{}, fmt.Errorf("evidence: %w", cmp.Or(x.NoEvidence, errors.New("this store can't keep it")))
	}
	return logStore{st, x.Evidence}, nil
}
