//go:build linux

package chaos

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// links are the ways in which a network fails, by the names of the faults.
var links = map[string]faultnet.Fault{
	"torn": faultnet.Torn, "mute": faultnet.Deaf, "half-open": faultnet.HalfOpen, "hole": faultnet.Hole,
	"stalled": faultnet.Blackhole, "refused": faultnet.Reset,
}

// linkFaults are the faults of networks, each the way to a target.
func linkFaults(name string, nets map[string]*faultnet.Net) []fault {
	var all []fault
	for _, how := range sorted(links) {
		all = append(all, fault{name: "link." + name + "." + how, targets: sorted(nets), do: func(s *injection) (int, error) {
			n := nets[s.target]
			before := n.Fired()
			n.Set(links[how])
			s.wait()
			n.Set(faultnet.Healthy)
			return n.Fired() - before, nil
		}})
	}
	return all
}

// nodeFaults are the faults of the nodes themselves.
func nodeFaults(nodes map[string]*node, clocks bool) []fault {
	names := sorted(nodes)
	on := func(name string, do func(s *injection, n *node) (int, error)) fault {
		return fault{name, names, func(s *injection) (int, error) { return do(s, nodes[s.target]) }}
	}
	all := []fault{
		on("node.kill", func(_ *injection, n *node) (int, error) {
			return once(n.kill(), n.await(recoveryTimeout))
		}),
		on("node.pause", func(s *injection, n *node) (int, error) {
			return s.stopped(n.process, func(time.Duration) error { return nil })
		}),
		on("node.rolling", func(_ *injection, n *node) (int, error) { return once(n.restart()) }),
		on("node.reload", func(_ *injection, n *node) (int, error) {
			n.config.number++
			return once(n.configure(), n.signal(syscall.SIGHUP))
		}),
	}
	if !clocks {
		return all
	}
	return append(all,
		// A suspended machine: its monotonic clock stops, its wall clock is right when
		// it wakes.
		on("node.suspend", func(s *injection, n *node) (int, error) {
			return s.stopped(n.process, func(slept time.Duration) error {
				n.slept += slept
				return n.setClock(n.wall, -n.slept)
			})
		}),
		on(nodeClockFault, func(s *injection, n *node) (int, error) {
			// It may be started by the wrong clock, or by the right one after it.
			again := func() error {
				if chance(s.rng, 70) {
					return nil
				}
				return errors.Join(n.kill(), n.await(recoveryTimeout))
			}
			n.wall = leap(s.rng)
			errs := []error{n.setClock(n.wall, -n.slept), again()}
			s.wait()
			n.wall = 0
			return once(append(errs, n.setClock(0, -n.slept), again())...)
		}),
	)
}

// restart ends the node in an orderly way, and waits until it serves again.
func (n *node) restart() error {
	now := n.running()
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-now.Exited():
	case <-time.After(recoveryTimeout):
		return errors.Join(errors.New("it does not stop"), n.kill())
	}
	return n.await(recoveryTimeout)
}

// nodeClockFault is the name of the fault that moves the clock of a node.
const nodeClockFault = "node.clock"

// farLeap is the furthest leap while there is load: longer than any window.
const farLeap = 400 * 24 * time.Hour

// leap is how far a clock is wrong: by seconds, hours, or more than any window.
func leap(rng *rand.Rand) time.Duration {
	by := span(rng, lease, 5*lease)
	if chance(rng, 60) {
		by = pick(rng, choice[time.Duration]{1, 2 * time.Hour}, choice[time.Duration]{1, 25 * time.Hour}, choice[time.Duration]{1, farLeap})
	}
	if chance(rng, 50) {
		by = -by
	}
	return by
}

// recoveryTimeout is how long a part of the system may take to come back.
const recoveryTimeout = 30 * time.Second

// stopped stops a process as long as the fault lasts, which may be longer than a
// lease. It calls wakes with that time just before it resumes the process.
func (s *injection) stopped(p *process, wakes func(time.Duration) error) (int, error) {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	began := now()
	s.wait()
	return once(wakes(time.Duration(now()-began)), p.signal(syscall.SIGCONT))
}

// moment is how long a server stays down: sometimes no longer than a restart takes.
func (s *injection) moment() error {
	if chance(s.rng, 50) {
		s.wait()
	}
	return nil
}

// paused stops a server as long as the fault lasts.
func (s *injection) paused(p *servertest.Process) (int, error) {
	err := p.Pause()
	s.wait()
	return once(err, p.Resume())
}

// processFaults are the faults of workers and of the upstream.
func processFaults(name string, all map[string]*process) []fault {
	return []fault{
		{name + ".kill", sorted(all), func(s *injection) (int, error) {
			return once(all[s.target].kill(), all[s.target].await(recoveryTimeout))
		}},
		{name + ".pause", sorted(all), func(s *injection) (int, error) {
			return s.stopped(all[s.target], func(time.Duration) error { return nil })
		}},
	}
}
