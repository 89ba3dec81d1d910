package nodes

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// operation has the cell with the list of running nodes.
const operation = "semel.nodes"

const (
	stayEvery = 60 // seconds from one word of a node that runs to the next
	// SilentAfter is for how many seconds a node says nothing before it is silent: two words are
	// missing then.
	SilentAfter = 3 * stayEvery
	// forgottenAfter is for how long a silent node stays in the list.
	forgottenAfter = time.Hour
)

// Node is what a node says of itself. Its times are Unix seconds by the store's clock.
type Node struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Started int64  `json:"started"`
	Seen    int64  `json:"seen"` // when it said so last
}

// Running is this node's place in the list of running nodes. Its methods may be called concurrently.
type Running struct {
	cell *store.Cell
	id   string

	mu   sync.Mutex
	self Node
}

// NewRunning makes the place of a node with this id. It is listed once it has a name.
func NewRunning(st store.Store, id string) *Running {
	return &Running{cell: store.NewCell(st, store.ID{Operation: operation, Key: "running"}), id: id}
}

// Announce names the node, which Stay then lists.
func (r *Running) Announce(name, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self = Node{Name: name, Version: version}
}

// Stay says at most once a minute that this node runs, or that it ends. If the store fails, the
// next call tries again.
func (r *Running) Stay(ctx context.Context, now int64, ends bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	self := r.self
	if self.Name == "" || !ends && now < self.Seen+stayEvery {
		return nil
	}
	self.Started, self.Seen = cmp.Or(self.Started, now), now
	// A crash before this write leaves the node unlisted, or as it was a minute ago; a crash after
	// it, an entry that others drop after an hour, or when the node is started again by its name.
	err := Change(ctx, r.cell, 2*forgottenAfter, func(n Node) int64 { return n.Seen }, func(list map[string]Node) {
		maps.DeleteFunc(list, func(_ string, n Node) bool {
			silent := now - n.Seen
			return silent > int64(forgottenAfter/time.Second) || silent > SilentAfter && n.Name == self.Name
		})
		if list[r.id] = self; ends {
			delete(list, r.id)
		}
	})
	if err != nil {
		return err
	}
	if r.self = self; ends {
		r.self.Name = "" // it has said so
	}
	return nil
}

// List returns the running nodes by id, silent ones included.
func (r *Running) List(ctx context.Context) (map[string]Node, error) { return Load[Node](ctx, r.cell) }
