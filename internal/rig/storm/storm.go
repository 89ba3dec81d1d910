// Package storm has senders deliver everything several times and in random order to nodes that
// are killed and started again. A protocol's test says what a node serves and how to make a
// delivery, and counts the effects at a server of its own.
package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store/pebblestore"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

const (
	// Copies is how often everything is delivered.
	Copies = 5

	senders = 32
	// pause is between two deliveries of a sender that wasn't answered. A node that was
	// killed is back soon.
	pause = 5 * time.Millisecond
	// patience is how long a sender waits that doesn't hang up.
	patience = time.Minute
)

// Size is how many events a storm has, and how many nodes it kills; see
// [thorough.Scaled].
func Size() (events, kills int) {
	if thorough.Run() {
		return 10_000, 12
	}
	return thorough.Scaled(500), 2
}

// Rig is nodes on one store.
type Rig struct {
	t     *testing.T
	nodes []*stage.Node
}

// Start starts the nodes that [Main] serves, and kills them when the test ends. Each gets the
// URL of the sink.
func Start(t *testing.T, store Store, sink string) *Rig {
	t.Helper()
	r := &Rig{t: t}
	t.Cleanup(r.Stop)
	for range store.Nodes {
		n, err := stage.StartSelf(t.Context(), store.URL, sink)
		if err != nil {
			t.Fatal(err)
		}
		r.nodes = append(r.nodes, n)
	}
	return r
}

// Stop kills all nodes. Call it if you want to look into the store.
func (r *Rig) Stop() {
	for _, n := range r.nodes {
		n.Kill()
	}
}

// Play has each of the events delivered [Copies] times, and kills nodes meanwhile. It returns
// when each delivery was answered. deliver makes one for which the sender waits as long as ctx
// says, and reports whether the answer was final; if not, Play repeats it, perhaps at another
// node. Many goroutines call it.
func (r *Rig) Play(events, kills int, deliver func(ctx context.Context, url string, event int) bool) {
	r.t.Helper()
	anyNode := func() *stage.Node { return r.nodes[rand.IntN(len(r.nodes))] }
	load := stage.Load{
		Calls: stage.Shuffled(events, Copies), Senders: senders, Pause: pause, HangUp: 5 * time.Millisecond,
		Try: func(ctx context.Context, event int) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return deliver(ctx, anyNode().URL(), event), nil
		},
		Disturb: func(ctx context.Context) error { return anyNode().Crash(ctx) }, Times: kills,
	}
	if err := load.Run(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// Node makes what a node serves. The engine's records are swept. Whatever else it starts may
// run until the process is killed.
type Node func(ctx context.Context, engine *semel.Engine, sink string) (http.Handler, error)

// Main runs the tests of a package, or is a node if [Start] has started this process. Call it
// from TestMain and exit with its result.
func Main(m *testing.M, node Node) int {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return serve(ctx, l, node, args[0], args[1])
	})
	if isNode {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Main(m)
}

// serve is the process of a node.
func serve(ctx context.Context, l net.Listener, node Node, store, sink string) error {
	st, err := Open(ctx, store)
	if err != nil {
		return err
	}
	engine, err := semel.New(st, nil)
	if err != nil {
		return err
	}
	handler, err := node(ctx, engine, sink)
	if err != nil {
		return err
	}
	go func() { _ = engine.Run(ctx, time.Second) }()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	return http.Serve(l, handler)
}

// Store is an empty store, and how many nodes can share it.
type Store struct {
	URL   string
	Nodes int
}

// OnEach runs a test on each durable store: on Pebble with one node, and on private servers
// of PostgreSQL and Redis with two.
func OnEach(t *testing.T, run func(t *testing.T, store Store)) {
	t.Run("on Pebble", func(t *testing.T) { run(t, Store{pebble + t.TempDir(), 1}) })
	t.Run("on PostgreSQL", func(t *testing.T) {
		server := pgtest.Shared(t)
		run(t, Store{server.URL(server.Database(t)), 2})
	})
	t.Run("on Redis", func(t *testing.T) { run(t, Store{redistest.Start(t, "always").URL(), 2}) })
}

const pebble = "pebble:"

// Open opens the store at the URL of a [Store]. No node may have it open if it is one of
// Pebble.
func Open(ctx context.Context, url string) (semel.Store, error) {
	if dir, ok := strings.CutPrefix(url, pebble); ok {
		return pebblestore.Open(dir, nil)
	}
	if strings.HasPrefix(url, "redis:") {
		return redisstore.Open(ctx, url, nil)
	}
	return pgstore.Open(ctx, url, &pgstore.Options{Migrate: true})
}
