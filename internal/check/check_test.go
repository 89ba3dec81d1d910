package check_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// judged checks a place, and returns the groups that are red and those that aren't green.
func judged(t *testing.T, p *place, opts check.Options) (red, unseen []string, report *check.Report) {
	t.Helper()
	opts.URL, opts.Patience = "http://"+p.addr, 10*time.Second
	if opts.Requests == "" {
		opts.Requests = requests
	}
	report, err := check.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range check.Groups() {
		switch report.Groups[name] {
		case check.Red:
			red = append(red, name)
		case check.Unjudged:
			unseen = append(unseen, name)
		}
	}
	if t.Failed() || testing.Verbose() {
		var b strings.Builder
		_ = report.Print(&b)
		t.Log(b.String())
	}
	return red, unseen, report
}

// planted serves a peer with a bug.
func planted(t *testing.T, a *app, p *peer) *place {
	p.app, p.entries = a, map[string]*entry{}
	return newPlace(t, func() (http.Handler, func()) { return p, p.crash })
}

const window = 300 * time.Millisecond

// TestEachPlantedBugIsRedInItsGroup: a group that is red for another's bug sends people to the
// wrong place, and one that is green with its bug is worth nothing.
func TestEachPlantedBugIsRedInItsGroup(t *testing.T) {
	for _, bug := range check.Groups() {
		t.Run(bug, func(t *testing.T) {
			if bug != "conflict" {
				thorough.Only(t, "one more bug that is planted")
			}
			t.Parallel()
			a := new(app)
			server := &peer{bug: bug}
			p := planted(t, a, server)
			red, unseen, report := judged(t, p, check.Options{Began: server.now.began, Count: countURL(t, a), Window: window, Restart: p.restart, Seed: 1})
			if !slices.Equal(red, []string{bug}) || report.OK {
				t.Errorf("red are %q, want only %s", red, bug)
			}
			for _, name := range unseen {
				if !rests(name, bug) {
					t.Errorf("%s wasn't judged", name)
				}
			}
			for _, v := range report.Verdicts {
				if v.Outcome == check.Broken && (len(v.Transcript) == 0 || len(v.Reproduce) == 0 || len(v.Reproduce) > 10 || v.Saw == "" || v.Rests == "") {
					t.Errorf("%s has no transcript, no lines to reproduce it, or nothing that it rests on: %+v", v.ID, v)
				}
			}
		})
	}
}

// TestACacheThatEvictsIsFoundByItsHistory: no probe of one key finds a server that remembers fifty
// keys, which is right until there are more.
func TestACacheThatEvictsIsFoundByItsHistory(t *testing.T) {
	thorough.Only(t, "one more bug that is planted")
	t.Parallel()
	a := new(app)
	red, _, report := judged(t, planted(t, a, &peer{bug: "evicts"}), check.Options{})
	if v := verdict(report, "storm.history"); !slices.Equal(red, []string{"storm"}) || v.Outcome != check.Broken || verdict(report, "storm.once").Outcome != check.Kept {
		t.Errorf("red are %q, and the history is %s: %s", red, v.Outcome, v.Saw)
	}
	if v := verdict(report, "storm.history"); len(v.Transcript) > 24 || !strings.Contains(v.Saw, "no order explains") {
		t.Errorf("it saw %s, in %d deliveries", v.Saw, len(v.Transcript))
	}
}

// rests reports whether a group isn't tried without another.
func rests(name, on string) bool {
	return on == "replay" || on == "in-flight" && (name == "storm" || name == "gone" || name == "crash") || on == "gone" && name == "crash"
}

func TestCorrectServersAreGreen(t *testing.T) {
	for name, p := range map[string]*peer{
		"duplicates in flight are refused": {},
		"duplicates in flight wait":        {waits: true},
		"keys are required and strict":     {strict: true},
		"requests are limited":             {limit: 7},
		"effects are counted late":         {waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "duplicates in flight wait" {
				thorough.Only(t, "one more server that is right")
			}
			t.Parallel()
			a := new(app)
			if strings.Contains(name, "late") {
				a.late = 30 * time.Millisecond
			}
			place := planted(t, a, p)
			allGreen(t, place, check.Options{Began: p.now.began, Count: countURL(t, a), Window: window, Restart: place.restart, Seed: 2})
		})
	}
}

// allGreen wants every group green that the options let be judged.
func allGreen(t *testing.T, p *place, opts check.Options) {
	t.Helper()
	red, unseen, report := judged(t, p, opts)
	if len(red) > 0 || len(unseen) > 0 || !report.OK {
		t.Errorf("red are %q, not observed %q", red, unseen)
	}
	for _, v := range report.Verdicts {
		if v.Outcome == check.Broken || v.Outcome == check.Advised {
			t.Errorf("%s: %s", v.ID, v.Saw)
		}
	}
}
