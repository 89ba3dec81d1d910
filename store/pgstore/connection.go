package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/semelhq/semel/internal/engine/callctx"
)

const (
	// connectLimit is how long connecting may take, unless the URL says how long. It bounds the
	// cost of a connection that the network has swallowed.
	connectLimit = 3 * time.Second
	// answerLimit is how long the store waits for an answer before it drops the connection, if
	// its session isn't at work.
	answerLimit = 3 * time.Second
	// pingLimit is how long the pool may ping a connection that was idle for a second.
	pingLimit = 250 * time.Millisecond
	// maxLooks is how often mayDrop may find a session at work before it is dropped anyway.
	maxLooks = 3
	// maxLate is how many sessions may be at work for long before no more are dropped.
	maxLate = 4
)

// database is the database that a URL leads to.
type database struct {
	engine   string // which one, if it isn't PostgreSQL itself
	barriers bool   // it can write a message to its log, as a barrier needs
	pooler   bool   // there is a transaction pooler in between
}

// probe examines the database, and refuses one that can't keep every text.
func probe(ctx context.Context, connect connector) (d database, err error) {
	conn, err := connect(ctx)
	if err != nil {
		return d, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var encoding, version string
	var pid uint32
	err = conn.QueryRow(ctx, "SELECT current_setting('server_encoding'), to_regprocedure('pg_logical_emit_message(boolean,text,text)') IS NOT NULL,"+
		" version(), pg_backend_pid()::bigint").Scan(&encoding, &d.barriers, &version, &pid)
	if err == nil && encoding != "UTF8" {
		err = fmt.Errorf("the database has the encoding %s, which does not have all characters: make one with UTF8", encoding)
	}
	// A pooler makes up the process numbers that it tells its clients.
	d.engine, d.pooler = kinOf(version), pid != conn.PgConn().PID()
	return d, err
}

// plans make the server plan a prepared statement once and for all, with indexes. Otherwise it
// would plan for the small table of the first day, which is quicker to read whole, and keep
// that plan while the table grows. These are hints: no result depends on them. The order of
// locks does; if it isn't that of the parameters, the server ends a deadlock, and the batch
// runs again.
var plans = map[string]string{
	"plan_cache_mode": "force_generic_plan", "jit": "off",
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
}

// configure sets a connection up so that it keeps nothing in its session, and notices quickly
// if its server is gone.
func (s *Store) configure(config *pgx.ConnConfig) {
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.OnNotice = hearWarning
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "semel"
	}
	// Without a limit of its own, a pool would wait for two minutes, and a single connection forever.
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, s.opts.connect)
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return noCancelConn{conn}, nil
	}
}

// newPool makes a pool, which connects when it is used. Behind a transaction pooler each
// transaction may reach another session, so the store prepares nothing and sets nothing there.
func (s *Store) newPool(ctx context.Context, config *pgxpool.Config, conns int) (*pgxpool.Pool, error) {
	config.MaxConns, config.MinConns = int32(conns), 0
	config.PingTimeout = min(s.opts.AcquireTimeout, s.opts.answer, pingLimit)
	if !s.database.pooler {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		if s.database.engine == "" {
			maps.Copy(config.ConnConfig.RuntimeParams, plans)
		}
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// connecting makes connections outside the pools and, as they do, calls before each time.
func connecting(config *pgx.ConnConfig, before func(context.Context, *pgx.ConnConfig) error) connector {
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

// unreachable is a driver's error in fewer words.
type unreachable struct {
	error
	text string
}

func (e unreachable) Error() string { return e.text }
func (e unreachable) Unwrap() error { return e.error }

// plainly says just once why connecting failed. The driver tries each address with TLS and
// without, and reports every try, even that a server has no TLS, which is harmless if the
// server answered the other try.
func plainly(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	lines := strings.Split(failed.Unwrap().Error(), "\n")
	noTLS := func(line string) bool { return strings.HasSuffix(line, "server refused TLS connection") }
	if told := slices.DeleteFunc(slices.Clone(lines), noTLS); len(told) > 0 {
		lines = told
	}
	slices.Sort(lines)
	return unreachable{err, fmt.Sprintf("connect as the user %q to the database %q: %s", failed.Config.User, failed.Config.Database, strings.Join(slices.Compact(lines), "; "))}
}

// noCancelConn is a network connection for which pgx can't send a cancel request.
//
// When a connection breaks, or a context ends, pgx asks the server over another one to cancel
// the statement. If a commit is cancelled while it waits for a standby, this server shows it
// and no standby has it. pgx asks only at the address that RemoteAddr gives,
// here on no network; TestNothingIsCalledBack notices if that changes.
type noCancelConn struct{ net.Conn }

func (noCancelConn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "none", Name: "none"} }

// acquire takes a connection from a pool, within a time. If the server has no room for another
// one, it closes idle ones of the other pool, and asks again until it gets one.
func (s *Store) acquire(ctx context.Context, pool *pgxpool.Pool, wait time.Duration) (*pgxpool.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		conn, err := pool.Acquire(limited)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() == nil && limited.Err() != nil:
			return nil, fmt.Errorf("%w: %w", ErrBusy, err)
		case sqlState(err) != tooManyConnections:
			return nil, err
		}
		for _, other := range []*pgxpool.Pool{s.reads, s.writes} {
			if other == pool || other == nil {
				continue
			}
			for _, idle := range other.AcquireAllIdle(limited) {
				_ = idle.Conn().Close(limited)
				idle.Release()
			}
		}
		callctx.Pause(limited, placePause) // the server needs a moment to free a place
		if limited.Err() != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
}

// tooManyConnections is the SQLSTATE when a server, a role or a database has as many
// connections as it may have. placePause is how long a session takes to end.
const tooManyConnections, placePause = "53300", 10 * time.Millisecond

// read runs f on a connection for reads.
func (s *Store) read(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := s.acquire(ctx, s.reads, s.opts.AcquireTimeout)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn.Conn())
}

// query runs statements that only read, or can safely be repeated, on a connection for reads,
// in one transaction, and returns their rows.
func query[T any](ctx context.Context, s *Store, scan func(values) (T, error), sts ...statement) (list []T, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(conn *pgx.Conn) error {
		return repeat(ctx, func() error {
			list, err = transact(ctx, s, conn, scan, sts...)
			return err
		})
	})
	return list, err
}

// one returns the only row of a statement.
func one[T any](list []T, err error) (row T, _ error) {
	if err == nil && len(list) != 1 {
		err = errGarbled
	}
	if err == nil {
		row = list[0]
	}
	return row, err
}

// change runs a statement that changes something, on a connection for reads, and returns its
// rows. Like a write it is never cancelled once it has begun, not even by ctx.
func change[T any](ctx context.Context, s *Store, scan func(values) (T, error), st statement) (list []T, err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	err = s.commit(s.base, s.reads, func(conn *pgx.Conn) error {
		list, err = transact(unending, s, conn, scan, st)
		return err
	})
	return list, err
}

// unending is the context for the statements of commit, which watches over the connection instead.
var unending = context.Background()

// commit runs f, which commits something, on a connection of a pool, and runs it again if the
// server rolls it back because of others. No caller can cancel it: if no answer comes in time,
// at the deadline of ctx at the latest, or some time after Close, its connection is closed.
// Then the result is unknown, and the server goes on.
func (s *Store) commit(ctx context.Context, pool *pgxpool.Pool, f func(conn *pgx.Conn) error) error {
	within := func(d time.Duration) time.Duration {
		if end, limited := ctx.Deadline(); limited {
			d = min(d, time.Until(end))
		}
		return d
	}
	conn, err := s.acquire(s.base, pool, within(s.opts.AcquireTimeout))
	if err != nil {
		return notApplied(err)
	}
	defer conn.Release()
	// Read them now: dropLate may run after the connection is back in its pool.
	pid, network := conn.Conn().PgConn().PID(), conn.Conn().PgConn().Conn()
	var ended atomic.Bool // f has returned, or the connection was dropped first
	late := time.AfterFunc(within(s.opts.answer), func() { s.dropLate(ctx, pid, network, &ended) })
	defer late.Stop()
	err = repeat(s.base, func() error { return f(conn.Conn()) })
	if ended.Swap(true) { // the answer may have come at the same time
		_ = conn.Conn().Close(s.base)
	}
	return err
}

// dropLate runs when no answer has come in time from the server's process pid. It closes the
// connection as soon as mayDrop allows that, or ctx ends, unless f has returned. pgx would say
// goodbye first, and keep the place in the pool until that was sent.
func (s *Store) dropLate(ctx context.Context, pid uint32, network net.Conn, ended *atomic.Bool) {
	for looks := 1; !ended.Load() && s.base.Err() == nil && ctx.Err() == nil && !s.mayDrop(ctx, pid, looks); looks++ {
		callctx.Pause(ctx, s.opts.answer)
	}
	if !ended.Swap(true) {
		_ = network.Close()
	}
}

// mayDrop asks the server, over a connection of its own, whether the session of process pid is
// at work. If it isn't, its answer was lost, or will never be sent. If it is, it keeps working
// without its connection, for example waiting for a standby, and a server has few sessions:
// then the connection is dropped only after enough looks, and only if few other sessions of
// this database's stores are at work for long. If the server doesn't answer, another connection
// would be of no use. A pooler invents pid, so behind one the session counts as at work, and as
// one of the others.
func (s *Store) mayDrop(ctx context.Context, pid uint32, looks int) bool {
	ctx, cancel := context.WithTimeout(ctx, s.opts.answer)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	working, late := false, 0
	err = conn.QueryRow(ctx, "SELECT count(*) FILTER (WHERE pid = $1::bigint) > 0,"+
		" count(*) FILTER (WHERE pid <> $1::bigint AND query_start < clock_timestamp() - $2::bigint * interval '1 microsecond')"+
		" FROM pg_stat_activity WHERE state = 'active' AND usename = current_user"+
		" AND datname = current_database() AND application_name = current_setting('application_name')",
		pid, s.opts.answer.Microseconds()).Scan(&working, &late)
	switch {
	case err != nil:
		return false
	case !working && !s.database.pooler:
		return true
	}
	return looks >= maxLooks && late < maxLate
}

// lastWarning is where a connection's custom data have the server's latest warning. One of them
// is "canceling wait for synchronous replication", although the commit reports success.
const lastWarning = "semel warning"

func hearWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if strings.EqualFold(n.SeverityUnlocalized, "WARNING") || n.SeverityUnlocalized == "" && n.Severity == "WARNING" {
		conn.CustomData()[lastWarning] = n.Message
	}
}

// takeWarning returns a warning that has come since the last call, or nothing.
func takeWarning(conn *pgx.Conn) string {
	text, _ := conn.PgConn().CustomData()[lastWarning].(string)
	delete(conn.PgConn().CustomData(), lastWarning)
	return text
}
