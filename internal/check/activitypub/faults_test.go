package activitypub_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/check"
	"github.com/semelhq/semel/internal/check/activitypub"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// run checks an inbox with a fault.
func run(t *testing.T, is fault) (*check.Report, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inbox, at := newInbox(t, is, "http://"+l.Addr().String())
	patience := 10 * time.Second
	if is == "tells nobody" { // what never comes is waited for to the end
		patience = time.Second
	}
	flags := map[string]*string{"provider": new(""), "actors": new("127.0.0.1:0"), "known-as": new(""), "type": new("Offer")}
	return activitypub.Kit.Run(t.Context(), check.Options{URL: at, Flags: flags, Listener: l, Began: inbox.began, Patience: patience})
}

// checkedInbox is run, with the sentences that aren't kept.
func checkedInbox(t *testing.T, is fault) (*check.Report, []string) {
	t.Helper()
	report, err := run(t, is)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, v := range report.Verdicts {
		if v.Outcome == check.Broken || v.Outcome == check.Advised {
			faults = append(faults, v.ID)
			t.Logf("%s is %s: %s", v.ID, v.Outcome, v.Saw)
		}
	}
	return report, faults
}

func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for is, want := range map[fault]string{
		"":                                 "",
		"keeps two servers apart":          "",
		"knows nothing":                    "duplicates.once",
		"answers 409":                      "duplicates.status",
		"answers 200":                      "duplicates.accepted",
		"goes by the content":              "duplicates.apart",
		"looks and then acts":              "concurrent.once",
		"refuses those at once":            "concurrent.answers",
		"forgets those who leave":          "gone.once",
		"compares contents":                "content.once content.source",
		"goes by the actor":                "content.source",
		"gives up an id with two contents": "content.kept",
		"makes ids up":                     "id.missing",
		"takes any id":                     "id.malformed",
		"takes the unsigned":               "signature.missing",
		"reads no signature":               "signature.wrong",
		"ignores the digest":               "signature.changed",
		"takes any signer":                 "signature.stranger",
		"remembers forgeries":              "signature.spent",
		"is slow":                          "delay.answer",
	} {
		t.Run(string(is), func(t *testing.T) {
			if is != "" && is != "knows nothing" {
				thorough.Only(t, "one more fault that is planted")
			}
			t.Parallel()
			report, faults := checkedInbox(t, is)
			slices.Sort(faults)
			if got := strings.Join(faults, " "); got != want {
				t.Errorf("the faults are %q, and not %q", got, want)
			}
			if advised := want == "" || want == "duplicates.accepted" || strings.HasPrefix(want, "signature.") && want != "signature.spent"; report.OK != advised {
				t.Errorf("ok is %v", report.OK)
			}
		})
	}
}

func TestWithoutEffectsOnlyAnswersAreJudged(t *testing.T) {
	t.Parallel()
	report, faults := checkedInbox(t, "tells nobody")
	var unseen []string
	for _, v := range report.Verdicts {
		if v.Outcome == check.Unseen {
			unseen = append(unseen, v.ID)
		}
	}
	if got := strings.Join(unseen, " "); len(faults) > 0 || !report.OK || got != "duplicates.apart duplicates.once concurrent.once gone.once content.once content.source signature.spent" {
		t.Errorf("%q isn't observed, and the faults are %q", got, faults)
	}
}

func TestNoVerdictWithoutAnActivity(t *testing.T) {
	t.Parallel()
	if _, err := run(t, "takes nothing"); err == nil || !strings.Contains(err.Error(), "fetch keys by http") {
		t.Error(err)
	}
}
