package redistest

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/servertest"
)

// Slots is how many hash slots a Cluster has.
const Slots = 16384

// NodeTimeout is cluster-node-timeout in milliseconds: after that time, a master that doesn't
// answer is replaced, and one that can't reach a majority stops.
const NodeTimeout = 1500

// Patient are settings for tests that need no failover: on a busy machine a master may be
// silent for longer than [NodeTimeout], and its replica doesn't have all that it answered.
var Patient = []string{"cluster-node-timeout", "60000"}

// Cluster is three masters with a replica each.
type Cluster struct {
	// Nodes has the masters, then the replicas: Nodes[i+3] follows Nodes[i] until a failover.
	Nodes []*Server

	tb testing.TB
}

// masters is how many a Cluster has, and how many replicas.
const masters = 3

// StartCluster starts a Cluster. Its nodes sync their append-only files as appendfsync says;
// see [Start]. It returns once all slots are served and every replica has its master's data.
func StartCluster(tb testing.TB, appendfsync string, settings ...string) *Cluster {
	tb.Helper()
	c := newCluster(tb, appendfsync, settings...)
	c.form()
	return c
}

// newCluster prepares nodes without starting them.
func newCluster(tb testing.TB, appendfsync string, settings ...string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range 2 * masters {
		all := append(persistence(appendfsync),
			"cluster-enabled", "yes", "cluster-port", strconv.Itoa(servertest.FreePort(tb)), "cluster-node-timeout", strconv.Itoa(NodeTimeout),
			"repl-diskless-sync-delay", "0", "repl-ping-replica-period", "1", "cluster-allow-replica-migration", "no")
		c.Nodes = append(c.Nodes, newServer(tb, append(all, settings...)...))
	}
	return c
}

// form starts the nodes and joins them into a Cluster.
func (c *Cluster) form() {
	tb := c.tb
	tb.Helper()
	for i, n := range c.Nodes {
		n.Restart()
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		ids[i] = n.ID()
		if i < masters {
			n.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(Slots*i/masters), strconv.Itoa(Slots*(i+1)/masters-1))
		}
		for _, other := range c.Nodes[:i] {
			// The bus port isn't the client port plus 10000, so name it.
			n.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.announced()), cmp.Or(other.setting("cluster-announce-bus-port"), other.setting("cluster-port")))
		}
	}
	for i, n := range c.Nodes[masters:] {
		servertest.Eventually(tb, "a replica finds its master", func() error {
			_, err := n.Try("CLUSTER", "REPLICATE", ids[i])
			return err
		})
	}
	c.AwaitHealthy()
}

// URL is the address for redisstore.Open, with every node.
func (c *Cluster) URL() string { return c.URLOf(c.Nodes...) }

// URLOf is URL with only some nodes; clients ask them for the others.
func (c *Cluster) URLOf(nodes ...*Server) string {
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(n.announced()))
	}
	return "redis-cluster://" + strings.Join(addrs, ",")
}

// AwaitHealthy waits until every running node says that all slots are served and every
// replica is in step with its master.
func (c *Cluster) AwaitHealthy() {
	c.tb.Helper()
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		servertest.Eventually(c.tb, "the Cluster is whole", func() error {
			info, err := n.Try("CLUSTER", "INFO")
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes))) {
				return fmt.Errorf("%s says %.60q, %v", n.Addr, info, err)
			}
			repl, err := n.Try("INFO", "replication")
			if err != nil || strings.Contains(repl, "role:slave") && !strings.Contains(repl, "master_link_status:up") {
				return fmt.Errorf("%s is a replica without a link, %v", n.Addr, err)
			}
			return nil
		})
	}
}

// ID is the node's name in its Cluster.
func (s *Server) ID() string { return s.Do("CLUSTER", "MYID") }

// Serves reports whether the node says that it is the master of a slot.
func (s *Server) Serves(slot int) bool {
	nodes, err := s.Try("CLUSTER", "NODES")
	if err != nil {
		return false
	}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") || !strings.Contains(fields[2], "master") {
			continue
		}
		for _, r := range fields[8:] {
			low, high, ranged := strings.Cut(r, "-")
			if !ranged {
				high = low
			}
			from, err1 := strconv.Atoi(low)
			to, err2 := strconv.Atoi(high)
			if err1 == nil && err2 == nil && from <= slot && slot <= to {
				return true
			}
		}
	}
	return false
}

// setting is the value that the server was started with.
func (s *Server) setting(name string) string {
	for i, arg := range s.args {
		if arg == "--"+name {
			return s.args[i+1]
		}
	}
	return ""
}
