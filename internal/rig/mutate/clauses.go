package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
)

var errUnnoticed = errors.New("faults in internal/rig/clause/faults.tsv that their tests don't notice: a clause is not proved by a test that passes without it")

// chosen selects the faults of clauses that begin with one of the prefixes. If tenth isn't
// negative, it takes every tenth of the list, starting at its remainder.
func chosen(all []clause.Fault, prefixes string, tenth int) []clause.Fault {
	var picked []clause.Fault
	for i, f := range all {
		begins := func(prefix string) bool { return strings.HasPrefix(f.Clause, prefix) }
		if slices.ContainsFunc(strings.Split(prefixes, ","), begins) && (tenth < 0 || i%10 == tenth%10) {
			picked = append(picked, f)
		}
	}
	return picked
}

// breakClauses plants each fault and runs its test, which must fail. All faults of the module are
// in one build of each package's tests, each under a condition that one process fulfils.
func breakClauses(ctx context.Context, root string, faults []clause.Fault, w io.Writer) error {
	work, err := os.MkdirTemp("", "semel-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	r := &rigged{root: root, work: work, alone: map[string]string{}, built: map[string]string{}, took: map[string]time.Duration{}}
	if err := r.plant(faults); err != nil {
		return err
	}
	// The tests of one package after the other, so that each is built once and the cache serves it.
	ordered := slices.Clone(faults)
	slices.SortStableFunc(ordered, func(a, b clause.Fault) int { return cmp.Compare(a.Package, b.Package) })
	unnoticed := 0
	for i := range ordered {
		f := &ordered[i]
		started := time.Now()
		v, err := r.judge(ctx, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Clause, err)
		}
		if v == survived {
			unnoticed++
		}
		fmt.Fprintf(w, "%d/%d\t%s\t%s\t%s %s\t%.1f s\n", i+1, len(ordered), f.Clause, v, f.Package, f.Test, time.Since(started).Seconds())
	}
	fmt.Fprintf(w, "%d faults, %d not noticed\n", len(ordered), unnoticed)
	if unnoticed > 0 {
		return errUnnoticed
	}
	return nil
}

// rigged is the module with faults planted.
type rigged struct {
	root, work string
	none       string            // an overlay that changes nothing
	overlay    string            // with all faults that are under a condition
	alone      map[string]string // overlays of single faults, by clause
	built      map[string]string // test binaries by package and overlay
	took       map[string]time.Duration
}

// plant writes the files with faults, and the overlays that put them in place.
func (r *rigged) plant(faults []clause.Fault) error {
	byFile := map[string][]clause.Fault{}
	for _, f := range faults {
		byFile[f.File] = append(byFile[f.File], f)
	}
	replace := map[string]string{}
	for file, of := range byFile {
		src, err := os.ReadFile(r.place(file))
		if err != nil {
			return err
		}
		s, err := guard(src, of)
		if err != nil {
			return err
		}
		if replace[r.place(file)], err = r.write(s.text); err != nil {
			return err
		}
		if replace[r.place(selectorName(file))], err = r.write(fmt.Appendf(nil, selector, s.pkg)); err != nil {
			return err
		}
		for id, text := range s.alone {
			with, err := r.write(text)
			if err != nil {
				return err
			}
			if r.alone[id], err = r.writeOverlay(map[string]string{r.place(file): with}); err != nil {
				return err
			}
		}
	}
	var err error
	if r.none, err = r.writeOverlay(map[string]string{}); err != nil {
		return err
	}
	r.overlay, err = r.writeOverlay(replace)
	return err
}

func (r *rigged) place(file string) string { return filepath.Join(r.root, filepath.FromSlash(file)) }

func (r *rigged) write(text []byte) (string, error) {
	f, err := os.CreateTemp(r.work, "*.go")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	return f.Name(), errors.Join(err, f.Close())
}

func (r *rigged) writeOverlay(replace map[string]string) (string, error) {
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	return r.write(text)
}

// judge runs the test of a fault, first as the source is and then with the fault.
func (r *rigged) judge(ctx context.Context, f *clause.Fault) (verdict, error) {
	overlay, whole := r.overlay, r.overlay
	if alone := r.alone[f.Clause]; alone != "" {
		overlay, whole = alone, r.none
	}
	test := f.Package + " " + f.Test
	if _, done := r.took[test]; !done {
		began := time.Now()
		if out, err := r.run(ctx, f, whole, "", time.Hour); err != nil {
			return "", fmt.Errorf("its test %s does not pass on the source as it is: %w\n%s", test, err, end(out))
		}
		r.took[test] = time.Since(began)
	}
	limit := max(slower*r.took[test], time.Minute)
	out, err := r.run(ctx, f, overlay, f.Clause, limit)
	switch _, failed := errors.AsType[*exec.ExitError](err); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		return survived, nil
	case !failed:
		return "", err
	case bytes.Contains(out, []byte("panic: test timed out")):
		return tooLong, nil
	}
	return killed, nil
}

// run runs one test of a package that has been built with an overlay. Programs that the test
// builds have the overlay too.
func (r *rigged) run(ctx context.Context, f *clause.Fault, overlay, broken string, limit time.Duration) ([]byte, error) {
	dir := filepath.Join(r.root, filepath.FromSlash(f.Package))
	binary := r.built[f.Package+overlay]
	if binary == "" {
		binary = filepath.Join(r.work, fmt.Sprintf("%d.test", len(r.built)))
		build := goCommand(ctx, r.root, "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, f.Package)
		if out, err := build.CombinedOutput(); err != nil {
			// Not wrapped: a fault that doesn't compile is not one that a test notices.
			return nil, fmt.Errorf("%s with its faults: %v\n%s", f.Package, err, end(out))
		}
		r.built[f.Package+overlay] = binary
	}
	bounded, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(bounded, binary, "-test.run", pattern(f.Test), "-test.failfast", "-test.timeout", limit.String(), "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), chosenFault+"="+broken, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	ownGroup(cmd)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("--- PASS: "+f.Test)) {
		return out, fmt.Errorf("%s has no %s that runs here", f.Package, f.Test)
	}
	return out, err
}

// pattern is the argument of -test.run for one test or subtest.
func pattern(test string) string {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(names, "/")
}

// end is the last part of what a command printed.
func end(out []byte) []byte {
	const limit = 4000
	return out[max(0, len(out)-limit):]
}
