package main

import (
	"fmt"
	"strings"
)

// survivors are the mutations that are known to be noticed by no test, with the reason
// why that is accepted, by their keys.
type survivors map[string]string

// parseSurvivors reads lines of file, function, mutation and reason, between tabs.
// Empty lines and those that begin with # say nothing.
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

// comparison is what a run says about the known survivors.
type comparison struct {
	fresh []string // that survived and are not known
	dead  []string // that are known and were killed
	gone  []string // that are known, of files that were looked at, and are no mutations any more
}

// compare holds the results of a run against the known survivors. existing are the keys
// of all mutations of the files that were looked at.
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
