package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel"
)

// Store is a [semel.Store] in a PostgreSQL database. It implements every optional
// interface of package semel. Its methods may be called concurrently.
type Store struct {
	opts    Options
	sql     statements
	hasty   statements // that do not wait for locks
	log     evidenceStatements
	kin     string        // the engine, where it is not PostgreSQL itself
	logTurn chan struct{} // holds one while the evidence log is written by itself
	period  time.Duration // of a partition; zero: the layout is plain
	tending sync.Mutex    // held while partitions are looked after
	writes  *pgxpool.Pool
	reads   *pgxpool.Pool
	commits committer
	looks   gatherer
	clock   clock
	watch   watchers
	notify  notifier
	joins   joins
	silence silence

	closed     atomic.Bool
	once       sync.Once
	stop       context.CancelFunc
	abandon    context.CancelFunc // lets go of what is on its way
	background sync.WaitGroup
}

var (
	_ semel.Store           = (*Store)(nil)
	_ semel.DueStore        = (*Store)(nil)
	_ semel.PurgeStore      = (*Store)(nil)
	_ semel.WatchStore      = (*Store)(nil)
	_ semel.SearchStore     = (*Store)(nil)
	_ semel.DurabilityStore = (*Store)(nil)
)

var errClosed = fmt.Errorf("pgstore: closed: %w", semel.ErrNotApplied)

// Open connects to a database, by a URL or a list of settings as libpq takes them.
// Options may be nil. It refuses a schema that lacks migrations or that a later
// program has migrated, and with Options.Strict a server whose settings are unsafe.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("open the store in PostgreSQL: %w", err)
	}
	return openAt(ctx, config, opts)
}

func openAt(ctx context.Context, config *pgxpool.Config, opts *Options) (*Store, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	s := &Store{opts: o}
	if err := s.open(ctx, config); err != nil {
		return nil, fmt.Errorf("open the store in PostgreSQL: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, config *pgxpool.Config) (err error) {
	s.silence = silence{period: s.opts.silence, limit: s.opts.connect, before: config.BeforeConnect, busy: map[*pgx.Conn]*quiet{}}
	if s.writes, err = newPool(ctx, config.Copy(), s.opts.MaxConns, &s.opts, &s.silence); err != nil {
		return err
	}
	if s.reads, err = newPool(ctx, config.Copy(), ReadConns, &s.opts, &s.silence); err != nil {
		return err
	}
	if s.opts.Migrate {
		if _, err := Migrate(ctx, s.reads, s.opts.Schema); err != nil {
			return err
		}
	}
	if err := checkSchema(ctx, s.reads, s.opts.Schema); err != nil {
		return err
	}
	if err := s.lookAtLayout(ctx); err != nil {
		return err
	}
	barriers, err := s.lookAtServer(ctx)
	if err != nil {
		return err
	}
	s.sql, s.hasty = s.statements(s.opts.LockTimeout, barriers), s.statements(noLockTime, barriers).anywhere()
	s.log, s.logTurn = newEvidenceStatements(s.opts.Schema, barriers), make(chan struct{}, 1)
	if s.opts.Strict {
		if err := s.refuseUnsafe(ctx); err != nil {
			return err
		}
	}
	s.clock.start(s.opts.machine, s.opts.shift)
	if err := s.readClock(ctx); err != nil {
		return err
	}
	if s.period != 0 {
		// Now, for calls would wait for the new partitions. It is tried again.
		if err := s.tendPartitions(ctx); err != nil {
			s.opts.Logger.Warn("the partitions were not looked after: they are once more", slog.Any("error", err))
		}
	}
	base, abandon := context.WithCancel(context.Background())
	s.commits = committer{
		conns: conns{pool: s.writes, wait: s.opts.AcquireTimeout, base: base, keep: min(keepFor, s.opts.silence), taken: map[*pgxpool.Conn]time.Time{}},
		sql:   &s.sql, hasty: &s.hasty, changed: s.changed, max: s.opts.MaxBatch, workers: s.opts.MaxConns,
		wait: s.opts.AcquireTimeout, busy: map[digest]*op{}, locked: map[digest]bool{}, space: s.opts.space, base: base,
	}
	s.abandon = func() {
		abandon()
		s.commits.conns.letGo()
	}
	s.looks = gatherer{s: s, base: base}
	return s.startBackground(config)
}

// startBackground starts what ends with Close.
func (s *Store) startBackground(pool *pgxpool.Config) error {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() { s.keepClock(ctx) })
	s.background.Go(func() { s.silence.run(ctx, s.opts.Logger) })
	if s.period != 0 {
		s.background.Go(func() { s.keepPartitions(ctx) })
	}
	if s.opts.NoNotices {
		return nil
	}
	config, before := pool.ConnConfig.Copy(), pool.BeforeConnect
	if s.opts.ListenURL != "" {
		var err error
		if config, err = pgx.ParseConfig(s.opts.ListenURL); err != nil {
			return err
		}
		before = nil
	}
	configure(config)
	s.notify.start()
	s.background.Go(func() { s.tellOthers(ctx) })
	s.background.Go(func() { s.listen(ctx, connecting(config, before)) })
	return nil
}

// noLockTime is the shortest time for locks that a server has.
const noLockTime = time.Millisecond

// statements are those of the layout that the schema has.
func (s *Store) statements(lockTimeout time.Duration, barriers bool) statements {
	plain := newStatements(s.opts.Schema, lockTimeout, barriers)
	if s.period == 0 {
		return plain
	}
	return s.partitioned(plain, lockTimeout)
}

// lookAtServer notes which engine it is, refuses a database that can't keep every text, and says whether the
// server can write a message to its log, which the barrier is made of.
func (s *Store) lookAtServer(ctx context.Context) (barriers bool, err error) {
	var encoding, version string
	err = s.reads.QueryRow(ctx, "SELECT current_setting('server_encoding'), to_regprocedure('pg_logical_emit_message(boolean,text,text)') IS NOT NULL, version()").Scan(&encoding, &barriers, &version)
	s.kin = kinOf(version)
	if err == nil && encoding != "UTF8" {
		err = fmt.Errorf("the database has the encoding %s, which does not have all characters: make one with UTF8", encoding)
	}
	return barriers, err
}

// connecting makes connections beside the pools. before is called with a copy of the
// configuration each time, as a pool does; nil: nothing is.
func connecting(config *pgx.ConnConfig, before func(context.Context, *pgx.ConnConfig) error) func(context.Context) (*pgx.Conn, error) {
	return func(ctx context.Context) (*pgx.Conn, error) {
		c := config.Copy()
		if before != nil {
			if err := before(ctx, c); err != nil {
				return nil, err
			}
		}
		return pgx.ConnectConfig(ctx, c)
	}
}

// newPool makes a pool, which connects when it is used.
func newPool(ctx context.Context, config *pgxpool.Config, conns int, o *Options, s *silence) (*pgxpool.Pool, error) {
	config.MaxConns, config.MinConns = int32(conns), 0
	config.PingTimeout = o.AcquireTimeout
	configure(config.ConnConfig)
	config.ConnConfig.ConnectTimeout = min(config.ConnConfig.ConnectTimeout, o.connect)
	if !o.Pooler {
		config.AfterConnect = within(o.connect, sessions(o.LockTimeout))
	}
	s.watch(config)
	s.connect = connecting(config.ConnConfig, s.before)
	return pgxpool.NewWithConfig(ctx, config)
}

// configure sets a connection up so that it keeps nothing in its session, and
// notices soon when its server is gone.
func configure(config *pgx.ConnConfig) {
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	config.OnNotice = onNotice
	const silence = 25 * time.Second
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}, Control: limitUnanswered(silence)}
	config.DialFunc = dialing(dialer)
}

// Apply is [semel.Store.Apply].
func (s *Store) Apply(ctx context.Context, w semel.Write) (semel.Record, bool, error) {
	if err := s.usable(ctx); err != nil {
		return semel.Record{}, false, notApplied(err)
	}
	o, err := newOp(w)
	if err != nil {
		return semel.Record{}, false, err
	}
	o.deadline = s.byServer(w.Deadline)
	if err := s.commits.apply(ctx, o); err != nil {
		return semel.Record{}, false, err
	}
	return *o.current, o.applied, nil
}

// byServer is an instant of the store's clock by the server's.
func (s *Store) byServer(at semel.Instant) semel.Instant {
	return at.Add(-time.Duration(s.opts.shift.Load()))
}

// usable refuses calls that have ended before they began.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// changed tells those who watch a record, here and elsewhere.
func (s *Store) changed(id *digest) {
	s.watch.wake(watchKey(id[:watchKeyLen]))
	s.notify.add(id)
}

// closeLimit is how long Close waits for the server.
const closeLimit = 10 * time.Second

// Close waits for running calls, for up to ten seconds, and closes the connections.
// Calls that wait for their turn fail. What the server has not answered by then, as
// when a standby is away, fails too, and its result is unknown. Closing again does
// nothing.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.once.Do(func() {
		if s.stop != nil {
			late := time.AfterFunc(closeLimit, s.abandon)
			s.commits.close()
			s.looks.close()
			late.Stop()
			s.abandon()
			s.stop()
			s.background.Wait()
		}
		for _, pool := range []*pgxpool.Pool{s.writes, s.reads} {
			if pool != nil {
				pool.Close()
			}
		}
	})
	return nil
}

// query runs a statement that only reads, or may be repeated, on a connection for
// reads.
func (s *Store) query(ctx context.Context, st *statement, each func(row [][]byte) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.onRead(ctx, func(conn *pgconn.PgConn) error { return execute(ctx, conn, st, each) })
}

func (s *Store) onRead(ctx context.Context, f func(conn *pgconn.PgConn) error) error {
	conn, err := acquire(ctx, s.reads, s.opts.AcquireTimeout)
	if err != nil {
		return err
	}
	defer release(conn)
	return f(conn.Conn().PgConn())
}
