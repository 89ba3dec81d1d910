package pgstore

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
)

// watchKeyLen is how much of a digest names a record in a notice. Two records of
// one name only wake somebody without cause.
const watchKeyLen = 8

type watchKey string

// watchers are those who wait for a change, in this process.
type watchers struct {
	mu   sync.Mutex
	keys map[watchKey]map[chan struct{}]struct{}
}

// Watch is [semel.WatchStore.Watch]. It tells of a change when that is committed:
// at once of changes by this store, and of others when their notice arrives. When
// notices may have been lost it tells everybody.
func (s *Store) Watch(_ context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	d := id.Digest()
	key := watchKey(d[:watchKeyLen])
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[watchKey]map[chan struct{}]struct{}{}
	}
	if w.keys[key] == nil {
		w.keys[key] = map[chan struct{}]struct{}{}
	}
	w.keys[key][ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.keys[key], ch)
		if len(w.keys[key]) == 0 {
			delete(w.keys, key)
		}
	}
}

func (w *watchers) wake(key watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.keys[key] {
		tell(ch)
	}
}

func (w *watchers) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, chans := range w.keys {
		for ch := range chans {
			tell(ch)
		}
	}
}

func tell(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a notice is waiting already
	}
}

// channel is the name under which stores of one schema tell each other.
func channel(schema string) string {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return "semel_" + strconv.FormatUint(h.Sum64(), 16)
}

// listen hears what others tell until ctx is done, on a connection of its own.
func (s *Store) listen(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) {
	for failures := 0; ; failures++ {
		heard, err := s.hear(ctx, connect)
		s.notify.deaf()
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		s.opts.Logger.Warn("notices of changes by other processes are not heard", "error", err)
		s.watch.wakeAll()
		pause := time.NewTimer(min(50*time.Millisecond<<min(failures, 10), 5*time.Second))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// hear connects and listens until the connection breaks. It reports whether it got
// that far.
func (s *Store) hear(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (heard bool, err error) {
	conn, err := connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+channel(s.opts.Schema)); err != nil {
		return false, err
	}
	// What changed before it listened was not heard.
	s.watch.wakeAll()
	s.notify.listens()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		s.heard(n.Payload)
	}
}

// heard wakes those who watch what a notice names.
func (s *Store) heard(payload string) {
	greeting, untold := s.notify.greeted(payload)
	if untold || payload == everything {
		s.watch.wakeAll()
	}
	if greeting || payload == everything {
		return
	}
	for ; len(payload) >= nameLen; payload = payload[nameLen:] {
		if key, err := base64.RawURLEncoding.DecodeString(payload[:nameLen]); err == nil {
			s.watch.wake(watchKey(key))
		}
	}
}
