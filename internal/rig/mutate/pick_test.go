package main

import (
	"fmt"
	"slices"
	"testing"
)

// someFiles are so many mutants for each of the files a, b, c and so on.
func someFiles(counts ...int) [][]mutation {
	files := make([][]mutation, len(counts))
	for i, n := range counts {
		for k := range n {
			files[i] = append(files[i], mutation{file: string(rune('a' + i)), fn: "f", what: fmt.Sprint(k)})
		}
	}
	return files
}

func keysOf(picked []mutation) []string {
	keys := make([]string, len(picked))
	for i := range picked {
		keys[i] = picked[i].key()
	}
	return keys
}

func TestPick(t *testing.T) {
	files := someFiles(100, 3, 50, 0)
	t.Run("the same seed picks the same, another seed others", func(t *testing.T) {
		a, b, c := keysOf(pick(files, 20, 1)), keysOf(pick(files, 20, 1)), keysOf(pick(files, 20, 2))
		if !slices.Equal(a, b) || slices.Equal(a, c) {
			t.Errorf("%q\n%q\n%q", a, b, c)
		}
	})
	t.Run("every file has its share, and none is picked twice", func(t *testing.T) {
		count, seen := map[string]int{}, map[string]bool{}
		for _, m := range pick(files, 23, 1) {
			if count[m.file]++; seen[m.key()] {
				t.Errorf("%s twice", m.key())
			}
			seen[m.key()] = true
		}
		if count["a"] != 10 || count["b"] != 3 || count["c"] != 10 {
			t.Errorf("got %v", count)
		}
	})
	t.Run("no more than there are", func(t *testing.T) {
		if n := len(pick(files, 1000, 1)); n != 153 {
			t.Errorf("%d", n)
		}
	})
	t.Run("what is picked of a file does not depend on the others", func(t *testing.T) {
		of := func(picked []mutation, file string) (keys []string) {
			for _, m := range picked {
				if m.file == file {
					keys = append(keys, m.key())
				}
			}
			return keys
		}
		alone, among := of(pick(files[:1], 10, 7), "a"), of(pick(files, 23, 7), "a")
		if !slices.Equal(alone, among) {
			t.Errorf("%q\n%q", alone, among)
		}
	})
}

func TestSelected(t *testing.T) {
	all := []target{{pkg: "."}, {pkg: "./store/a"}, {pkg: "./store/b"}}
	for patterns, want := range map[string][]string{
		"":                    {".", "./store/a", "./store/b"},
		"./":                  {"."},
		".":                   {"."},
		"./...":               {".", "./store/a", "./store/b"},
		"./store/...":         {"./store/a", "./store/b"},
		"store/b,.,./store/b": {".", "./store/b"},
	} {
		got, err := selected(all, patterns)
		if err != nil {
			t.Fatal(err)
		}
		var pkgs []string
		for _, x := range got {
			pkgs = append(pkgs, x.pkg)
		}
		if !slices.Equal(pkgs, want) {
			t.Errorf("%q: %q", patterns, pkgs)
		}
	}
	for _, patterns := range []string{"./server", "./store", "./store/a,x"} {
		if got, err := selected(all, patterns); err == nil {
			t.Errorf("%q: %v", patterns, got)
		}
	}
}
