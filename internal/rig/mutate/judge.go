package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// verdict is the result of testing a mutant.
type verdict string

const (
	killed   verdict = "killed"
	survived verdict = "survived"
	broken   verdict = "did not compile"
	tooLong  verdict = "timed out" // counts as killed
)

// judge runs tests on mutants.
type judge struct {
	root string
	// work is a directory for overlays.
	work string
	// took is how long each run of tests takes on the unchanged source.
	took map[run]time.Duration
	// patience is how long tests may take at least.
	patience time.Duration
	// said is the end of the output of the last tests that failed.
	said string
}

// run is one run of the tests of a package.
type run struct {
	pkg string
	// whole means without -short.
	whole bool
}

// runs are the runs that judge the mutants of a target: the short tests of all its guards,
// fastest first, and then all of its own tests.
func (j *judge) runs(t *target) []run {
	var all []run
	for _, pkg := range t.guards {
		all = append(all, run{pkg, false})
	}
	slices.SortStableFunc(all, func(a, b run) int { return cmp.Compare(j.took[a], j.took[b]) })
	return append(all, run{t.guards[0], true})
}

// slower is how many times longer tests may take on a mutant than on the unchanged source,
// because the machine may be busy.
const slower = 5

// measure runs the tests that judge a target on the unchanged source. They must pass.
func (j *judge) measure(ctx context.Context, t *target) error {
	for _, r := range j.runs(t) {
		if _, done := j.took[r]; done {
			continue
		}
		start := time.Now()
		if v, by, err := j.test(ctx, r, "", time.Hour); err != nil {
			return err
		} else if v != survived {
			return fmt.Errorf("the tests do not pass on the source as it is: %s by %s\n%s", v, by, j.said)
		}
		j.took[r] = time.Since(start)
	}
	return nil
}

// of judges one mutant: does it compile, and which test fails?
func (j *judge) of(ctx context.Context, m *mutation) (v verdict, by string, err error) {
	overlay, err := j.overlay(m)
	if err != nil {
		return "", "", err
	}
	build := j.command(ctx, "build", "-overlay", overlay, m.target.pkg)
	if out, err := build.CombinedOutput(); ctx.Err() != nil {
		return "", "", ctx.Err()
	} else if err != nil {
		return broken, strings.ReplaceAll(lastLine(out), j.work+string(filepath.Separator), ""), nil
	}
	for _, r := range j.runs(m.target) {
		v, by, err := j.test(ctx, r, overlay, max(slower*j.took[r], j.patience))
		if err != nil || v != survived {
			return v, by, err
		}
	}
	return survived, "", nil
}

// overlay writes the mutated file, and an overlay that puts it in place of the original.
func (j *judge) overlay(m *mutation) (string, error) {
	root, err := filepath.Abs(j.root)
	if err != nil {
		return "", err
	}
	file := filepath.Join(j.work, "mutant.go")
	if err := os.WriteFile(file, m.apply(), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, filepath.FromSlash(m.file)): file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(j.work, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// test runs the tests of a package until the first fails.
func (j *judge) test(ctx context.Context, r run, overlay string, limit time.Duration) (v verdict, by string, err error) {
	args := []string{"test", "-json", "-failfast", "-count=1", "-vet=off", "-timeout", limit.String()}
	if !r.whole {
		args = append(args, "-short")
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	// Tests end at their own time limit; this is for a process that doesn't.
	bounded, cancel := context.WithTimeout(ctx, limit+2*time.Minute)
	defer cancel()
	cmd := j.command(bounded, append(args, r.pkg)...)
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case err == nil:
		return survived, "", nil
	case bounded.Err() != nil:
		return tooLong, r.pkg, nil
	}
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		return "", "", err
	}
	events := parseEvents(out)
	j.said = lastWords(events)
	name, late := firstFailed(events)
	if late {
		return tooLong, r.pkg + " " + name, nil
	}
	return killed, strings.TrimSpace(r.pkg + " " + name), nil
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

func parseEvents(out []byte) (events []event) {
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) == nil {
			events = append(events, e)
		}
	}
	return events
}

// firstFailed is the first test that failed, or the one that was running when the process
// ended or time was up.
func firstFailed(events []event) (test string, late bool) {
	running, crashed := "", false
	for _, e := range events {
		switch {
		case e.Action == "run":
			running = e.Test
		case strings.HasPrefix(e.Output, "panic: test timed out"):
			return running, true
		case strings.HasPrefix(e.Output, "panic: "), strings.HasPrefix(e.Output, "fatal error: "):
			crashed = true
		case e.Action == "fail" && e.Test != "":
			return e.Test, false
		}
	}
	if crashed {
		return running, false
	}
	return "", false
}

func (j *judge) command(ctx context.Context, args ...string) *exec.Cmd {
	return goCommand(ctx, j.root, args...)
}

// goCommand is a go command that is killed with all its children when ctx ends.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	ownGroup(cmd)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// lastWords are the last lines that the tests printed.
func lastWords(events []event) string {
	var words []byte
	for _, e := range events {
		words = append(words, e.Output...)
	}
	return string(end(words))
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
