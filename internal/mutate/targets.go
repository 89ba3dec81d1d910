package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A target is a package whose source is mutated.
type target struct {
	pkg   string // as the go command is given it
	files []string
	// guards are the packages whose tests ought to notice, its own first.
	guards []string
}

// targets are what decides and what writes.
var targets = []target{
	{
		".",
		[]string{
			"apply.go", "attach.go", "attempt.go", "begin.go", "compensate.go", "confirm.go", "decide.go", "do.go", "dotx.go",
			"effect.go", "epoch.go", "outbox.go", "purge.go", "reconcile.go", "release.go", "renew.go", "settle.go", "state.go",
			"sweep.go", "throttle.go", "tx.go", "wait.go", "waiters.go",
		},
		[]string{".", "./store/memstore", "./dispatch"},
	},
	{"./store/memstore", []string{"memstore.go", "due.go"}, []string{"./store/memstore", "."}},
	{"./store/pebblestore", []string{"apply.go", "commit.go", "due.go", "purge.go"}, []string{"./store/pebblestore", "."}},
	{"./store/pgstore", []string{"commit.go", "send.go", "statements.go", "op.go", "tx.go"}, []string{"./store/pgstore"}},
	{"./store/redisstore", []string{"batch.go", "write.go", "scripts.go", "stage.go"}, []string{"./store/redisstore"}},
}

// selected are the targets that the patterns name: packages, or with /... at the end
// also those below.
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

// mutant is a mutation with what has to be known to judge it.
type mutant struct {
	mutation
	target *target
	src    []byte // the file as it is
}

// mutants finds all of a target, file by file.
func mutants(root string, t *target) ([][]mutant, error) {
	var files [][]mutant
	for _, name := range t.files {
		file := path.Join(path.Clean(t.pkg), name)
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		found, err := mutationsOf(file, src)
		if err != nil {
			return nil, err
		}
		all := make([]mutant, len(found))
		for i, m := range found {
			all[i] = mutant{m, t, src}
		}
		files = append(files, all)
	}
	return files, nil
}
