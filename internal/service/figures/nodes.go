package figures

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/semelhq/semel/internal/nodes"
)

// Announce has Run list this node as a running one, by the name that records have for it.
func (f *Figures) Announce(name, version string) { f.running.Announce(name, version) }

// Node is a process that serves on the store.
type Node struct {
	Node     string    `json:"node" doc:"The name that records have for it, as their holder."`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	LastSeen time.Time `json:"last_seen" doc:"When it said so last. It does once a minute, while the store answers."`
	Silent   bool      `json:"silent" doc:"It has said nothing for three minutes: it ended without leaving the list, or can't reach the store. After an hour it leaves the list."`
	Answers  bool      `json:"answers" doc:"It is the one that answers."`
	Total    Sums      `json:"total" doc:"What it has counted in this time."`
}

// Cluster is the body of GET /v1/nodes.
type Cluster struct {
	Nodes []Node `json:"nodes" nullable:"false" doc:"The nodes that share the store, by name."`
	Total Sums   `json:"total" doc:"What all nodes have counted, those that have ended included."`
}

// Nodes lists the nodes that share the store, and their counts of the last d: of one tenant,
// or of all if it is nil. If the store doesn't answer, nobody knows.
func (f *Figures) Nodes(ctx context.Context, d time.Duration, tenant *string) (*Cluster, error) {
	running, err := f.running.List(ctx)
	if err != nil {
		return nil, err
	}
	r, err := f.Read(ctx, d, tenant)
	if err != nil {
		return nil, err
	}
	of := map[string][]counted{}
	for _, c := range r.nodes {
		of[c.id] = append(of[c.id], c)
	}
	c := &Cluster{[]Node{}, r.Total}
	for id, n := range running {
		one := Report{From: r.From, To: r.To, StepSeconds: r.StepSeconds, Tenant: tenant}
		one.count(of[id])
		silent := r.To.Unix()-n.Seen > nodes.SilentAfter
		c.Nodes = append(c.Nodes, Node{n.Name, n.Version, time.Unix(n.Started, 0).UTC(), time.Unix(n.Seen, 0).UTC(), silent, id == f.own.id, one.Total})
	}
	slices.SortFunc(c.Nodes, func(a, b Node) int { return cmp.Compare(a.Node, b.Node) })
	return c, nil
}
