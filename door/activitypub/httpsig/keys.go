package httpsig

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// Key is a public key and its owner.
type Key struct {
	ID    string
	Owner string // the id of an actor with the origin of ID
	// Public is an *rsa.PublicKey of 2048 to 8192 bits, an *ecdsa.PublicKey of P-256 or
	// an ed25519.PublicKey.
	Public crypto.PublicKey
}

// Defaults of [KeysOptions].
const (
	DefaultTTL     = time.Hour
	DefaultMaxKeys = 10_000
	DefaultTimeout = 10 * time.Second
)

const (
	// gone is how long a missing or refused key is remembered; busy is how long an unavailable
	// one is.
	gone = time.Minute
	busy = 15 * time.Second
	// rest is the shortest time before a signature by another key makes us fetch a key again: a
	// new key must count soon, but wrong signatures must not cost a fetch each. Until then such
	// a signature counts as neither right nor wrong.
	rest = time.Minute
)

// KeysOptions configure [Keys].
type KeysOptions struct {
	// AllowPrivate allows fetching from loopback and private addresses, and by http. By default
	// only public addresses and https are allowed: strangers choose the ids of keys
	// (server-side request forgery).
	AllowPrivate bool
	// Allow decides whether to fetch from a host, in lower case and without a port, and each
	// time whether to use a key from that host. Defaults to all.
	Allow func(host string) bool
	// TTL is how long a key is used before it is fetched again, and so how long a withdrawn key
	// may still count. Defaults to 1 hour. Like the next two, it has its default unless it is
	// positive.
	TTL time.Duration
	// MaxKeys is the size of the cache of keys, and of the cache of failures. The least
	// recently used make room. Defaults to 10,000.
	MaxKeys int
	// Timeout bounds one fetch, and all fetches to verify one request together. Defaults to 10
	// seconds.
	Timeout time.Duration
	// Now is the clock. Defaults to [time.Now].
	Now func() time.Time
	// Sign signs the requests, for servers that answer only signed ones; see [Sign].
	Sign func(*http.Request) error
	// Transport replaces the transport, and with it the guard against private addresses.
	// Mostly for tests.
	Transport http.RoundTripper
}

// Keys fetches public keys and keeps them for a while. It may be used concurrently: all callers
// that want the same key share one fetch.
type Keys struct {
	fetch   *fetcher
	ttl     time.Duration
	now     func() time.Time
	flights singleflight.Group

	mu     sync.Mutex
	keys   *simplelru.LRU[string, *entry]
	failed *simplelru.LRU[string, *entry]
}

// entry is the result of the last fetches of a key.
type entry struct {
	key *Key
	err error // why the key is missing
	at  time.Time

	// Only renew uses these, one call at a time for each key.
	tried time.Time // when fetching the key again last failed
	again error     // why
}

// NewKeys starts nothing.
func NewKeys(opts KeysOptions) *Keys {
	opts.TTL = cmp.Or(max(opts.TTL, 0), DefaultTTL)
	opts.MaxKeys = cmp.Or(max(opts.MaxKeys, 0), DefaultMaxKeys)
	opts.Timeout = cmp.Or(max(opts.Timeout, 0), DefaultTimeout)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Keys{fetch: newFetcher(&opts), ttl: opts.TTL, now: opts.Now, keys: newLRU[*entry](opts.MaxKeys), failed: newLRU[*entry](opts.MaxKeys)}
}

func newLRU[V any](size int) *simplelru.LRU[string, V] {
	l, err := simplelru.NewLRU[string, V](size, nil)
	if err != nil {
		panic(err) // the size is not positive
	}
	return l
}

// Get returns a key by its id, the URL of the key or of an actor with a fragment. It may fetch
// it; if ctx ends first, the fetch continues for the next caller. Its errors are of type
// [*Error], with a code that begins with key_; they are remembered for a short while.
func (k *Keys) Get(ctx context.Context, id string) (*Key, error) {
	if _, err := k.fetch.address(id); err != nil {
		return nil, err
	}
	if e := k.have(id); e != nil {
		return e.key, e.err
	}
	return k.fly(ctx, id, func(ctx context.Context) (*Key, error) {
		if e := k.have(id); e != nil { // another flight has just ended
			return e.key, e.err
		}
		key, err := k.fetch.resolve(ctx, id)
		if !errors.Is(err, errBusy) { // busy says nothing about the key
			k.keep(id, &entry{key: key, err: err})
		}
		return key, err
	})
}

// renew fetches a key again that didn't make a signature, in case it was replaced, unless that
// was done recently. It returns the key that counts now, which may be the same one. If it
// couldn't fetch the key, the signature may still be right. began is when the request arrived:
// a key fetched since then must be the one that it was signed with.
func (k *Keys) renew(ctx context.Context, old *Key, began time.Time) (*Key, error) {
	return k.fly(ctx, "again "+old.ID, func(ctx context.Context) (*Key, error) {
		e, now := k.have(old.ID), k.now()
		switch {
		case e == nil: // it had to make room, or has expired
		case e.key != old: // it was replaced meanwhile
			return e.key, e.err
		case now.Sub(e.tried) < rest:
			return e.key, e.again
		case !e.at.Before(began):
			return e.key, nil
		case now.Sub(e.at) < rest:
			// It may have been replaced since. A sender who signed with the new one comes
			// again, and then we have it; after a 401 they wouldn't.
			return nil, &Error{Code: KeyUnavailable, Err: errors.New("the key was fetched a moment ago, and may have been replaced since")}
		}
		key, err := k.fetch.resolve(ctx, old.ID)
		if errors.Is(err, errBusy) {
			return nil, err
		}
		if e != nil && hasCode(err, KeyUnavailable) {
			e.tried, e.again = now, err
			return nil, err
		}
		k.keep(old.ID, &entry{key: key, err: err})
		return key, err
	})
}

// fly runs one fetch for all callers that want it. It continues even if the first caller goes
// away.
func (k *Keys) fly(ctx context.Context, name string, fetch func(context.Context) (*Key, error)) (*Key, error) {
	flight := k.flights.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.fetch.client.Timeout)
		defer cancel()
		return fetch(ctx)
	})
	select {
	case got := <-flight:
		key, _ := got.Val.(*Key)
		return key, got.Err
	case <-ctx.Done():
		return nil, &Error{Code: KeyUnavailable, Err: ctx.Err()}
	}
}

// have returns the cached entry of a key, if it is still valid.
func (k *Keys) have(id string) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if e, _ := k.keys.Get(id); e != nil && now.Sub(e.at) < k.ttl {
		return e
	}
	e, _ := k.failed.Get(id)
	if e == nil {
		return nil
	}
	keep := gone
	if hasCode(e.err, KeyUnavailable) {
		keep = busy
	}
	if now.Sub(e.at) < keep {
		return e
	}
	return nil
}

// keep remembers the result of a fetch.
func (k *Keys) keep(id string, e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.at = k.now()
	k.keys.Remove(id)
	k.failed.Remove(id)
	if e.err == nil {
		k.keys.Add(id, e)
	} else {
		k.failed.Add(id, e)
	}
}
