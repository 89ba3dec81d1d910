package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// link has the connections to the servers. If they can't be trusted any more, it replaces all
// of them.
type link struct {
	cluster bool
	option  rueidis.ClientOption
	current atomic.Pointer[clients]
	lost    atomic.Bool // the current client was closed, and there is no new one yet

	mu       sync.Mutex
	replaced time.Time
	closed   bool
	old      sync.WaitGroup // running closes of replaced clients
}

// clients are two clients of the same servers.
type clients struct {
	rueidis.Client                // its calls share a connection to each server
	writes         rueidis.Client // its calls have connections of their own
}

func (c *clients) Close() {
	c.Client.Close()
	c.writes.Close()
}

const (
	// minReplace bounds how often the connections are replaced.
	minReplace = time.Second
	// maxIdle is about how long a connection for writes stays open without one. If the server
	// closes it first, the next write finds out, and its result is unknown.
	maxIdle = 10 * time.Second
)

func (l *link) client() *clients { return l.current.Load() }

// dial returns new clients, which connect when first used.
func (l *link) dial() (*clients, error) {
	option := l.option
	option.ForceSingleClient = !l.cluster && option.Sentinel.MasterSet == ""
	// One connection to each server is the fastest for many small calls: more of them share
	// each write to the socket and each read from it.
	option.PipelineMultiplex = -1
	// By default a lone caller reads its answer itself, and when a second one comes, the
	// connection switches to goroutines that write and read for all. If an answer arrives late
	// during that switch, a reader that doesn't know the request panics ("protocol bug, message
	// handled out of order").
	option.AlwaysPipelining = true
	shared, err := rueidis.NewClient(option)
	if err != nil {
		return nil, err
	}
	// Writes share runs, and few runs are in flight. Their senders also read the answers; on a
	// shared connection two more goroutines would wake up in between.
	option.DisableAutoPipelining, option.BlockingPoolCleanup = true, maxIdle
	writes, err := rueidis.NewClient(option)
	if err != nil {
		shared.Close()
		return nil, err
	}
	return &clients{shared, writes}, nil
}

// replaceAfter opens new connections and closes all old ones of a client, if err says that they
// gave the answer of another call, or that the server has become a replica: its address may
// resolve to the new master. It does nothing if another caller has already done so, nor within
// a second of the last time.
//
// If nobody can be reached now, a later error has it try again. Until then the connections to
// a replica stay: it may become the master again. Connections that mix up answers are closed
// all the same, and calls fail.
func (l *link) replaceAfter(err error, bad *clients) {
	if err == nil {
		return
	}
	crossed := errors.Is(err, errCrossedReply)
	if !crossed && !l.lost.Load() && (l.cluster || !isReadOnly(err)) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.client() != bad || time.Since(l.replaced) < minReplace {
		return
	}
	l.replaced = time.Now()
	c, failed := l.dial()
	if failed == nil {
		l.current.Store(c)
	} else if !crossed {
		return
	}
	if !l.lost.Swap(failed != nil) {
		l.old.Go(bad.Close)
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	c := l.client()
	l.mu.Unlock()
	c.Close()
	l.old.Wait()
}

// nodes returns the servers by address; in a Cluster, masters and replicas.
func (l *link) nodes() map[string]rueidis.Client {
	c := l.client()
	if l.cluster || l.option.Sentinel.MasterSet != "" {
		return c.Nodes()
	}
	return map[string]rueidis.Client{l.option.InitAddress[0]: c}
}

// askEach asks all servers at once and returns the answers that it gets. If it gets none, it
// returns the error of one of them, which begins with its address.
func askEach[T any](l *link, ask func(c rueidis.Client) (T, error)) ([]T, error) {
	var mu sync.Mutex
	var answers []T
	failed := errors.New("the servers: none is known")
	var all sync.WaitGroup
	for addr, c := range l.nodes() {
		all.Go(func() {
			answer, err := ask(c)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("%s: %w", addr, err)
				return
			}
			answers = append(answers, answer)
		})
	}
	all.Wait()
	if len(answers) == 0 {
		return nil, failed
	}
	return answers, nil
}

// maxAsks bounds how many calls of ask a Store has in flight. The client keeps a question, and
// a goroutine for it, until the answer comes or the connection is closed, even if the caller
// has gone.
const maxAsks = 256

// ask sends commands that are safe to send twice, and returns their answers. It returns as soon
// as ctx ends; the commands then stay in flight.
func (s *Store) ask(ctx context.Context, c rueidis.Client, cmds ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	select {
	case s.asks <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answers := make(chan []rueidis.RedisResult, 1)
	s.work.Go(func() {
		defer func() { <-s.asks }()
		// After this time the client has given up on a silent connection.
		ctx, cancel := context.WithTimeout(context.Background(), 2*s.opts.Timeout+2*time.Second)
		defer cancel()
		answers <- c.DoMulti(ctx, cmds...)
	})
	select {
	case a := <-answers:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
