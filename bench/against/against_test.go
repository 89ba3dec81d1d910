package against

import (
	"encoding/json"
	"flag"
	"fmt"
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
	duration = flag.Duration("against.duration", 50*time.Millisecond, "how long each side is measured in a round")
	rounds   = flag.Int("against.rounds", 1, "turns that each side takes")
	stores   = flag.String("against.stores", "memory,pebble", "stores to compare on")
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// measured is what package pair prints.
type measured struct {
	PerSec float64 `json:"per_sec"`
	CPU    float64 `json:"cpu_us"`
	Allocs float64 `json:"allocs"`
}

// TestAgainst compares. It fails if a load fails, never because of a ratio.
func TestAgainst(t *testing.T) {
	ours, theirs := build(t, ""), build(t, *commit)
	// The table of bench/peers/README.md. Figures are the medians of all rounds.
	fmt.Println("| store | callers | operations a second, theirs | ours | ratio, by round | processor time of one, theirs | ours | ratio | allocations, theirs | ours |\n|---|---|---|---|---|---|---|---|---|---|")
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
			args := []string{"-store", store, "-callers", strconv.Itoa(load.callers), "-hot", strconv.Itoa(load.hot), "-duration", duration.String()}
			var speed []float64
			var all [2]struct{ perSec, cpu, allocs []float64 }
			for round := range *rounds {
				var m [2]measured
				// ABBA, so that changes on the machine affect both sides alike.
				for turn := range 2 {
					side := (round + turn) % 2
					m[side] = run(t, [...]string{ours, theirs}[side], append(args, "-at", at[side], "-name", [...]string{"ours", "theirs"}[side])...)
					a := &all[side]
					a.perSec, a.cpu, a.allocs = append(a.perSec, m[side].PerSec), append(a.cpu, m[side].CPU), append(a.allocs, m[side].Allocs)
				}
				speed = append(speed, m[0].PerSec/m[1].PerSec)
			}
			o, th := &all[0], &all[1]
			fmt.Printf("| %s | %s | %.0f | %.0f | %.2f %.2f | %.1f µs | %.1f µs | %.2f | %.1f | %.1f |\n", store, load.name,
				turns.Median(th.perSec), turns.Median(o.perSec), turns.Median(slices.Clone(speed)), speed,
				turns.Median(th.cpu), turns.Median(o.cpu), turns.Median(o.cpu)/turns.Median(th.cpu), turns.Median(th.allocs), turns.Median(o.allocs))
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

// run runs a load for one round.
func run(t *testing.T, program string, args ...string) (m measured) {
	t.Helper()
	if err := json.Unmarshal(output(t, "", program, args...), &m); err != nil {
		t.Fatal(err)
	}
	if m.PerSec == 0 {
		t.Fatalf("%s did nothing", args)
	}
	return m
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
