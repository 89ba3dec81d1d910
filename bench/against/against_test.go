package against

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/turns"
)

var (
	commit   = flag.String("against.commit", "", "`commit` to compare with; empty: the tree as it is, to see that the comparison works")
	duration = flag.Duration("against.duration", 50*time.Millisecond, "how long a turn takes")
	rounds   = flag.Int("against.rounds", 1, "turns of each side")
	stores   = flag.String("against.stores", "memory,pebble", "stores to compare on")
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// side is a running load, with its latest result and those of all measured turns.
type side struct {
	PerSec float64 `json:"per_sec"`
	CPU    float64 `json:"cpu_us"`
	Allocs float64 `json:"allocs"`

	perSec, cpu, allocs []float64
	cmd                 *exec.Cmd
	in                  io.WriteCloser
	out                 *json.Decoder
}

// TestAgainst compares. It fails if a load fails, never because of a ratio.
func TestAgainst(t *testing.T) {
	ours, theirs := build(t, ""), build(t, *commit)
	// The table of bench/peers/README.md. Figures are the medians of all rounds.
	fmt.Println("| store | callers | operations a second, theirs | ours | ratio (half of the rounds) | processor time of one, theirs | ours | ratio | allocations, theirs | ours |\n|---|---|---|---|---|---|---|---|---|---|")
	for store := range strings.SplitSeq(*stores, ",") {
		place := places[store]
		if place == nil {
			t.Fatalf("there is no store %q", store)
		}
		at := place(t)
		for _, load := range []struct {
			name         string
			callers, hot int
		}{{"1", 1, 0}, {"64", 64, 0}, {"256", 256, 0}, {"64, of 16 hot keys", 64, 16}} {
			var sides [2]*side
			for i, program := range []string{ours, theirs} {
				sides[i] = begin(t, program, "-store", store, "-callers", strconv.Itoa(load.callers), "-hot", strconv.Itoa(load.hot),
					"-duration", duration.String(), "-at", at[i], "-name", []string{"ours", "theirs"}[i])
			}
			var speed, cpu []float64
			for round := range *rounds + 1 {
				// ABBA, so that changes on the machine affect both sides alike.
				for turn := range 2 {
					sides[(round+turn)%2].turn(t, round > 0) // the first isn't measured
				}
				if round > 0 {
					speed, cpu = append(speed, sides[0].PerSec/sides[1].PerSec), append(cpu, sides[0].CPU/sides[1].CPU)
				}
			}
			for _, s := range sides {
				s.end(t)
			}
			o, th := sides[0], sides[1]
			slices.Sort(speed)
			fmt.Printf("| %s | %s | %.0f | %.0f | %.2f (%.2f to %.2f) | %.1f µs | %.1f µs | %.2f | %.1f | %.1f |\n", store, load.name,
				turns.Median(th.perSec), turns.Median(o.perSec), turns.Median(speed), speed[len(speed)/4], speed[len(speed)*3/4],
				turns.Median(th.cpu), turns.Median(o.cpu), turns.Median(cpu), turns.Median(th.allocs), turns.Median(o.allocs))
		}
	}
}

// places make room for both sides in a store. They share a server.
var places = map[string]func(t *testing.T) [2]string{
	"memory": func(*testing.T) [2]string { return [2]string{} },
	"pebble": func(t *testing.T) [2]string { return [2]string{t.TempDir(), t.TempDir()} },
	"postgres": func(t *testing.T) [2]string {
		s := pgtest.Start(t, nil)
		return [2]string{s.URL(s.Database(t)), s.URL(s.Database(t))}
	},
	"redis": func(t *testing.T) [2]string {
		// When a server rewrites its file is chance, and a turn beside that has half the speed.
		url := redistest.Start(t, "always", "auto-aof-rewrite-percentage", "0").URL()
		return [2]string{url, url}
	},
}

// build builds the load in the tree of a commit, or in this one, and returns the program.
func build(t *testing.T, commit string) string {
	t.Helper()
	tree, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if commit != "" {
		other := filepath.Join(t.TempDir(), "tree")
		output(t, tree, "git", "worktree", "add", "--detach", other, commit)
		t.Cleanup(func() { output(t, tree, "git", "worktree", "remove", "--force", other) })
		dir := filepath.Join(other, "bench", "against", "pair")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile("pair/main.go")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		tree = other
	}
	program := filepath.Join(t.TempDir(), "pair")
	output(t, tree, "go", "build", "-o", program, "./bench/against/pair")
	return program
}

// begin starts a load, which waits for its turns.
func begin(t *testing.T, program string, args ...string) *side {
	t.Helper()
	s := &side{cmd: exec.Command(program, args...)}
	s.cmd.Stderr = t.Output()
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, json.NewDecoder(out)
	return s
}

// turn has the load take a turn.
func (s *side) turn(t *testing.T, measured bool) {
	t.Helper()
	_, err := io.WriteString(s.in, "\n")
	if err == nil {
		err = s.out.Decode(s)
	}
	if err != nil || s.PerSec == 0 {
		t.Fatalf("%s does %v a second: %v", s.cmd, s.PerSec, err)
	}
	if measured {
		s.perSec, s.cpu, s.allocs = append(s.perSec, s.PerSec), append(s.cpu, s.CPU), append(s.allocs, s.Allocs)
	}
}

func (s *side) end(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.in.Close(), s.cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, dir, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%s %s: %v: %s", program, args, err, failed.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return out
}
