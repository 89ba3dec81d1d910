package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// link is the connections to the servers. They are replaced as a whole when they
// can't be trusted any more.
type link struct {
	cluster bool
	option  rueidis.ClientOption
	current atomic.Pointer[rueidis.Client]

	mu       sync.Mutex
	replaced time.Time
	closed   bool
	old      sync.WaitGroup
}

// batchConnIdle is how long a connection of a batch may be idle, about.
const batchConnIdle = 10 * time.Second

// maxRedirections bounds how often a command is redirected: nodes that do not agree on
// who serves a slot may send it back and forth.
const maxRedirections = 16

// minReplace is the least time between two replacements of all connections.
const minReplace = time.Second

func (l *link) client() rueidis.Client { return *l.current.Load() }

// dial makes a client, which connects as it is needed.
func (l *link) dial(option rueidis.ClientOption) (rueidis.Client, error) {
	option.ForceSingleClient = !l.cluster
	// One connection to each server is the fastest: more callers share each
	// write to it and each read from it.
	option.PipelineMultiplex = -1
	// Those of batches are closed now and then, when they are not in use: one that the
	// server has closed meanwhile would be found out by the next batch only.
	option.BlockingPoolCleanup = batchConnIdle
	return rueidis.NewClient(option)
}

// replace closes all connections of a client that is in use, and opens others. It
// does nothing if another caller has done so, or within a second after that.
func (l *link) replace(bad rueidis.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.client() != bad || time.Since(l.replaced) < minReplace {
		return
	}
	l.replaced = time.Now()
	c, err := l.dial(l.option)
	if err != nil {
		// Nobody answers. The bad one is closed all the same: its calls fail
		// then, and each tries to replace it.
		l.old.Go(bad.Close)
		return
	}
	l.current.Store(&c)
	l.old.Go(bad.Close)
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	c := l.client()
	l.mu.Unlock()
	c.Close()
	l.old.Wait()
}

// nodes are the servers by address. In a Cluster these are masters and replicas.
func (l *link) nodes() map[string]rueidis.Client {
	c := l.client()
	if l.cluster {
		return c.Nodes()
	}
	return map[string]rueidis.Client{l.option.InitAddress[0]: c}
}

// onEach runs f on every server at once and waits for all.
func (l *link) onEach(ctx context.Context, f func(ctx context.Context, addr string, c rueidis.Client)) {
	var wg sync.WaitGroup
	for addr, c := range l.nodes() {
		wg.Go(func() { f(ctx, addr, c) })
	}
	wg.Wait()
}

// dialError is why there is no connection. What was to be sent by it was not sent: only
// whoever has to connect first gets such an error.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

func dialServer(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (conn net.Conn, err error) {
	if t != nil {
		conn, err = (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", address)
	} else {
		conn, err = d.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil, &dialError{err}
	}
	return conn, nil
}
