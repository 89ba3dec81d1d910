package config

import (
	"slices"
	"testing"
)

// TestMeaningsOfAStatus are what explain tells of each upstream's answers.
func TestMeaningsOfAStatus(t *testing.T) {
	c, _, err := Load(Source{Env: func(string) (string, bool) { return "", false }, Path: "semel.yaml", Data: []byte(`
operations: [{name: default, on_failure: retry}, {name: money, financial: true, archive: false}, {name: again, on_abandoned: retry}]
routes:
  - {match: /a, upstream: "http://h"}
  - {match: /money, upstream: "http://h", operation: money}
  - {match: /again, upstream: "http://h", operation: again}
  - {match: /named, upstream: "http://h", answers: {not_executed: [503], unknown: ["503 header:Via=varnish*"], final: [403]}}
  - {match: /stripe, upstream: "http://h", operation: money, profile: stripe}
a2a: [{path: /agent, upstream: "http://h"}]
forrst: [{path: /forrst, upstream: "http://h", functions: [{name: pay, versions: [1.0.0], operation: money}]}]
`)})
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int][]string{
		200: {"completed gets the same answer", "completed gets the same answer", "completed gets the same answer", "completed gets the same answer", "completed gets the same answer", "completed gets the same answer", "completed gets the same answer"},
		402: {"aborted runs", "rejected gets the same answer", "aborted runs", "aborted runs", "rejected gets the same answer", "rejected gets the same answer", "aborted runs"},
		403: {"rejected gets the same answer", "unknown is held until the call is settled", "rejected gets the same answer", "rejected gets the same answer", "unknown is held until the call is settled", "unknown is held until the call is settled", "rejected gets the same answer"},
		500: {"failed runs", "failed gets the same answer", "failed runs", "failed runs", "failed gets the same answer", "failed gets the same answer", "failed runs"},
		503: {"unknown is held until the call is settled", "unknown is held until the call is settled", "unknown runs, by on_abandoned: retry", "aborted runs", "unknown is held until the call is settled", "unknown is held until the call is settled", "unknown is held until the call is settled"},
	} {
		var got []string
		for _, m := range c.Meanings(status) {
			got = append(got, m.Proves+" "+m.Next)
			if (m.Setting == "routes[3]" && status == 503) != (len(m.Conditions) == 1) || m.Match == "" || m.Status != status {
				t.Errorf("%+v", m)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d means %q, want %q", status, got, want)
		}
	}
}
