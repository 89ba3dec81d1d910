package pgstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/hub"
)

// watchKeyLen is how much of a digest names a record in a notice. If two records share a name,
// a watcher wakes up for nothing.
const watchKeyLen = 8

type watchKey [watchKeyLen]byte

// notices wake watchers here, and tell other processes.
type notices struct {
	watch   hub.Hub[watchKey]
	changes chan watchKey // nil: nobody is notified
	unnamed atomic.Bool   // the next notice stands for every record
	alone   atomic.Bool   // nobody else listened a moment ago
	ear     atomic.Uint32 // the server's process that this one listens to
}

// Watch is [store.Watcher.Watch]. It reports a change once that is committed: at once if this
// store made it, and otherwise when the notice arrives. If notices may have been lost, it wakes
// everybody.
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	d := id.Digest()
	return s.watch.Watch(watchKey(d[:watchKeyLen]))
}

// Notices don't travel in the transactions that they are about: PostgreSQL commits those one
// after the other, under a lock that all databases of the server share and that a commit holds
// while it waits for a standby. Instead many follow in one transaction, which waits for no disk.
// If a crash loses one, waiters find out anyway, because they also look from time to time.
const (
	// noticePause is the pause between transactions with notices: see BenchmarkNoticePause.
	noticePause = 10 * time.Millisecond
	// maxNamed is how many records wait to be named in a notice, which can have 8,000 bytes.
	maxNamed = 600
	nameLen  = 11 // of watchKeyLen bytes in base64
	// everything is a notice that stands for every record.
	everything = "*"

	// After listenPause without a notice, the store tries the connection that receives them, for
	// up to listenLimit, which is also the longest pause before it reconnects.
	listenPause = time.Second
	listenLimit = 2 * time.Second
)

// changed wakes the watchers of a record, here and elsewhere.
func (s *Store) changed(id *digest) {
	key := watchKey(id[:watchKeyLen])
	s.watch.Wake(key)
	select {
	case s.changes <- key:
	default: // too many to name
		s.tellEverything()
	}
}

// tellEverything has the next notice stand for every record.
func (s *Store) tellEverything() {
	s.unnamed.Store(true)
	select { // there may be room by now, and tellOthers may wait
	case s.changes <- watchKey{}:
	default:
	}
}

// channel returns the name of the channel on which stores of one schema notify each other.
func channel(schema string) string {
	return "semel_" + strconv.FormatUint(uint64(listening(schema)), 16)
}

// listening returns the advisory lock that all stores of a schema share while they listen.
func listening(schema string) int64 { return lockKey(schema, &digest{}) }

// tellOthers sends notices until ctx is done. While nobody else listens it sends none, because
// they cost a lone caller a twelfth of the processor time (BenchmarkNoticesToOthers).
func (s *Store) tellOthers(ctx context.Context) {
	var asked time.Time
	for ok := true; ok; ok = callctx.Pause(ctx, s.opts.pause) {
		var names []byte
		for range max(1, len(s.changes)) {
			select {
			case <-ctx.Done():
				return
			case key := <-s.changes:
				names = base64.RawURLEncoding.AppendEncode(names, key[:])
			}
		}
		if time.Since(asked) > listenPause {
			asked = time.Now()
			alone, err := one(query(ctx, s, func(v values) (bool, error) { return v.bool(0), nil },
				newStatement(nobodyElse, bigint(listening(s.opts.Schema)), bigint(int64(s.ear.Load())))))
			if alone = alone && err == nil; s.alone.Swap(alone) && !alone {
				s.unnamed.Store(true)
			}
		}
		if s.alone.Load() {
			continue
		}
		if s.unnamed.Swap(false) {
			names = []byte(everything)
		}
		if _, err := change(ctx, s, ignore, newStatement(s.sql.notify, []byte(channel(s.opts.Schema)), names)); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("other processes could not be told of changes", "error", err)
		}
	}
}

// nobodyElse reports whether no session but one shares a lock.
const nobodyElse = "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid <> $2::bigint" +
	" AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (classid::bigint << 32) | objid::bigint = $1::bigint)"

type connector func(ctx context.Context) (*pgx.Conn, error)

// listen receives notices until ctx is done, on a connection of its own.
func (s *Store) listen(ctx context.Context, connect connector) {
	for failures := 0; ; failures++ {
		heard, err := s.hear(ctx, connect)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		s.opts.Logger.Warn("notices of changes by other processes are not heard", "error", err)
		s.watch.WakeAll()
		if !callctx.Pause(ctx, min(50*time.Millisecond<<min(failures, 10), listenLimit)) {
			return
		}
	}
}

// hear connects and listens until the connection breaks, or the other end falls silent. It
// reports whether it got as far as listening.
func (s *Store) hear(ctx context.Context, connect connector) (heard bool, err error) {
	conn, err := connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	s.ear.Store(conn.PgConn().PID())
	for {
		if err := s.tryListen(ctx, conn); err != nil {
			return heard, err
		}
		if !heard { // it can't have heard of earlier changes, and others didn't know that it listens
			s.watch.WakeAll()
			s.alone.Store(false)
			s.tellEverything()
			heard = true
		}
		for silent := false; !silent; {
			limited, cancel := context.WithTimeout(ctx, listenPause)
			n, err := conn.WaitForNotification(limited)
			silent = err != nil && ctx.Err() == nil && limited.Err() != nil && !conn.IsClosed()
			cancel()
			switch {
			case err == nil:
				s.heard(n.Payload)
			case !silent:
				return true, err
			}
		}
	}
}

// tryListen asks the server to send notices over a connection, and shows others by a lock that
// somebody listens. Repeating it changes nothing, and shows whether the other end is still there.
func (s *Store) tryListen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, fmt.Sprintf("LISTEN %s; SELECT pg_advisory_lock_shared(%d)", channel(s.opts.Schema), listening(s.opts.Schema))).ReadAll()
	return err
}

// heard wakes the watchers of the records that a notice names.
func (s *Store) heard(payload string) {
	if payload == everything {
		s.watch.WakeAll()
		if s.alone.Swap(false) { // somebody else has begun to listen, and was told nothing before
			s.tellEverything()
		}
		return
	}
	for ; len(payload) >= nameLen; payload = payload[nameLen:] {
		var key watchKey
		if _, err := base64.RawURLEncoding.Decode(key[:], []byte(payload[:nameLen])); err == nil {
			s.watch.Wake(key)
		}
	}
}
