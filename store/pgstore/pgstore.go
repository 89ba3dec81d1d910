package pgstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/store"
)

// Store is a [semel.Store] in a PostgreSQL database. It has all of [store.Extras]. Its
// methods may be called concurrently.
type Store struct {
	notices
	opts      Options
	database  database
	sql       statements
	log       evidenceStatements
	writes    *pgxpool.Pool
	reads     *pgxpool.Pool
	writers   gather.Queue[*op]
	readers   gather.Queue[*get]
	logWrites gather.Queue[*logWrite]
	locked    lockedIDs
	meets     atomic.Bool // the last new records met others
	connect   connector   // beside the pools
	clock     offsetclock.Clock
	where     atomic.Pointer[string] // the table; nil: not known yet

	mu         sync.Mutex  // held for closing, and for starting what Close waits for
	closed     atomic.Bool // Close was called
	once       sync.Once
	base       context.Context    // the base context of everything in progress
	abandon    context.CancelFunc // ends it
	work       sync.WaitGroup
	life       context.Context // of the background
	stop       context.CancelFunc
	background sync.WaitGroup
}

var _ semel.Store = (*Store)(nil)

const (
	// maxBatch bounds the rows that a transaction locks until its commit, and how many results
	// a lost answer leaves unknown.
	maxBatch = 256
	// maxBytes bounds a batch, because the server holds it in memory more than once.
	maxBytes = 4 << 20
	// closeLimit is how long Close waits for the server.
	closeLimit = 10 * time.Second
)

var errClosed = fmt.Errorf("pgstore: closed: %w", store.ErrNotApplied)

// ErrBusy is the error of a call that got no connection within Options.AcquireTimeout, or that
// came when too many were waiting. It changed nothing.
var ErrBusy = fmt.Errorf("pgstore: no connection was free in time: %w", store.ErrNotApplied)

// Open connects to a database, by a URL or a list of settings in libpq's form. Options may be
// nil. It refuses a schema that lacks migrations or that a later program has migrated.
// [Store.Durability] tells you how durable the server's settings make records.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	config, o, err := parse(url, opts)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	return openAt(ctx, config, o)
}

// Check reports why Open would refuse a URL and options before it connects.
func Check(url string, opts *Options) error { _, _, err := parse(url, opts); return err }

func parse(url string, opts *Options) (config *pgxpool.Config, o Options, err error) {
	if config, err = pgxpool.ParseConfig(url); err != nil {
		_, why, _ := strings.Cut(err.Error(), "`: ") // it follows the URL, which may have a password
		return nil, o, fmt.Errorf("the URL can't be used: %s", why)
	}
	o, err = opts.withDefaults()
	if own, e := pgx.ParseConfig(url); err == nil && e == nil && own.RuntimeParams["pool_max_conns"] != "" {
		err = o.within(int(config.MaxConns))
	}
	return config, o, err
}

// New opens a store in the database that your application has a pool for already: with the same
// addresses, credentials and TLS, and with the pool's BeforeConnect, which may supply changing
// passwords. Otherwise it is like [Open].
//
// The store has connections of its own: up to Options.MaxConns for writes, [ReadConns] for
// reads, and one for notices. It doesn't borrow the pool's: if handlers held all of those, each
// waiting for its outcome to be recorded, none could be recorded. The pool stays yours and isn't
// closed with the store.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	config := pool.Config()
	own, o, err := parse("", opts)
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	own.ConnConfig, own.BeforeConnect = config.ConnConfig, config.BeforeConnect
	own.MaxConnLifetime, own.MaxConnLifetimeJitter, own.MaxConnIdleTime = config.MaxConnLifetime, config.MaxConnLifetimeJitter, config.MaxConnIdleTime
	// Settings that the application made for its own statements aren't meant for these: a time
	// limit would cancel commits that wait for a standby.
	own.ConnConfig.Tracer = nil
	maps.DeleteFunc(own.ConnConfig.RuntimeParams, func(name, _ string) bool { return name != "application_name" && name != "options" })
	return openAt(ctx, own, o)
}

func openAt(ctx context.Context, config *pgxpool.Config, o Options) (*Store, error) {
	s := &Store{opts: o}
	s.base, s.abandon = context.WithCancel(context.Background())
	s.life, s.stop = context.WithCancel(context.Background())
	s.makeClock()
	s.makeQueues()
	if err := s.open(ctx, config); err != nil {
		return nil, fmt.Errorf("open the store in PostgreSQL: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, config *pgxpool.Config) (err error) {
	s.configure(config.ConnConfig)
	s.connect = connecting(config.ConnConfig, config.BeforeConnect)
	if s.database, err = probe(ctx, s.connect); err != nil {
		return plainly(err)
	}
	s.database.pooler = s.database.pooler || s.opts.Pooler
	if s.reads, err = s.newPool(ctx, config.Copy(), s.opts.readConns); err != nil {
		return err
	}
	if s.writes = s.reads; !s.opts.shared {
		if s.writes, err = s.newPool(ctx, config.Copy(), s.opts.MaxConns); err != nil {
			return err
		}
	}
	if s.opts.Migrate {
		if _, err := migrate(ctx, s.reads, s.opts.Schema, unused); err != nil {
			return err
		}
	}
	if err := s.checkRights(ctx); err != nil {
		return err
	}
	if err := checkSchema(ctx, s.reads, s.opts.Schema); err != nil {
		return err
	}
	s.sql, s.log = newStatements(s.opts.Schema, &s.database), newEvidenceStatements(s.opts.Schema, &s.database)
	if err := s.clock.Read(ctx); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	return s.startNotices()
}

// startNotices starts sending notices of changes to other processes, and receiving theirs.
func (s *Store) startNotices() error {
	connect := s.connect
	if s.opts.ListenURL != "" {
		config, err := pgx.ParseConfig(s.opts.ListenURL)
		if err != nil {
			return err
		}
		s.configure(config)
		connect = connecting(config, nil)
	}
	if !s.opts.noNotices {
		s.changes = make(chan watchKey, maxNamed)
		s.background.Go(func() { s.tellOthers(s.life) })
		s.background.Go(func() { s.listen(s.life, connect) })
	}
	return nil
}

// makeQueues makes the queues. Writes of the evidence log alone have one worker: while commits
// wait for a missing standby, retries would take all connections. Gets leave two of the
// connections for reads free.
func (s *Store) makeQueues() {
	s.writers = gather.Queue[*op]{
		Send: func(ops []*op) { s.writeBatch(s.base, ops) }, Lead: func(ctx context.Context, o *op) { s.writeBatch(ctx, []*op{o}) },
		Workers: s.opts.MaxConns, MaxBatch: s.opts.batch, MaxBytes: maxBytes,
		Work: &s.work, Room: gather.NewRoom(),
		Key: func(o *op) [32]byte { return o.id }, Answers: answersWrite, Apart: func(o *op) bool { return s.locked.has(o.id) },
		Failed: func(o *op) bool {
			return o.err != nil && !errors.Is(o.err, store.ErrTooLate) && !metLock(o.err) && !rolledBackByRow(o.err)
		},
	}
	s.readers = gather.Queue[*get]{
		Send: s.getBatch, Workers: max(1, s.opts.readConns/2), MaxBatch: s.opts.batch, MaxBytes: maxBytes,
		Work: &s.work, Room: gather.NewRoom(),
		Failed: func(g *get) bool { return g.err != nil && !errors.Is(g.err, semel.ErrNotFound) },
	}
	s.logWrites = gather.Queue[*logWrite]{
		Send: func(one []*logWrite) { one[0].err = s.commit(s.base, s.reads, one[0].run) }, Workers: 1, MaxBatch: 1, MaxBytes: maxBytes,
		Work: &s.work, Room: gather.NewRoom(), Failed: func(w *logWrite) bool { return w.err != nil },
	}
}

// Queues is [store.QueueReporter.Queues].
func (s *Store) Queues() []store.QueueState {
	state := func(name string, l gather.Load) store.QueueState {
		return store.QueueState{Name: name, Full: l.Full, Batches: l.Batches, Items: l.Items, Silent: l.Silent(), Answered: l.Answered}
	}
	return []store.QueueState{state("writes", s.writers.Load()), state("reads", s.readers.Load()), state("evidence", s.logWrites.Load())}
}

// unanswered returns the error of a call that a queue gave up on.
func unanswered(err error) error {
	switch {
	case errors.Is(err, gather.ErrFull):
		return ErrBusy
	case errors.Is(err, gather.ErrNotSent):
		return notApplied(err)
	}
	return err
}

// usable refuses calls whose context has already ended.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// Close waits for running calls, for up to ten seconds, and closes the connections. Calls that wait
// for their turn fail. So do calls that the server hasn't answered after that time, for example
// because a standby is missing, and their results are unknown. Closing again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed.Store(true)
	s.mu.Unlock()
	s.once.Do(func() {
		late := time.AfterFunc(closeLimit, s.abandon)
		s.writers.Close()
		s.readers.Close()
		s.logWrites.Close()
		s.work.Wait()
		late.Stop()
		s.stop()
		s.background.Wait()
		s.abandon()
		for _, pool := range []*pgxpool.Pool{s.writes, s.reads} {
			if pool != nil {
				pool.Close()
			}
		}
	})
	return nil
}
