//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/faultnet"
	"github.com/semelhq/semel/internal/redistest"
)

// redisServers are servers by name.
type redisServers struct {
	all   map[string]*redistest.Server
	names []string
}

// groundRedis is a store in one server that syncs what it acknowledges.
func groundRedis(t *rig, o Options) *ground {
	s := &ground{nodes: o.Nodes, skipped: map[string]string{}}
	s.moveClocks(t, o, func(env []string) { t.env = env })
	server := redistest.Start(t, "always")
	nets := netsTo(t, o.Nodes, func() (*faultnet.Net, error) {
		return faultnet.Listen(func() (net.Conn, error) { return net.DialTimeout("tcp", server.Addr, dialTime) })
	})
	r := redisServers{map[string]*redistest.Server{"server": server}, []string{"server"}}
	s.url = func(node int) string { return "redis://" + nets[nodeName(node)].Addr() }
	s.faults = append(append(s.faults, linkFaults("store", nets)...), r.faults()...)
	// As a replica it refuses writes, and its master is nowhere.
	s.faults = append(s.faults, r.setting("server.readonly", []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}))
	s.network = setAll(nets)
	s.heal = func() error {
		s.network(faultnet.Healthy)
		return errors.Join(r.heal(), r.do("server", "REPLICAOF", "NO", "ONE"))
	}
	return s
}

// groundCluster is a store in a Cluster of three masters with a replica each. No
// replica takes over by itself: that would lose acknowledged records, as the store warns.
func groundCluster(t *rig, o Options) *ground {
	s := &ground{nodes: o.Nodes, skipped: map[string]string{}}
	s.moveClocks(t, o, func(env []string) { t.env = env })
	c := redistest.StartPartitionedCluster(t, "always", "cluster-replica-no-failover", "yes", "cluster-node-timeout", "20000")
	r := redisServers{all: map[string]*redistest.Server{}}
	at := map[string]int{}
	for i, n := range c.Nodes[:3] {
		name := "server" + strconv.Itoa(i+1)
		r.all[name], at[name] = n, i
		r.names = append(r.names, name)
	}
	for _, how := range sorted(links) {
		s.faults = append(s.faults, fault{"link.store." + how, r.names, func(s *injection) (int, error) {
			before := c.Fired(at[s.target])
			c.Fail(at[s.target], links[how])
			s.wait()
			c.Fail(at[s.target], faultnet.Healthy)
			return c.Fired(at[s.target]) - before, nil
		}})
	}
	s.lossy, s.url = true, func(int) string { return c.URL() }
	// A master that asks for more replicas than there are refuses writes.
	s.faults = append(append(s.faults, r.faults()...),
		r.setting("server.readonly", []string{"CONFIG", "SET", "min-replicas-to-write", "9"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}))
	s.network = func(f faultnet.Fault) {
		for _, i := range at {
			c.Fail(i, f)
		}
	}
	s.heal = func() error {
		s.network(faultnet.Healthy)
		errs := []error{r.heal()}
		for _, name := range r.names {
			errs = append(errs, r.do(name, "CONFIG", "SET", "min-replicas-to-write", "0"))
		}
		c.AwaitHealthy()
		return errors.Join(errs...)
	}
	return s
}

func (r *redisServers) on(name string, do func(s *injection, server *redistest.Server) (int, error)) fault {
	return fault{name, r.names, func(s *injection) (int, error) { return do(s, r.all[s.target]) }}
}

func (r *redisServers) faults() []fault {
	return []fault{
		r.on("server.kill", func(s *injection, server *redistest.Server) (int, error) {
			return once(server.Process.Kill(), s.moment(), server.Start())
		}),
		r.on("server.pause", func(s *injection, server *redistest.Server) (int, error) { return s.paused(&server.Process) }),
		r.setting("server.memory", []string{"CONFIG", "SET", "maxmemory", "1mb"}, []string{"CONFIG", "SET", "maxmemory", "0"}),
		r.again("server.scripts", "SCRIPT", "FLUSH"),
		r.again("server.terminate", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
		r.connections(),
	}
}

// do runs a command on a server.
func (r *redisServers) do(server string, command ...string) error {
	_, err := r.all[server].Try(command...)
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return err
}

// setting is a fault that lasts from one command to another.
func (r *redisServers) setting(name string, begin, end []string) fault {
	return fault{name, r.names, func(s *injection) (int, error) {
		if err := r.do(s.target, begin...); err != nil {
			return 0, err
		}
		s.wait()
		return once(r.do(s.target, end...))
	}}
}

// again is a command that is given again and again.
func (r *redisServers) again(name string, command ...string) fault {
	return fault{name, r.names, func(s *injection) (hits int, err error) {
		var errs []error
		hits = s.during(200*time.Millisecond, func() int {
			if err := r.do(s.target, command...); err != nil {
				errs = append(errs, err)
				return 0
			}
			return 1
		})
		return hits, errors.Join(errs...)
	}}
}

// connections are fewer than the nodes have, which lose those that they have.
func (r *redisServers) connections() fault {
	return r.on("server.connections", func(s *injection, server *redistest.Server) (int, error) {
		err := errors.Join(r.do(s.target, "CONFIG", "SET", "maxclients", strconv.Itoa(2+s.rng.IntN(3))),
			r.do(s.target, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
		s.wait()
		return once(err, r.do(s.target, "CONFIG", "SET", "maxclients", "1000"))
	})
}

func (r *redisServers) heal() error {
	var errs []error
	for _, name := range slices.Sorted(slices.Values(r.names)) {
		errs = append(errs, r.do(name, "CONFIG", "SET", "maxmemory", "0"), r.do(name, "CONFIG", "SET", "maxclients", "1000"))
	}
	return errors.Join(errs...)
}
