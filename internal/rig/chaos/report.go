//go:build linux

package chaos

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// Report has what a run did and found.
type Report struct {
	history.Summary

	Store   string
	Seed    uint64
	Seconds float64 // of load and faults, without what comes before and after
	Nodes   int
	// Faults counts the faults that affected something, Skipped says why others can't be
	// injected on this machine.
	Faults  map[string]int
	Skipped map[string]string
	// Recovery is how long each node took to take a call again, after each of the trials at
	// the end.
	Recovery []Recovery
	// Peak is the most memory that each node used.
	Peak       map[string]usage
	Violations []history.Violation
	// Excused are the violations that an earlier program may have caused, see
	// [history.Log.Earlier], and Examples the histories of the first of each rule.
	Excused  []history.Violation
	Examples map[string]string
	// Histories of the calls that break a rule.
	Histories []string
	// Dir has the nodes' logs; it stays if there were violations.
	Dir string
}

// OK reports whether no rule was broken.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Repeat is the command that repeats the run: the same calls and the same faults in
// the same order, as far as the machine allows.
func (r *Report) Repeat() string {
	return fmt.Sprintf("go test ./internal/rig/chaos -v -run TestChaos -timeout 1h -chaos.store %s -chaos.seed %d -chaos.duration %v",
		r.Store, r.Seed, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
}

// Share is the share of calls that were held although nothing had happened, in percent.
func (r *Report) Share() float64 {
	if r.Keys == 0 {
		return 0
	}
	return 100 * float64(r.HeldWithout) / float64(r.Keys)
}

// maxHistories is how many are printed.
const maxHistories = 10

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, seed %d, %.0f s, %d nodes: %d calls, %d requests, %d effects, %d faults of %d kinds\n",
		r.Store, r.Seed, r.Seconds, r.Nodes, r.Keys, r.Requests, r.Effects, sum(r.Faults), len(r.Faults))
	fmt.Fprintf(w, "  faults: %s\n", counts(r.Faults))
	for _, name := range sorted(r.Skipped) {
		fmt.Fprintf(w, "  SKIPPED %s: %s\n", name, r.Skipped[name])
	}
	fmt.Fprintf(w, "  answers: %s\n", counts(r.Words))
	fmt.Fprintf(w, "  held: %d, %d of them without an effect (%.2f %% of all calls); why: %s\n", r.Held, r.HeldWithout, r.Share(), counts(r.Reasons))
	if r.Early > 0 {
		fmt.Fprintf(w, "  held before a lease had passed: %d\n", r.Early)
	}
	for _, x := range r.Recovery {
		for i, took := range x.Took {
			fmt.Fprintf(w, "  %s took a call after %v: %s\n", nodeName(i+1), took.Round(time.Millisecond), x.After)
		}
	}
	for _, name := range sorted(r.Peak) {
		fmt.Fprintf(w, "  %s took %d MiB, %d threads, %d files at most\n", name, r.Peak[name].Memory>>20, r.Peak[name].Threads, r.Peak[name].Files)
	}
	if r.Sequences > 0 {
		fmt.Fprintf(w, "  sequences: %d, %d of them begun by the earlier program, perhaps\n", r.Sequences, r.Earlier)
	}
	if len(r.Excused) > 0 {
		fmt.Fprintf(w, "  EXCUSED, because the earlier program does that: %s\n", byRule(r.Excused))
		for _, v := range r.Excused {
			fmt.Fprintf(w, "    %s: %s: %s\n", v.Rule, v.Key, v.Text)
		}
		for _, rule := range sorted(r.Examples) {
			fmt.Fprintf(w, "  an excused one, %s:\n%s", rule, r.Examples[rule])
		}
	}
	if r.OK() {
		fmt.Fprintln(w, "  no violation")
		return
	}
	fmt.Fprintf(w, "  %d VIOLATIONS: %s\n", len(r.Violations), byRule(r.Violations))
	for _, text := range r.Histories[:min(len(r.Histories), maxHistories)] {
		fmt.Fprintf(w, "\n%s", text)
	}
	fmt.Fprintf(w, "\nrepeat with: %s\n", r.Repeat())
	if r.Dir != "" {
		fmt.Fprintf(w, "what the nodes have said: %s\n", r.Dir)
	}
}

// byRule counts violations.
func byRule(all []history.Violation) string {
	rules := map[string]int{}
	for _, v := range all {
		rules[v.Rule]++
	}
	return counts(rules)
}

// counts is a map of numbers in one line.
func counts(m map[string]int) string {
	var all []string
	for _, name := range sorted(m) {
		all = append(all, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(all, ", ")
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// maxMemory is how much memory a node may use: several times the usual, and far less than it
// takes if work piles up in it without a bound.
const maxMemory = 512 << 20

// Rules that aren't about a single call.
const (
	ruleMemory = "memory piles up"
	ruleCrash  = "a node broke down"
	// ruleRecovery: see recoveryLimit.
	ruleRecovery = "no recovery"
)

// recovered adds how long the nodes took to take calls again.
func (r *Report) recovered(all []Recovery) {
	r.Recovery = all
	for _, x := range all {
		for i, took := range x.Took {
			if took > recoveryLimit {
				v := history.Violation{Rule: ruleRecovery, Text: fmt.Sprintf("%s took a call only after %v: %s", nodeName(i+1), took.Round(time.Millisecond), x.After)}
				r.Violations = append(r.Violations, v)
				r.Histories = append(r.Histories, v.Rule+": "+v.Text+"\n")
			}
		}
	}
}

// report is the judgement.
func (r *run) report(seconds float64, s *injector) *Report {
	rep := &Report{
		Summary: r.log.Summary(), Store: r.opts.Store, Seed: r.opts.Seed, Seconds: seconds, Nodes: len(r.nodes), Dir: r.t.dir,
		Faults: s.counts(), Skipped: r.ground.skipped, Peak: map[string]usage{},
		Examples: map[string]string{},
	}
	for _, v := range r.log.Check() {
		if !v.Earlier {
			rep.Violations = append(rep.Violations, v)
			continue
		}
		rep.Excused = append(rep.Excused, v)
		if rep.Examples[v.Rule] == "" {
			rep.Examples[v.Rule] = v.Key + ": " + v.Text + "\n" + r.log.Print(v.Key, r.begun)
		}
	}
	for _, n := range r.nodes {
		rep.Peak[n.name] = n.peak
		if n.peak.Memory > maxMemory {
			rep.Violations = append(rep.Violations, history.Violation{Rule: ruleMemory, Text: fmt.Sprintf("%s took %d MiB", n.name, n.peak.Memory>>20)})
		}
		for _, text := range crashes(readFile(n.log), len(r.ground.disks) > 0) {
			rep.Violations = append(rep.Violations, history.Violation{Rule: ruleCrash, Text: n.name + ": " + text})
		}
	}
	rep.Violations = oneOfEachFirst(rep.Violations)
	told := map[string]bool{}
	for _, v := range rep.Violations {
		text := fmt.Sprintf("%s: %s: %s\n", v.Rule, v.Key, v.Text)
		if v.Key != "" && !told[v.Key] {
			text += r.log.Print(v.Key, r.begun)
			told[v.Key] = true
		}
		rep.Histories = append(rep.Histories, text)
	}
	return rep
}

// oneOfEachFirst moves the first violation of each rule to the front, because not all are printed.
func oneOfEachFirst(all []history.Violation) []history.Violation {
	seen := map[string]bool{}
	var first, others []history.Violation
	for _, v := range all {
		if seen[v.Rule] {
			others = append(others, v)
			continue
		}
		seen[v.Rule] = true
		first = append(first, v)
	}
	return append(first, others...)
}

// readFile is the text of a file, or why there is none.
func readFile(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// crashMarks begin the output of a Go program that crashes.
var crashMarks = []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"}

// crashes is the output of the crashes of a program. If disks fail, a library may end the
// program by a panic with the error of the system; that doesn't count as a crash.
func crashes(log string, disksFail bool) (found []string) {
	var words []string
	add := func() {
		if text := strings.Join(words, ""); text != "" && !(disksFail && endedByDisk(text)) {
			found = append(found, text)
		}
		words = nil
	}
	for line := range strings.Lines(log) {
		marked := false
		for _, mark := range crashMarks {
			marked = marked || strings.HasPrefix(strings.TrimSpace(line), mark)
		}
		switch {
		case strings.HasPrefix(line, "{"), strings.HasPrefix(line, "semel: "): // it was started again
			add()
		case (marked || len(words) > 0) && len(words) < 20:
			words = append(words, line)
		}
	}
	add()
	return found
}

// endedByDisk reports whether these are the last words of a program after its disk failed: an
// error of the system, or Pebble's where it could not begin a log.
func endedByDisk(words string) bool {
	return strings.Contains(words, "panic: syscall.Errno(") || strings.Contains(words, "pebble/v2.(*DB).rotateWAL(")
}
