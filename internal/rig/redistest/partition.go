package redistest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/faultnet"
)

// PartitionedCluster is a [Cluster] that lets you cut nodes off from each other while clients
// still reach all of them.
type PartitionedCluster struct {
	*Cluster
	gates [][]*faultnet.Net // of each node: before its port for clients and that of the bus
}

// StartPartitionedCluster is [StartCluster] for a Cluster that you can partition. Its nodes
// announce ports of this process, which forwards connections. They connect to each other from
// addresses of their own, which distinguishes them from clients.
func StartPartitionedCluster(tb testing.TB, appendfsync string, settings ...string) *PartitionedCluster {
	tb.Helper()
	c := &PartitionedCluster{Cluster: newCluster(tb, appendfsync, settings...)}
	for i, n := range c.Nodes {
		bus, err := strconv.Atoi(n.setting("cluster-port"))
		if err != nil {
			tb.Fatal(err)
		}
		gates := []*faultnet.Net{newGate(tb, n.port), newGate(tb, bus)}
		n.args = append(n.args, "--cluster-announce-ip", "127.0.0.1", "--bind-source-addr", source(i),
			"--cluster-announce-port", strconv.Itoa(gates[0].Port()), "--cluster-announce-bus-port", strconv.Itoa(gates[1].Port()))
		c.gates = append(c.gates, gates)
	}
	c.form()
	return c
}

// newGate forwards to a port until the test ends.
func newGate(tb testing.TB, port int) *faultnet.Net {
	tb.Helper()
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	g, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", target) })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(g.Close)
	return g
}

// sources is the prefix of the addresses that nodes connect from.
const sources = "127.0.77."

// source is the address that a node connects from. On Linux all of 127.0.0.0/8 is this machine.
func source(node int) string { return sources + strconv.Itoa(node+1) }

// Isolate cuts a node off from all others, both the bus and replication, in both directions,
// until you call heal. Clients still reach it.
func (c *PartitionedCluster) Isolate(n *Server) (heal func()) {
	c.tb.Helper()
	at := slices.Index(c.Nodes, n)
	if at < 0 {
		c.tb.Fatal("the server is not of this Cluster")
	}
	own := source(at)
	for i, gates := range c.gates {
		for _, g := range gates {
			g.SetFor(faultnet.Reset, func(from string) bool {
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
				g.Set(faultnet.Healthy)
			}
		}
	}
}

// Fail makes the network between a node and its clients fail, or heals it. Nodes still reach
// each other.
func (c *PartitionedCluster) Fail(node int, f faultnet.Fault) {
	c.gates[node][0].SetFor(f, func(from string) bool { return !strings.HasPrefix(from, sources) })
}

// Fired counts how often the network between a node and everybody else, clients or nodes, has
// failed.
func (c *PartitionedCluster) Fired(node int) int { return c.gates[node][0].Fired() }

// announced is the port that a node gives the others.
func (s *Server) announced() int {
	if port, err := strconv.Atoi(s.setting("cluster-announce-port")); err == nil {
		return port
	}
	return s.port
}
