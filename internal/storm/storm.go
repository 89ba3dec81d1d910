// Package storm has senders deliver everything several times and in random order to nodes
// that are killed and started again. A protocol's test says what a node serves and how one
// delivery is made, and counts at a server of its own what came of them.
package storm

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/stage"
	"github.com/semelhq/semel/internal/thorough"
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

// Start starts the nodes that [Main] was told of, and kills them when the test ends. Each
// gets the URL of the sink.
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

// Play has each of the events delivered [Copies] times, and kills nodes meanwhile. It
// returns when each delivery was answered. deliver makes one for which the sender waits as
// long as ctx says, and reports whether it was answered for good; if not, it is made again,
// perhaps at another node. Many goroutines call it.
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
