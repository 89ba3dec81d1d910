//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/redistest"
)

// redisServers are servers by name, with the faults that they can have.
type redisServers struct {
	all    map[string]*redistest.Server
	faults []fault
	ends   []string // commands that end those which last
}

// groundRedis is a store in one server that syncs before it acknowledges.
func groundRedis(t *rig, o Options) *ground {
	s := newGround(t, o, func(env []string) { t.env = env })
	server := redistest.Start(t, "always")
	nets := netsTo(t, o.Nodes, "tcp", server.Addr)
	r := serversOf(map[string]*redistest.Server{"server": server})
	// As a replica it refuses writes, and its master is nowhere.
	r.setting("server.readonly", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")
	s.url = func(node int) string { return "redis://" + nets[nodeName(node)].Addr() }
	s.faults = slices.Concat(s.faults, linkFaults("store", nets), r.faults)
	s.network = setAll(nets)
	s.heal = func() error {
		s.network(faultnet.Healthy)
		return r.heal()
	}
	return s
}

// groundCluster is a store in a Cluster of three masters with a replica each. No
// replica takes over by itself: that would lose acknowledged records, as the store warns.
func groundCluster(t *rig, o Options) *ground {
	s := newGround(t, o, func(env []string) { t.env = env })
	c := redistest.StartPartitionedCluster(t, "always", "cluster-replica-no-failover", "yes", "cluster-node-timeout", "20000")
	masters, at := map[string]*redistest.Server{}, map[string]int{}
	for i, n := range c.Nodes[:3] {
		name := "server" + strconv.Itoa(i+1)
		masters[name], at[name] = n, i
	}
	r := serversOf(masters)
	// A master that asks for more replicas than there are refuses writes.
	r.setting("server.readonly", "CONFIG SET min-replicas-to-write 9", "CONFIG SET min-replicas-to-write 0")
	for _, how := range sorted(links) {
		s.faults = append(s.faults, fault{"link.store." + how, sorted(at), func(s *injection) (int, error) {
			before := c.Fired(at[s.target])
			c.Fail(at[s.target], links[how])
			s.wait()
			c.Fail(at[s.target], faultnet.Healthy)
			return c.Fired(at[s.target]) - before, nil
		}})
	}
	s.lossy, s.url = true, func(int) string { return c.URL() }
	s.faults = append(s.faults, r.faults...)
	s.network = func(f faultnet.Fault) {
		for _, i := range at {
			c.Fail(i, f)
		}
	}
	s.heal = func() error {
		s.network(faultnet.Healthy)
		err := r.heal()
		c.AwaitHealthy()
		return err
	}
	return s
}

// serversOf are servers with the faults that any of them can have.
func serversOf(all map[string]*redistest.Server) *redisServers {
	r := &redisServers{all: all}
	r.on("server.kill", func(s *injection, server *redistest.Server) (int, error) {
		return once(server.Process.Kill(), s.moment(), server.Start())
	})
	r.on("server.pause", func(s *injection, server *redistest.Server) (int, error) { return s.paused(&server.Process) })
	r.setting("server.memory", "CONFIG SET maxmemory 1mb", "CONFIG SET maxmemory 0")
	r.again("server.scripts", "SCRIPT FLUSH")
	r.again("server.terminate", terminateClients)
	r.connections()
	return r
}

const terminateClients = "CLIENT KILL TYPE normal SKIPME yes"

func (r *redisServers) on(name string, do func(s *injection, server *redistest.Server) (int, error)) {
	r.faults = append(r.faults, fault{name, sorted(r.all), func(s *injection) (int, error) { return do(s, r.all[s.target]) }})
}

// command runs a command on a server.
func (r *redisServers) command(server *redistest.Server, text string) error {
	if _, err := server.Try(strings.Fields(text)...); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// setting is a fault that lasts from one command to another.
func (r *redisServers) setting(name, begin, end string) {
	r.ends = append(r.ends, end)
	r.on(name, func(s *injection, server *redistest.Server) (int, error) {
		if err := r.command(server, begin); err != nil {
			return 0, err
		}
		s.wait()
		return once(r.command(server, end))
	})
}

// again repeats a command again and again.
func (r *redisServers) again(name, text string) {
	r.on(name, func(s *injection, server *redistest.Server) (hits int, err error) {
		var errs []error
		hits = s.during(200*time.Millisecond, func() int {
			if err := r.command(server, text); err != nil {
				errs = append(errs, err)
				return 0
			}
			return 1
		})
		return hits, errors.Join(errs...)
	})
}

// connections lowers maxclients below what the nodes hold, and kills their connections.
func (r *redisServers) connections() {
	const end = "CONFIG SET maxclients 1000"
	r.ends = append(r.ends, end)
	r.on("server.connections", func(s *injection, server *redistest.Server) (int, error) {
		err := errors.Join(r.command(server, fmt.Sprintf("CONFIG SET maxclients %d", 2+s.rng.IntN(3))), r.command(server, terminateClients))
		s.wait()
		return once(err, r.command(server, end))
	})
}

// heal ends what may last on any server.
func (r *redisServers) heal() error {
	var errs []error
	for _, name := range sorted(r.all) {
		for _, end := range r.ends {
			errs = append(errs, r.command(r.all[name], end))
		}
	}
	return errors.Join(errs...)
}
