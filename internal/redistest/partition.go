package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// PartitionedCluster is a [Cluster] whose nodes can be cut off from each other while
// clients reach them all.
type PartitionedCluster struct {
	*Cluster
	gates [][]*gate // of each node: before its port for clients and that of the bus
}

// StartPartitionedCluster is [StartCluster] for one that can be partitioned. Its
// nodes announce ports of this process, which passes connections on, and they
// connect to each other from addresses of their own, so that they are told apart
// from clients.
func StartPartitionedCluster(tb testing.TB, appendfsync string, settings ...string) *PartitionedCluster {
	tb.Helper()
	c := &PartitionedCluster{Cluster: newCluster(tb, appendfsync, settings...)}
	for i, n := range c.Nodes {
		bus, err := strconv.Atoi(n.setting("cluster-port"))
		if err != nil {
			tb.Fatal(err)
		}
		gates := []*gate{newGate(tb, n.port), newGate(tb, bus)}
		n.args = append(n.args, "--cluster-announce-ip", "127.0.0.1", "--bind-source-addr", source(i),
			"--cluster-announce-port", strconv.Itoa(gates[0].port()), "--cluster-announce-bus-port", strconv.Itoa(gates[1].port()))
		c.gates = append(c.gates, gates)
	}
	c.form()
	return c
}

// source is where a node's own connections come from. All of 127.0.0.0/8 is this
// machine, on Linux without further ado.
func source(node int) string { return fmt.Sprintf("127.0.77.%d", node+1) }

// Isolate cuts a node off from all others: the bus and replication, in both
// directions. Clients reach it as before. It lasts until heal is called.
func (c *PartitionedCluster) Isolate(n *Server) (heal func()) {
	c.tb.Helper()
	at := slices.Index(c.Nodes, n)
	if at < 0 {
		c.tb.Fatal("the server is not of this Cluster")
	}
	own := source(at)
	for i, gates := range c.gates {
		for _, g := range gates {
			g.bar(func(from string) bool {
				if i == at {
					return from != own && from != "127.0.0.1"
				}
				return from == own
			})
		}
	}
	return func() {
		for _, gates := range c.gates {
			for _, g := range gates {
				g.bar(func(string) bool { return false })
			}
		}
	}
}

// announced is the port that the others are told.
func (s *Server) announced() int {
	if port, err := strconv.Atoi(s.setting("cluster-announce-port")); err == nil {
		return port
	}
	return s.port
}
