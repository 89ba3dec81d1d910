package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A target is a package to mutate.
type target struct {
	pkg   string // the argument of the go command
	files []string
	// guards are the packages with the tests that ought to notice, its own first.
	guards []string
}

// targets are the packages that decide and those that write.
var targets = []target{
	{
		".",
		[]string{
			"answer.go", "apply.go", "attach.go", "attempt.go", "compensate.go", "confirm.go", "decide.go", "delivery.go", "do.go",
			"effect.go", "lease.go", "outbox.go", "purge.go", "quota.go", "sequence.go", "settle.go", "state.go",
			"sweep.go", "turns.go", "tx.go", "unverified.go", "wait.go",
		},
		[]string{".", "./internal/enginetest", "./store/memstore", "./dispatch"},
	},
	{"./internal/engine/erasure", []string{"erasure.go"}, []string{"./internal/engine/erasure", "./internal/enginetest"}},
	{"./internal/engine/line", []string{"line.go"}, []string{"./internal/engine/line", "."}},
	{"./internal/engine/pacing", []string{"pacing.go"}, []string{"./internal/engine/pacing", "./internal/enginetest"}},
	{"./internal/engine/ratelimit", []string{"quota.go", "table.go"}, []string{"./internal/engine/ratelimit", "./internal/enginetest"}},
	{"./internal/engine/renewal", []string{"renewal.go"}, []string{"./internal/engine/renewal", "./internal/enginetest"}},
	{"./internal/engine/waiting", []string{"latency.go", "seats.go", "wake.go", "watch.go"}, []string{"./internal/engine/waiting", "./internal/enginetest"}},
	{"./store/memstore", []string{"memstore.go"}, []string{"./store/memstore", "./internal/enginetest"}},
	{"./internal/dueindex", []string{"dueindex.go"}, []string{"./internal/dueindex", "./store/memstore"}},
	{"./store/pebblestore", []string{"absent.go", "apply.go", "commit.go", "due.go", "purge.go"}, []string{"./store/pebblestore", "./internal/enginetest"}},
	{"./store/pgstore", []string{"write.go", "op.go", "statements.go", "outcome.go", "tx.go"}, []string{"./store/pgstore"}},
	{"./store/redisstore", []string{"write.go", "scripts.go", "index.go", "list.go"}, []string{"./store/redisstore"}},
	{"./internal/gather", []string{"queue.go"}, []string{"./internal/gather", "./store/redisstore"}},
	{"./internal/offsetclock", []string{"clock.go", "note.go", "reckoning.go"}, []string{"./internal/offsetclock", "./store/redisstore"}},
	{"./dispatch", []string{"breaker.go", "deliver.go", "lane.go", "lanework.go", "scan.go"}, []string{"./dispatch"}},
	{"./door", []string{"runner.go"}, []string{"./door", "./door/semelhttp"}},
	{"./client", []string{"do.go", "execution.go"}, []string{"./client"}},
}

// selected are the targets that match the patterns: packages, or with /... at the end also
// the packages below.
func selected(all []target, patterns string) ([]target, error) {
	if patterns == "" {
		return all, nil
	}
	var chosen []target
	for pattern := range strings.SplitSeq(patterns, ",") {
		dir, below := strings.CutSuffix(pattern, "...")
		dir = path.Clean(dir)
		n := len(chosen)
		for _, t := range all {
			p := path.Clean(t.pkg)
			if p == dir || below && (dir == "." || strings.HasPrefix(p, dir+"/")) {
				chosen = append(chosen, t)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("%s names none of the packages that are mutated", pattern)
		}
	}
	slices.SortStableFunc(chosen, func(a, b target) int { return strings.Compare(a.pkg, b.pkg) })
	return slices.CompactFunc(chosen, func(a, b target) bool { return a.pkg == b.pkg }), nil
}

// mutants finds all mutants of a target, file by file.
func mutants(root string, t *target) ([][]mutation, error) {
	var files [][]mutation
	for _, name := range t.files {
		file := path.Join(path.Clean(t.pkg), name)
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		all, err := mutationsOf(file, src)
		if err != nil {
			return nil, err
		}
		for i := range all {
			all[i].target = t
		}
		files = append(files, all)
	}
	return files, nil
}

// pick chooses up to n mutants, the same number from each file if it has that many. Which ones
// it takes from a file depends only on the seed and the file.
func pick(files [][]mutation, n int, seed uint64) []mutation {
	shuffled := make([][]mutation, 0, len(files))
	for _, all := range files {
		if len(all) == 0 {
			continue
		}
		name := fnv.New64a()
		_, _ = name.Write([]byte(all[0].file)) // which never fails
		rng := rand.New(rand.NewPCG(seed, name.Sum64()))
		mixed := make([]mutation, len(all))
		for i, j := range rng.Perm(len(all)) {
			mixed[i] = all[j]
		}
		shuffled = append(shuffled, mixed)
	}
	// With fewer than one for each file, another seed takes other files.
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var chosen []mutation
	for round := 0; len(chosen) < n; round++ {
		before := len(chosen)
		for _, all := range shuffled {
			if round < len(all) && len(chosen) < n {
				chosen = append(chosen, all[round])
			}
		}
		if len(chosen) == before {
			break
		}
	}
	return chosen
}
