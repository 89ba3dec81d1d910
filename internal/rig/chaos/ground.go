//go:build linux

package chaos

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/servertest"
)

// ground is the store of a run with its faults.
type ground struct {
	nodes int
	// url is the store as a node reaches it, from 1.
	url   func(node int) string
	lossy bool
	// stopToUpgrade: nodes of two versions don't share the store.
	stopToUpgrade bool
	// faults are the faults of the store; skipped says why others can't be injected here.
	faults  []fault
	skipped map[string]string
	// disks are the faults of disks that the nodes write to.
	disks []string
	// attach tells the ground its nodes, once they are there.
	attach func(nodes map[string]*node)
	// network makes the way from all nodes to the store fail; nil: there is none.
	network func(faultnet.Fault)
	// stall keeps the disk that the nodes write to from writing; nil: it isn't one of its own.
	stall func(time.Duration) error
	// clock sets the clock of the servers; nil: it can't be set.
	clock func(ahead time.Duration) error
	// heal ends all faults that may still last.
	heal func() error
}

// Stores are the kinds of stores that there are runs for.
var Stores = []string{"postgres", "redis", "cluster", "pebble"}

// start starts the store of a run. It ends with the test.
func (t *rig) start(o Options) *ground {
	make, ok := map[string]func(*rig, Options) *ground{
		"postgres": groundPostgres, "redis": groundRedis, "cluster": groundCluster, "pebble": groundPebble,
	}[o.Store]
	if !ok {
		t.Fatalf("%q is none of %s", o.Store, strings.Join(Stores, ", "))
	}
	return make(t, o)
}

// rig is the test of a run, with the directory of its parts. Redis servers find their
// environment here.
type rig struct {
	testing.TB
	dir string
	env []string
}

// Environ is added to the environment of Redis servers.
func (t *rig) Environ() []string { return t.env }

// netsTo makes a network for each node to the store at an address, named after the nodes.
func netsTo(t *rig, nodes int, network, addr string) map[string]*faultnet.Net {
	nets := map[string]*faultnet.Net{}
	for i := range nodes {
		n, err := faultnet.Listen(func() (net.Conn, error) { return net.DialTimeout(network, addr, dialTime) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		nets[nodeName(i+1)] = n
	}
	return nets
}

func nodeName(number int) string { return fmt.Sprintf("node%d", number) }

// setAll makes all networks fail, or heals them.
func setAll(nets map[string]*faultnet.Net) func(faultnet.Fault) {
	return func(f faultnet.Fault) {
		for _, n := range nets {
			n.Set(f)
		}
	}
}

//go:embed serverclock/clock.c
var serverClock []byte

// serverClocks builds the library that moves the clocks of servers, and returns their
// environment and the file of the clock, or why it can't be built.
func serverClocks(t *rig) (env []string, file, why string) {
	source, library := filepath.Join(t.dir, "serverclock.c"), filepath.Join(t.dir, "serverclock.so")
	file = filepath.Join(t.dir, "server.clock")
	if err := errors.Join(os.WriteFile(source, serverClock, 0o600), writeClock(file, 0)); err != nil {
		t.Fatal(err)
	}
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil {
		if os.Getenv(servertest.RequireEnv) == "1" {
			t.Fatal("a C compiler is required: install the package gcc")
		}
		return nil, "", "it needs a C compiler: install the package gcc"
	}
	if out, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return []string{"LD_PRELOAD=" + library, clockEnv + "=" + file}, file, ""
}

// newGround is a ground without a store. If the run needs it, the servers have clocks that it
// can move. It passes their environment to use before they start.
func newGround(t *rig, o Options, use func(env []string)) *ground {
	s := &ground{nodes: o.Nodes, skipped: map[string]string{}}
	if !o.Clocks {
		return s
	}
	env, file, why := serverClocks(t)
	if why != "" {
		s.skipped[history.ClockFault] = why
		return s
	}
	use(env)
	s.clock = func(ahead time.Duration) error { return writeClock(file, ahead) }
	s.faults = append(s.faults, serverClockFault(s.clock))
	return s
}

// serverClockFault is a clock of the servers that is wrong for a while, ahead or behind.
func serverClockFault(set func(time.Duration) error) fault {
	return fault{history.ClockFault, []string{"the clock of the servers"}, func(s *injection) (int, error) {
		err := set(leap(s.rng))
		s.wait()
		return once(err, set(0))
	}}
}

// sorted are the keys of a map, in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// settling is how much longer the store may need until it is free of the effects of a
// wrong clock.
const settling = 5*lease + 15*time.Second
