package check

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/semelhq/semel/internal/rig/clause"
)

// seen is a delivery from one millisecond to another.
func seen(j *judge, from, to int, status int, body string) step {
	at := func(ms int) time.Time { return j.began.Add(time.Duration(ms) * time.Millisecond) }
	s := step{answer: Answer{Status: status, Body: body, began: at(from), ended: at(to)}}
	if status == 0 {
		s.answer.Err = errors.New("cut off")
	}
	return s
}

// TestHistoriesAreJudgedByWhatCallersSaw gives the checker histories of one key.
func TestHistoriesAreJudgedByWhatCallersSaw(t *testing.T) {
	p, err := profileByName("ietf")
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{profile: p, began: time.Now()}
	for name, c := range map[string]struct {
		steps []step
		want  porcupine.CheckResult
	}{
		"one answer for everybody":                             {[]step{seen(j, 0, 10, 201, "a"), seen(j, 5, 20, 201, "a")}, porcupine.Ok},
		"two answers":                                          {[]step{seen(j, 0, 10, 201, "a"), seen(j, 20, 30, 201, "b")}, porcupine.Illegal},
		"two answers at the same time":                         {[]step{seen(j, 0, 10, 201, "a"), seen(j, 0, 10, 201, "b")}, porcupine.Illegal},
		"refused while it runs":                                {[]step{seen(j, 0, 10, 201, "a"), seen(j, 5, 6, 409, "")}, porcupine.Ok},
		"refused before it came":                               {[]step{seen(j, 10, 20, 201, "a"), seen(j, 0, 5, 409, "")}, porcupine.Illegal},
		"refused as running after somebody has had the answer": {[]step{seen(j, 0, 10, 201, "a"), seen(j, 20, 30, 409, "")}, porcupine.Illegal},
		"refused while another runs who was cut off":           {[]step{seen(j, 0, 3, 0, ""), seen(j, 5, 6, 409, ""), seen(j, 20, 30, 201, "a")}, porcupine.Ok},
		"cut off, and never run":                               {[]step{seen(j, 0, 3, 0, ""), seen(j, 20, 30, 201, "a")}, porcupine.Ok},
		"busy":                                                 {[]step{seen(j, 0, 3, 503, ""), seen(j, 20, 30, 201, "a"), seen(j, 40, 50, 429, "")}, porcupine.Ok},
	} {
		t.Run(name, func(t *testing.T) {
			parts := j.operations(c.steps)
			if got := porcupine.CheckOperationsTimeout(once, parts[0], time.Second); len(parts) != 1 || got != c.want {
				t.Errorf("it is judged %s, want %s", got, c.want)
			}
		})
	}
}

// TestThePageNamesEverything: groups, requests and contracts are on the page for people.
func TestThePageNamesEverything(t *testing.T) {
	page, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(Groups(), sortedKeys(Sections), Profiles()) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/check.md doesn't name %s", name)
		}
	}
}

// frozen are the digests of the released files of requirements. A file that changed would give old
// verdicts another meaning: add a new one instead.
var frozen = map[string]string{
	"acp-2026-04-17": "814467362dd5680b",
	"adyen-v1":       "347e1c61f3648ba5",
	"common":         "26a8f0b6f1036acb",
	"ietf-07":        "076090fb5c86c487",
	"stripe-v1":      "22e3191b67c85414",
	"ucp-2026-08":    "29f2c5741ea2a007",
}

// Groups are the names of the groups, in the order in which they are judged.
func Groups() (names []string) {
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return names
}

func TestRequirementsAreFrozenAndWhole(t *testing.T) {
	probed := []string{"keys.quoted"} // by the beginning of a run
	for _, g := range groups {
		for _, p := range g.Probes {
			for id := range strings.FieldsSeq(p.IDs) {
				probed = append(probed, g.Name+"."+id)
			}
			if p.Section != "" && Sections[p.Section] == "" {
				t.Errorf("%s needs a request %q that nobody can give", g.Name, p.Section)
			}
		}
	}
	if entries, err := files.ReadDir("requirements"); err != nil || len(entries) != len(Profiles())+1 {
		t.Errorf("there are %d files, %v; the contracts are %v", len(entries), err, Profiles())
	}
	for _, name := range append(Profiles(), "common") {
		data, err := files.ReadFile("requirements/" + name + ".yaml")
		if got := fmt.Sprintf("%x", sha256.Sum256(data))[:16]; err != nil || frozen[name] != got {
			t.Errorf("%s has the digest %s, and is frozen as %q", name, got, frozen[name])
		}
		p, err := readProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Requirements {
			if !slices.Contains(probed, r.ID) || name == "common" && r.Text == "" || name != "common" && r.On == "" {
				t.Errorf("%s: %s has no probe, no text, or nothing that it rests on", name, r.ID)
			}
			if _, ok := clause.Lookup(r.On); name == "common" && r.On != "" && !ok {
				t.Errorf("%s rests on %s, and there is no such clause", r.ID, r.On)
			}
		}
		if name == "common" && len(p.Requirements) != len(probed) {
			t.Errorf("%d requirements, and probes for %d", len(p.Requirements), len(probed))
		}
	}
	for _, name := range Profiles() {
		p, err := profileByName(name)
		if err != nil || p.Name != name {
			t.Fatalf("%s: %v", name, err)
		}
		if r := p.byID["replay.marked"]; (r.On != "") != (p.Marker != "") {
			t.Errorf("%s says by %q how replays are marked, and has the header %q", name, r.On, p.Marker)
		}
	}
}

// TestAnAnswerThatBreaksOffIsNone: its status has come, and proves nothing.
func TestAnAnswerThatBreaksOffIsNone(t *testing.T) {
	for _, status := range []int{101, 201, 401, 503} {
		if a := (Answer{Status: status, Err: errors.New("cut off")}); a.OK() || a.refuses() || !strings.HasPrefix(a.String(), "no answer") {
			t.Errorf("%d passes for %s", status, a)
		}
	}
	if (Answer{Status: 101}).OK() || !(Answer{Status: 204}).OK() {
		t.Error("success is 2xx")
	}
}
