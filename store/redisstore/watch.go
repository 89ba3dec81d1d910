package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

const (
	// armTimeout bounds how long a server is waited for that is to take note of keys.
	armTimeout = time.Second
	// armPause is how often a watcher that the server did not take note of is
	// told to look.
	armPause = 100 * time.Millisecond
	// armBatch is how many keys a server is told of at a time.
	armBatch = 256
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
//
// What is kept is for those who wait, and goes with them. A shard has one goroutine that
// tells its server of keys, however many wait and however long it hangs.
type watchers struct {
	store *Store

	mu     sync.Mutex
	keys   map[string]*watched
	arming []arming // by shard
	closed bool

	dialing sync.Mutex // held while connecting, and for client
	client  rueidis.Client
}

// arming is the keys of a shard that its server is to be told of.
type arming struct {
	keys []*watched
	runs bool // somebody does so
}

// watched is a key that somebody waits for.
type watched struct {
	shard    int
	key      string
	channels map[chan struct{}]struct{}
	armed    chan struct{} // closed when the first attempt to arm is over
	queued   bool          // it is in arming.keys
}

func (w *watchers) init(s *Store) {
	w.store, w.keys, w.arming = s, map[string]*watched{}, make([]arming, len(s.keys.shards))
}

// Watch is [semel.WatchStore.Watch]. It takes a round trip for the first watcher of
// a record. Where a server can't be reached, or does not track keys, the channel
// receives ten times a second.
func (s *Store) Watch(ctx context.Context, id semel.ID) (changed <-chan struct{}, stop func()) {
	digest := id.Digest()
	sh, key := s.keys.find(&digest)
	ch := make(chan struct{}, 1)
	w := &s.watch
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		ch <- struct{}{} // whoever looks gets the error
		return ch, func() {}
	}
	k := w.keys[key]
	if k == nil {
		k = &watched{shard: sh.index, key: key, channels: map[chan struct{}]struct{}{}, armed: make(chan struct{})}
		w.keys[key] = k
		w.arm(k)
	}
	k.channels[ch] = struct{}{}
	w.mu.Unlock()
	select {
	case <-k.armed:
	case <-ctx.Done():
	}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(k.channels, ch)
		if len(k.channels) == 0 && w.keys[key] == k {
			w.forget(k)
		}
	}
}

// forget is for a key that nobody waits for any more. The caller holds w.mu.
func (w *watchers) forget(k *watched) {
	delete(w.keys, k.key)
	a := &w.arming[k.shard]
	if i := slices.Index(a.keys, k); i >= 0 {
		a.keys = slices.Delete(a.keys, i, i+1)
	}
}

// arm has the server take note of a key. Watchers are told when that is done, because the
// key may have changed before. The caller holds w.mu.
func (w *watchers) arm(k *watched) {
	if k.queued {
		return
	}
	k.queued = true
	a := &w.arming[k.shard]
	a.keys = append(a.keys, k)
	if !a.runs {
		a.runs = true
		w.store.work.Go(func() { w.armAll(a) })
	}
}

// armAll tells the server of a shard of keys, as long as there are any. Those of whom it
// took no note come again.
func (w *watchers) armAll(a *arming) {
	for {
		w.mu.Lock()
		batch := slices.Clone(a.keys[:min(armBatch, len(a.keys))])
		a.keys = slices.Delete(a.keys, 0, len(batch))
		for _, k := range batch {
			k.queued = false
		}
		if len(batch) == 0 || w.closed {
			a.runs = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		failed := w.read(batch)
		w.mu.Lock()
		for i, k := range batch {
			k.release()
			k.notify()
			if failed[i] && w.keys[k.key] == k {
				w.arm(k)
			}
		}
		w.mu.Unlock()
		if slices.Contains(failed, true) {
			pause := time.NewTimer(armPause)
			select {
			case <-pause.C:
			case <-w.store.life.Done():
				pause.Stop()
			}
		}
	}
}

// release lets Watch return. The caller holds the watchers' mutex.
func (k *watched) release() {
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

// read reads the heads of records in such a way that the server tracks their keys, and
// reports of which it could not.
func (w *watchers) read(batch []*watched) (failed []bool) {
	failed = make([]bool, len(batch))
	c, err := w.connect()
	if err != nil {
		for i := range failed {
			failed[i] = true
		}
		return failed
	}
	cmds := make([]rueidis.CacheableTTL, len(batch))
	for i, k := range batch {
		cmds[i] = rueidis.CT(c.B().Getrange().Key(k.key).Start(0).End(headLen+16).Cache(), trackFor)
	}
	ctx, cancel := context.WithTimeout(w.store.life, armTimeout)
	defer cancel()
	for i, res := range c.DoMultiCache(ctx, cmds...) {
		failed[i] = res.Error() != nil
	}
	return failed
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
		k.release()
		k.notify()
	}
	w.mu.Unlock()
	w.dialing.Lock()
	defer w.dialing.Unlock()
	if w.client != nil {
		w.client.Close()
	}
}
