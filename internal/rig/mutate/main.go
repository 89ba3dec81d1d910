package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
)

// known is the file of the known survivors.
const known = "scripts/mutate.survivors"

// options are the flags.
type options struct {
	n        int
	seed     uint64
	packages string
	list     bool
	out      string
	patience time.Duration
	clauses  string
	tenth    int
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 200, "how many mutants are judged")
	flag.Uint64Var(&o.seed, "seed", 1, "what the choice follows from")
	flag.StringVar(&o.packages, "packages", "", "whose mutants: packages between commas, with /... those below; all by default")
	flag.BoolVar(&o.list, "list", false, "show the mutants that would be judged, and judge none")
	flag.StringVar(&o.out, "out", "", "`file` to keep the list in: those that are in it are not judged again")
	flag.DurationVar(&o.patience, "patience", time.Minute, "how long tests may always take; beyond it, five times what they take without the mutation")
	flag.StringVar(&o.clauses, "clauses", "", "judge the faults of clauses instead: those that begin with one of these, between commas, or all")
	flag.IntVar(&o.tenth, "tenth", -1, "with -clauses, only every tenth, beginning with this one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	judge := func() error { return mutate(ctx, ".", targets, o, os.Stdout) }
	if o.clauses != "" {
		faults := chosen(clause.Faults(), strings.TrimPrefix(o.clauses, "all"), o.tenth)
		judge = func() error { return breakClauses(ctx, ".", faults, os.Stdout) }
	}
	if err := judge(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

var errSurvivors = errors.New("mutants survived that " + known + " does not name: write the test that is missing, or say there why none is needed")

// mutate judges mutants of the module in root.
func mutate(ctx context.Context, root string, all []target, o options, w io.Writer) error {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(known)))
	if err != nil {
		return err
	}
	survivors, err := parseSurvivors(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", known, err)
	}
	chosen, err := selected(all, o.packages)
	if err != nil {
		return err
	}
	var files [][]mutation
	existing, looked := map[string]bool{}, map[string]bool{}
	for i := range chosen {
		found, err := mutants(root, &chosen[i])
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		for i := range file {
			existing[file[i].key()], looked[file[i].file] = true, true
		}
	}
	picked := pick(files, o.n, o.seed)
	if o.list {
		for i := range picked {
			fmt.Fprintln(w, &picked[i])
		}
		return nil
	}
	results, err := judgeAll(ctx, root, picked, o, w)
	if err != nil {
		return err
	}
	return report(w, results, survivors.compare(results, existing, looked))
}

// judgeAll judges the mutants one after the other, and prints each verdict.
func judgeAll(ctx context.Context, root string, picked []mutation, o options, w io.Writer) (map[string]verdict, error) {
	work, err := os.MkdirTemp("", "semel-mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	j := &judge{root: root, work: work, took: map[run]time.Duration{}, patience: o.patience}
	before, journal := map[string]verdict{}, io.Discard
	if o.out != "" {
		if before, err = judged(o.out); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(o.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		journal = f
	}
	results := map[string]verdict{}
	for i := range picked {
		m := &picked[i]
		v, done := before[digest(m)]
		if !done {
			if err := j.measure(ctx, m.target); err != nil {
				return nil, err
			}
			var by string
			if v, by, err = j.of(ctx, m); err != nil {
				return nil, err
			}
			if _, err := fmt.Fprintf(journal, "%s\t%s\t%s\t%s\n", digest(m), v, m, by); err != nil {
				return nil, err
			}
			fmt.Fprintf(w, "%d/%d\t%s\t%s\t%s\n", i+1, len(picked), v, m, by)
		}
		results[m.key()] = v
	}
	return results, nil
}

// report sums up a run. Survivors that are not known are an error.
func report(w io.Writer, results map[string]verdict, c comparison) error {
	count := map[verdict]int{}
	for _, v := range results {
		count[v]++
	}
	fmt.Fprintf(w, "%d mutants: %d killed, %d timed out, %d survived, %d did not compile\n",
		len(results), count[killed], count[tooLong], count[survived], count[broken])
	for _, part := range []struct {
		what string
		keys []string
	}{
		{"survived, and not known:", c.fresh},
		{"known as survivors, and noticed now; remove them from " + known + ":", c.dead},
		{"known as survivors, and not in the source any more; remove them from " + known + ":", c.gone},
	} {
		if len(part.keys) == 0 {
			continue
		}
		fmt.Fprintln(w, part.what)
		slices.Sort(part.keys)
		for _, key := range part.keys {
			fmt.Fprintln(w, key)
		}
	}
	if len(c.fresh) > 0 {
		return errSurvivors
	}
	return nil
}
