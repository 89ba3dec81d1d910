package a2a_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/check/a2a"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// checked checks an agent with a fault, and returns the sentences by their outcomes.
func checked(t *testing.T, is fault) (*check.Report, map[check.Outcome]string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	agent, at := newAgent(t, is, "http://"+l.Addr().String())
	patience := 10 * time.Second
	if is == "tells nobody" { // what never comes is waited for to the end
		patience = time.Second
	}
	flags := map[string]*string{"provider": new(""), "text": new("Charge {{unique}}")}
	report, err := a2a.Kit.Run(t.Context(), check.Options{URL: at, Flags: flags, Listener: l, Began: agent.began, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	lists := map[check.Outcome][]string{}
	for _, v := range report.Verdicts {
		lists[v.Outcome] = append(lists[v.Outcome], v.ID)
		if v.Outcome != check.Kept {
			t.Logf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
		}
	}
	found := map[check.Outcome]string{}
	for outcome, ids := range lists {
		slices.Sort(ids)
		found[outcome] = strings.Join(ids, " ")
	}
	return report, found
}

func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for is, want := range map[fault]struct{ broken, advised string }{
		"":                                     {},
		"doesn't stream":                       {},
		"says messages":                        {},
		"knows nothing":                        {"duplicates.once duplicates.task", ""},
		"goes by JSON-RPC's id":                {"duplicates.apart duplicates.once duplicates.task", ""},
		"goes by the text":                     {"duplicates.apart", ""},
		"works twice":                          {"duplicates.once", ""},
		"looks and then acts":                  {"concurrent.once concurrent.task", ""},
		"compares contents":                    {"", "content.once content.refused"},
		"answers another text":                 {"", "content.refused"},
		"lets nobody have it then":             {"content.kept", ""},
		"gives up a messageId with two texts":  {"content.kept", ""},
		"tells streams apart":                  {"stream.once stream.task", ""},
		"renames the tasks of those who leave": {"gone.task", ""},
		"hides tasks":                          {"task.state", ""},
		"starts another task":                  {"task.continued", ""},
	} {
		t.Run(string(is), func(t *testing.T) {
			if is != "" && is != "knows nothing" {
				thorough.Only(t, "one more fault that is planted")
			}
			t.Parallel()
			report, found := checked(t, is)
			if found[check.Broken] != want.broken || found[check.Advised] != want.advised || report.OK != (want.broken == "") {
				t.Errorf("broken is %q, and not %q; advised is %q, and not %q; ok is %v", found[check.Broken], want.broken, found[check.Advised], want.advised, report.OK)
			}
		})
	}
}

func TestWhatAnAgentDoesNotShowIsNotObserved(t *testing.T) {
	t.Parallel()
	for is, want := range map[fault]string{
		"doesn't stream": "stream.once stream.task",
		"says messages":  "task.continued task.state",
		"tells nobody":   "concurrent.once content.once duplicates.once gone.once stream.once",
	} {
		if report, found := checked(t, is); !report.OK || found[check.Unseen] != want {
			t.Errorf("%s: %q isn't observed", is, found[check.Unseen])
		}
	}
}
