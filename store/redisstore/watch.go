package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

const (
	// armTimeout bounds how long Watch waits for the server to take note.
	armTimeout = time.Second
	// armPause is how often a watcher that the server did not take note of is
	// told to look.
	armPause = 100 * time.Millisecond
	// trackFor is how long the client may believe that a server still keeps
	// track of a key without asking it.
	trackFor = time.Minute
)

// watchers learn of changes from the servers' own tracking of keys that a client
// has read (CLIENT TRACKING): a server remembers who has read the beginning of a
// record, and tells once when that changes. So writes cost nothing where nobody
// waits, and no channel has to be agreed on.
//
// They have connections of their own, made by the first Watch.
type watchers struct {
	store *Store

	mu     sync.Mutex
	keys   map[string]*watched
	closed bool

	dialing sync.Mutex // held while connecting, and for client
	client  rueidis.Client
}

// watched is a key that somebody waits for.
type watched struct {
	key      string
	channels map[chan struct{}]struct{}
	armed    chan struct{} // closed when the first attempt to arm is over
	arming   bool
	changed  bool // meanwhile
}

// Watch is [semel.WatchStore.Watch]. It takes a round trip for the first watcher of
// a record. Where a server can't be reached, or does not track keys, the channel
// receives ten times a second.
func (s *Store) Watch(ctx context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	digest := id.Digest()
	_, key := s.keys.find(&digest)
	ch := make(chan struct{}, 1)
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		ch <- struct{}{} // whoever looks gets the error
		return ch, func() {}
	}
	if w.keys == nil {
		w.keys = map[string]*watched{}
	}
	k := w.keys[key]
	if k == nil {
		k = &watched{key: key, channels: map[chan struct{}]struct{}{}, armed: make(chan struct{})}
		w.keys[key] = k
		w.arm(k)
	}
	k.channels[ch] = struct{}{}
	armed := k.armed
	w.mu.Unlock()
	select {
	case <-armed:
	case <-ctx.Done():
	}
	w.mu.Lock()
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(k.channels, ch)
		if len(k.channels) == 0 && w.keys[key] == k {
			delete(w.keys, key)
		}
	}
}

// arm has the server take note of a key, in the background, for as long as
// somebody waits. Watchers are told when that is done, because the key may have
// changed before. The caller holds w.mu.
func (w *watchers) arm(k *watched) {
	if k.arming {
		k.changed = true
		return
	}
	k.arming = true
	w.store.work.Go(func() {
		first := true
		for {
			err := w.read(k.key)
			w.mu.Lock()
			if first {
				first = false
				w.release(k)
			}
			k.notify()
			again := k.changed && len(k.channels) > 0 && !w.closed
			k.changed = false
			if w.closed || len(k.channels) == 0 || err == nil && !again {
				k.arming = false
				w.mu.Unlock()
				return
			}
			w.mu.Unlock()
			if err != nil {
				pause := time.NewTimer(armPause)
				select {
				case <-pause.C:
				case <-w.store.life.Done():
					pause.Stop()
				}
			}
		}
	})
}

// release lets Watch return. The caller holds w.mu.
func (w *watchers) release(k *watched) {
	select {
	case <-k.armed:
	default:
		close(k.armed)
	}
}

// notify tells those who wait. The caller holds the watchers' mutex.
func (k *watched) notify() {
	for ch := range k.channels {
		select {
		case ch <- struct{}{}:
		default: // a notice is waiting already
		}
	}
}

// read reads the head of a record in such a way that the server tracks the key.
func (w *watchers) read(key string) error {
	c, err := w.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(w.store.life, armTimeout)
	defer cancel()
	return c.DoCache(ctx, c.B().Getrange().Key(key).Start(0).End(headLen+16).Cache(), trackFor).Error()
}

// connect returns the client whose reads are tracked.
func (w *watchers) connect() (rueidis.Client, error) {
	w.dialing.Lock()
	defer w.dialing.Unlock()
	if w.store.closed.Load() {
		return nil, errClosed
	}
	if w.client != nil {
		return w.client, nil
	}
	option := w.store.link.option
	option.DisableCache = false
	option.CacheSizeEachConn = 1 << 20 // it keeps heads of records only
	option.OnInvalidations = w.invalidated
	c, err := w.store.link.dial(option)
	if err != nil {
		return nil, err
	}
	w.client = c
	return c, nil
}

// invalidated hears from a server that keys have changed; no keys: any may have,
// because the connection is lost. It must not wait for the connection.
func (w *watchers) invalidated(keys []rueidis.RedisMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if keys == nil {
		for _, k := range w.keys {
			w.arm(k)
		}
		return
	}
	for i := range keys {
		name, err := keys[i].ToString()
		if k := w.keys[name]; err == nil && k != nil {
			w.arm(k)
		}
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	w.closed = true
	for _, k := range w.keys {
		w.release(k)
		k.notify()
	}
	w.mu.Unlock()
	w.dialing.Lock()
	defer w.dialing.Unlock()
	if w.client != nil {
		w.client.Close()
	}
}
