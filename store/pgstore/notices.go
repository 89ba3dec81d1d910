package pgstore

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// watchKeyLen is how much of a digest names a record in a notice. If two records share a name,
// a watcher wakes up for nothing.
const watchKeyLen = 8

type watchKey [watchKeyLen]byte

// Watch is [store.Watcher.Watch]. It reports a change once that is committed: at once if this
// store made it, and otherwise when the notice arrives. If notices may have been lost, it wakes
// everybody.
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	d := id.Digest()
	return s.watch.Watch(watchKey(d[:watchKeyLen]))
}

// Notices don't travel in the transactions that they are about. PostgreSQL commits such
// transactions one after the other, under a lock that all databases of the server share and
// that a commit holds while it waits for a standby. Instead many notices follow in one
// transaction of their own, which waits for no disk. If a crash loses one, waiters find out
// anyway, because they also look from time to time.
const (
	// noticePause is the pause between transactions with notices: see BenchmarkNoticePause.
	noticePause = 10 * time.Millisecond
	// maxNamed is how many records wait to be named in a notice, which can have 8,000 bytes.
	maxNamed = 600
	nameLen  = 11 // of watchKeyLen bytes in base64
	// everything is a notice that stands for every record.
	everything = "*"

	// After listenPause without a notice, the store tries the connection that receives them,
	// and gives it up if no answer comes within listenLimit: the other end may have vanished.
	// Waiters find out by looking meanwhile.
	listenPause = time.Second
	listenLimit = 2 * time.Second
	// maxRelisten is the longest pause before reconnecting.
	maxRelisten = 2 * time.Second
)

// changed wakes the watchers of a record, here and elsewhere.
func (s *Store) changed(id *digest) {
	key := watchKey(id[:watchKeyLen])
	s.watch.Wake(key)
	select {
	case s.changes <- key:
		return
	default: // too many to name
	}
	s.unnamed.Store(true)
	select { // tellOthers may have read the channel meanwhile, so that there is room
	case s.changes <- key:
	default:
	}
}

// channel returns the name of the channel on which stores of one schema notify each other.
func channel(schema string) string {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return "semel_" + strconv.FormatUint(h.Sum64(), 16)
}

// tellOthers sends notices until ctx is done.
func (s *Store) tellOthers(ctx context.Context) {
	for ok := true; ok; ok = pause(ctx, s.opts.pause) {
		var names []byte
		for range max(1, len(s.changes)) {
			select {
			case <-ctx.Done():
				return
			case key := <-s.changes:
				names = base64.RawURLEncoding.AppendEncode(names, key[:])
			}
		}
		if s.unnamed.Swap(false) {
			names = []byte(everything)
		}
		if err := s.notify(ctx, names); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("other processes could not be told of changes", "error", err)
		}
	}
}

// notify sends one notice.
func (s *Store) notify(ctx context.Context, names []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.answer)
	defer cancel()
	_, err := query(ctx, s, ignore, newStatement(s.sql.notify, []byte(channel(s.opts.Schema)), names))
	return err
}

// connector makes a connection.
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
		if !pause(ctx, min(50*time.Millisecond<<min(failures, 10), maxRelisten)) {
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
	for {
		if err := s.tryListen(ctx, conn); err != nil {
			return heard, err
		}
		if !heard { // it can't have heard of earlier changes
			s.watch.WakeAll()
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

// tryListen asks the server to send notices over a connection. Repeating it changes nothing,
// and shows whether the other end is still there.
func (s *Store) tryListen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	_, err := conn.Exec(ctx, "LISTEN "+channel(s.opts.Schema))
	return err
}

// heard wakes the watchers of the records that a notice names.
func (s *Store) heard(payload string) {
	if payload == everything {
		s.watch.WakeAll()
		return
	}
	for ; len(payload) >= nameLen; payload = payload[nameLen:] {
		var key watchKey
		if _, err := base64.RawURLEncoding.Decode(key[:], []byte(payload[:nameLen])); err == nil {
			s.watch.Wake(key)
		}
	}
}
