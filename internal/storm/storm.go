// Package storm has senders deliver everything several times and in random order to nodes
// that are killed and started again. A protocol's test says what a node serves and how one
// delivery is made, and counts at a server of its own what came of them.
package storm

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/thorough"
)

const (
	// Copies is how often everything is delivered.
	Copies = 5

	senders = 32
	// pause is between two deliveries of a sender that wasn't answered. A node that was
	// killed is back soon.
	pause = 5 * time.Millisecond
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
	store Store
	sink  string
	nodes []atomic.Pointer[process]
}

// Start starts the nodes that [Main] was told of, and kills them when the test ends. Each
// gets the URL of the sink.
func Start(t *testing.T, store Store, sink string) *Rig {
	t.Helper()
	r := &Rig{t: t, store: store, sink: sink, nodes: make([]atomic.Pointer[process], store.Nodes)}
	t.Cleanup(r.Stop)
	for i := range r.nodes {
		r.start(i)
	}
	return r
}

// Stop kills all nodes. Call it if you want to look into the store.
func (r *Rig) Stop() {
	for i := range r.nodes {
		r.kill(i)
	}
}

// Play has each of the events delivered [Copies] times, and kills nodes meanwhile. It
// returns when each delivery was answered. deliver makes one for which the sender waits as
// long as ctx says, and reports whether it was answered for good; if not, it is made again,
// perhaps at another node. Many goroutines call it.
func (r *Rig) Play(events, kills int, deliver func(ctx context.Context, url string, event int) bool) {
	r.t.Helper()
	order := rand.Perm(events * Copies)
	work, done := make(chan int), make(chan struct{}, len(order))
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for n := range work {
				r.send(n%events, deliver)
				done <- struct{}{}
			}
		})
	}
	go func() {
		defer close(work)
		for _, n := range order {
			select {
			case work <- n:
			case <-r.t.Context().Done():
				return
			}
		}
	}()
	for n := 1; n <= len(order); n++ {
		<-done
		if n%(len(order)/(kills+1)) == 0 && n < len(order) {
			i := rand.IntN(len(r.nodes))
			r.kill(i)
			r.start(i)
		}
	}
	group.Wait()
}

// send delivers until it is answered, as a sender does that waits for a random time, and
// sometimes for none.
func (r *Rig) send(event int, deliver func(ctx context.Context, url string, event int) bool) {
	for r.t.Context().Err() == nil {
		patience := time.Minute
		if rand.IntN(10) == 0 {
			patience = rand.N(5 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		answered := deliver(ctx, r.nodes[rand.IntN(len(r.nodes))].Load().url, event)
		cancel()
		if answered {
			return
		}
		select {
		case <-time.After(pause):
		case <-r.t.Context().Done():
		}
	}
}
