package pebblestore

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// Each operation on a file, from opening a directory that was not closed to
// closing it, fails once, one in each run: reads, writes, syncs, renames and all.
// Whatever the store makes of that, what it had acknowledged is on the disk.
func TestNoFailureOfOneFileOperationLosesWhatWasAcknowledged(t *testing.T) {
	seed := newSeed(t)
	base := t.TempDir()
	before := newHistory(0)
	c := startChild(t, orders{Dir: base, Seed: seed, Steps: math.MaxInt})
	follower{answers: 300}.follow(t, c, before)
	c.ended(t)

	step := max(1, int64(1000/thorough.Scaled(1000)))
	ends := map[string]int{}
	kinds := map[string]int{}
	for n := int64(1); ; n += step {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
			t.Fatal(err)
		}
		h := before.clone()
		c := startChild(t, orders{Dir: dir, Run: 1, Seed: seed, Steps: 10, Forgets: true, Fault: faultOnce, From: n})
		r := follower{afterStart: time.Minute}.follow(t, c, h)
		code := c.ended(t)
		if r.fault == "" {
			if code != codeDone {
				t.Fatalf("nothing failed and the child ended with code %d:\n%s", code, c.stderr.String())
			}
			t.Logf("%d operations, each failed once, of %d kinds; the store ended %v", n-1, len(kinds), ends)
			wanted := 8 // of the kinds of operation
			if step > 5 {
				wanted = 3
			}
			if n < 50 || len(kinds) < wanted || ends["by ending the process"]+ends["by not opening"] == 0 {
				t.Error("too little has happened to prove anything")
			}
			return
		}
		end := map[int]string{
			codeDone: "as if nothing had happened", codeFatal: "by ending the process", codePanic: "with a panic in Pebble",
			codeOpen: "by not opening", codeError: "with an error to a caller", codeClose: "with an error to Close",
		}[code]
		ends[end]++
		kind, _, _ := strings.Cut(r.fault, "/")
		kinds[kind]++
		if end == "" || code == codePanic && !strings.Contains(c.stderr.String(), "cockroachdb/pebble") {
			t.Fatalf("operation %d, %q, failed and the child ended with code %d:\n%s", n, r.fault, code, c.stderr.String())
		}
		intact(t, dir, h)
		if t.Failed() {
			t.Fatalf("operation %d, %q, had failed and the store ended %s", n, r.fault, end)
		}
	}
}

// intact holds what is in a directory against a history.
func intact(t *testing.T, dir string, h *history) {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Error(err)
		return
	}
	stored, err := inspect(t.Context(), s)
	if err == nil {
		err = h.compare(stored)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Error(err)
	}
}

// When the disk fails for good the process ends at once, so that nobody is told
// anything that may not be true.
func TestAFailingDiskEndsTheProcess(t *testing.T) {
	for _, fault := range []string{faultSync, faultFull} {
		t.Run(fault, func(t *testing.T) {
			seed := newSeed(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			for range max(thorough.Scaled(20), 3) {
				dir := t.TempDir()
				h := newHistory(0)
				c := startChild(t, orders{Dir: dir, Seed: rng.Uint64(), Steps: math.MaxInt, Forgets: true, Fault: fault, From: 1 + rng.Int64N(200)})
				r := follower{afterStart: time.Minute}.follow(t, c, h)
				if code := c.ended(t); code != codeFatal || !strings.Contains(c.stderr.String(), "the disk can no longer be trusted") {
					t.Fatalf("the child ended with code %d:\n%s", code, c.stderr.String())
				}
				if r.fault == "" {
					t.Fatal("the disk did not fail")
				}
				if len(r.toldLater) > 0 {
					t.Fatalf("calls that began when the disk had failed were answered: %q", r.toldLater)
				}
				intact(t, dir, h)
			}
		})
	}
}
