//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
	"github.com/semelhq/semel/internal/rig/pgtest"
)

var (
	duration = flag.Duration("chaos.duration", 0, "how long there are calls and faults, over all stores together; 0 for a short look that it works")
	stores   = flag.String("chaos.store", strings.Join(Stores, ","), "which stores")
	seed     = flag.Uint64("chaos.seed", 1, "what decides on calls and faults; further rounds have the next ones")
	faults   = flag.String("chaos.faults", "", "only faults whose name this regular expression matches")
	from     = flag.String("chaos.from", "", "the commit that the nodes run at first; they are replaced under load")
	loud     = flag.Bool("chaos.loud", false, "say what is going on")
)

// roundLength bounds what is kept in memory until it is judged.
const roundLength = 5 * time.Minute

// TestMain lets this test binary be a worker or the upstream.
func TestMain(m *testing.M) {
	if Child() {
		return
	}
	os.Exit(pgtest.Main(m))
}

// lookFaults are few, and quickly over.
var lookFaults = regexp.MustCompile(`^(node\.(kill|pause|rolling|reload)|worker\..*|upstream\.kill|link\.client\.(torn|mute|refused)|link\.store\.hole|server\.(kill|terminate|scripts))$`)

// binaries are built once, by whether their clocks can be moved, and earlier ones by the same.
var (
	binaries = map[bool]func() (string, error){
		false: sync.OnceValues(func() (string, error) { return buildOnce("", false) }),
		true:  sync.OnceValues(func() (string, error) { return buildOnce("", true) }),
	}
	earlier = map[bool]func() (string, error){
		false: sync.OnceValues(func() (string, error) { return buildOnce(*from, false) }),
		true:  sync.OnceValues(func() (string, error) { return buildOnce(*from, true) }),
	}
)

func buildOnce(commit string, clocks bool) (string, error) {
	dir, err := os.MkdirTemp("", "semel-chaos-build-")
	if err != nil {
		return "", err
	}
	built = append(built, dir)
	return Build(dir, commit, clocks)
}

var built []string

// TestChaos breaks everything around the service for as long as it is told. Without a
// duration it looks that the rig works, and that a few faults do no harm.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("nodes are not started with -short")
	}
	t.Cleanup(func() {
		for _, dir := range built {
			_ = os.RemoveAll(dir)
		}
	})
	look := *duration == 0
	list := strings.Split(*stores, ",")
	// All stores at once: a run mostly waits.
	t.Run("on", func(t *testing.T) {
		for _, store := range list {
			t.Run(store, func(t *testing.T) {
				o := Options{Store: store, Seed: *seed, Nodes: 3, Rate: 20, Clocks: true}
				if *loud {
					o.Tell = func(text string) { fmt.Fprintln(os.Stderr, text) }
				}
				t.Parallel()
				if look {
					o.Nodes, o.Rate, o.Clocks, o.Duration, o.Faults, o.Brief = 2, 5, false, 6*time.Second, lookFaults, true
					runOnce(t, o)
					return
				}
				o.Faults = regexp.MustCompile(*faults)
				for left := *duration / time.Duration(len(list)); left > 0; left -= roundLength {
					o.Duration = min(left, roundLength)
					t.Run(fmt.Sprint("seed ", o.Seed), func(t *testing.T) { runOnce(t, o) })
					o.Seed++
				}
			})
		}
	})
}

// runOnce does a run and wants it to break no rule.
func runOnce(t *testing.T, o Options) {
	t.Helper()
	var err error
	if o.Binary, err = binaries[o.Clocks](); err != nil {
		t.Fatal(err)
	}
	if *from != "" {
		if o.Earlier, err = earlier[o.Clocks](); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := Run(t, o)
	if err != nil {
		t.Fatalf("seed %d: %v", o.Seed, err)
	}
	var text strings.Builder
	rep.Print(&text)
	t.Log(text.String())
	if !rep.OK() {
		t.Errorf("%d violations", len(rep.Violations))
	}
	if rep.Words[history.Execute] == 0 || rep.Words[history.Answered] == 0 || sum(rep.Faults) == 0 {
		t.Error("the run was no test: no execution, no answer or no fault")
	}
	for _, word := range []string{history.Gap, history.Superseded, history.OtherCaller} {
		if !o.Brief && rep.Words[word] == 0 {
			t.Errorf("the run was no test: nobody was told %s", word)
		}
	}
}
