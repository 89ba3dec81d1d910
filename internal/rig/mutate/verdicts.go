package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// judged reads the verdicts of an earlier run from a file, so that a run can be resumed. Each
// line begins with the digest of the mutated file, because the verdict only holds for that
// source.
func judged(name string) (map[string]verdict, error) {
	before := map[string]verdict{}
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return before, nil
	}
	for line := range strings.Lines(string(text)) {
		// The last line of a run that was killed may be cut off: it is judged again.
		if f := strings.Split(line, "\t"); len(f) > 2 && strings.HasSuffix(line, "\n") {
			before[f[0]] = verdict(f[1])
		}
	}
	return before, err
}

func digest(m *mutation) string {
	sum := sha256.Sum256(append([]byte(m.file+"\x00"), m.apply()...))
	return hex.EncodeToString(sum[:8])
}

// survivors are the known survivors by their keys, with the reasons why they are accepted.
type survivors map[string]string

// parseSurvivors reads lines of file, function, mutation and reason, between tabs.
// Empty lines and lines that begin with # are ignored.
func parseSurvivors(text string) (survivors, error) {
	known := survivors{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || strings.TrimSpace(fields[3]) == "" {
			return nil, fmt.Errorf("line %d has not four fields between tabs: file, function, mutation, reason", n)
		}
		key := strings.Join(fields[:3], "\t")
		if _, twice := known[key]; twice {
			return nil, fmt.Errorf("line %d names the mutation of an earlier line", n)
		}
		known[key] = fields[3]
	}
	return known, nil
}

// comparison is the result of a run against the known survivors.
type comparison struct {
	fresh []string // survived, and aren't known
	dead  []string // known, and were killed
	gone  []string // known, but no longer mutations of the files that were judged
}

// compare compares the results of a run with the known survivors. existing has the keys of all
// mutations of the files that were judged.
func (known survivors) compare(results map[string]verdict, existing map[string]bool, files map[string]bool) comparison {
	var c comparison
	for key, v := range results {
		_, ok := known[key]
		switch {
		case v == survived && !ok:
			c.fresh = append(c.fresh, key)
		case v != survived && ok:
			c.dead = append(c.dead, key)
		}
	}
	for key := range known {
		if file, _, _ := strings.Cut(key, "\t"); files[file] && !existing[key] {
			c.gone = append(c.gone, key)
		}
	}
	return c
}
