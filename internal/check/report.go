package check

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Outcome says how a service does with a requirement.
type Outcome string

// The outcomes. Advised is a requirement that should be kept and isn't; it makes no group red.
const (
	Kept    Outcome = "kept"
	Broken  Outcome = "broken"
	Advised Outcome = "advised"
	Unseen  Outcome = "not observed"
)

// State is the state of a group. It is [Unjudged] if all its outcomes are [Unseen].
type State string

// The states of groups.
const (
	Green    State = "green"
	Red      State = "red"
	Unjudged State = "not observed"
)

// Verdict is the outcome of one requirement.
type Verdict struct {
	ID      string  `json:"id"`
	Group   string  `json:"group"`
	Outcome Outcome `json:"outcome"`
	Level   string  `json:"level"` // must or should
	Text    string  `json:"text"`
	Rests   string  `json:"rests"`         // on a clause, and a paragraph of the contract
	Saw     string  `json:"saw,omitempty"` // the fault, or why nothing could be observed
	// Transcript has the deliveries, and Reproduce the same as lines for a shell.
	Transcript []Exchange `json:"transcript,omitempty"`
	Reproduce  []string   `json:"reproduce,omitempty"`
}

// Report has all verdicts, in the order of the groups. OK is false if a group is red.
type Report struct {
	OK       bool             `json:"ok"`
	URL      string           `json:"url"`
	Profile  string           `json:"profile"`
	Seed     uint64           `json:"seed"`
	Groups   map[string]State `json:"groups"`
	Verdicts []Verdict        `json:"verdicts"`
}

func sortedKeys[K interface{ ~string | ~int }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// state is that of a group by the verdicts so far.
func (j *judge) state(group string) State {
	s := Unjudged
	for _, v := range j.verdicts {
		switch {
		case v.Group != group:
		case v.Outcome == Broken:
			return Red
		case v.Outcome != Unseen:
			s = Green
		}
	}
	return s
}

func (j *judge) report(groups []Group) *Report {
	r := &Report{OK: true, URL: j.opts.URL, Profile: j.profile.Name, Seed: j.opts.Seed, Groups: map[string]State{}}
	for _, g := range groups {
		r.Groups[g.Name] = j.state(g.Name)
		r.OK = r.OK && r.Groups[g.Name] != Red
		for _, id := range sortedKeys(j.verdicts) {
			if v := j.verdicts[id]; v.Group == g.Name {
				r.Verdicts = append(r.Verdicts, *v)
			}
		}
	}
	return r
}

// Print writes the report for people: a line for each group, and its faults below.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s, seed %d\n", r.URL, r.Profile, r.Seed)
	group := ""
	for _, v := range r.Verdicts {
		if v.Group != group {
			group = v.Group
			fmt.Fprintf(&b, "%-13s%s\n", group, r.Groups[group])
		}
		switch v.Outcome {
		case Kept:
		case Unseen:
			fmt.Fprintf(&b, "    %s isn't observed: %s\n", v.ID, v.Saw)
		default:
			fmt.Fprintf(&b, "    %s is %s: %s\n        %s\n        rests on %s\n", v.ID, v.Outcome, v.Text, v.Saw, v.Rests)
			fmt.Fprintf(&b, "        | %s\n", strings.Join(v.Reproduce, "\n        | "))
			for _, x := range v.Transcript {
				got, _, _ := strings.Cut(x.Answer, "\n")
				fmt.Fprintf(&b, "        %.3f s: call %.8s… got %s %s\n", x.At, x.key, got, x.Cut)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JUnit returns the verdicts as test cases, in the form that continuous integration reads.
func (r *Report) JUnit() []byte {
	type testcase struct {
		Name    string `xml:"name,attr"`
		Class   string `xml:"classname,attr"`
		Failure string `xml:"failure,omitempty"`
		Skipped string `xml:"skipped,omitempty"`
	}
	suite := struct {
		XMLName xml.Name   `xml:"testsuite"`
		Name    string     `xml:"name,attr"`
		Cases   []testcase `xml:"testcase"`
	}{Name: "semel check " + r.Profile}
	for _, v := range r.Verdicts {
		c := testcase{Name: v.ID, Class: r.Profile + "." + v.Group, Skipped: v.Saw}
		if v.Outcome == Broken {
			c.Failure, c.Skipped = v.Saw+"\n"+v.Text+"\nrests on "+v.Rests+"\n"+strings.Join(v.Reproduce, "\n"), ""
		}
		suite.Cases = append(suite.Cases, c)
	}
	text, _ := xml.MarshalIndent(suite, "", "  ") // such a struct has no faults
	return append([]byte(xml.Header), text...)
}
