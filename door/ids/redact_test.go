package ids

import (
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

func TestRedact(t *testing.T) {
	clause.Proves(t, "IDS-XV.4")
	e := &Entry{Redact: []Redaction{{Path: "iban", Unless: "see"}, {Path: "items[].note", Unless: "see"}, {Path: "a.b", Unless: "see"}}}
	for _, c := range []struct {
		name, outcome, shown string
		hidden               bool
	}{
		{"a member", `{"iban":"DE02","n":1.50}`, `{"iban":"[redacted]","n":1.50}`, true},
		{"every item", `{"items":[{"note":"x","n":1},{"n":2}]}`, `{"items":[{"n":1,"note":"[redacted]"},{"n":2}]}`, true},
		{"nothing to hide", `{ "n" : 1, "a": null }`, `{"a":null,"n":1}`, false},
		{"an array where an object should be", `[{"iban":"DE02"}]`, `[{"iban":"[redacted]"}]`, true},
		{"an object where an array should be", `{"items":{"note":"x"}}`, `{"items":"[redacted]"}`, true},
		{"an array on the way", `{"a":[{"b":1},{"c":2}]}`, `{"a":[{"b":"[redacted]"},{"c":2}]}`, true},
		{"a text on the way", `{"a":"b=1"}`, `{"a":"[redacted]"}`, true},
		{"a text alone", `"iban=DE02"`, `"[redacted]"`, true},
		{"two members of one name", `{"iban":"DE02","iban":null}`, `{"iban":"[redacted]"}`, true},
		{"an object under a name given twice", `{"a":{"b":1},"a":{}}`, `{"a":{}}`, false},
	} {
		t.Run(c.name+" is shown as it may be", func(t *testing.T) {
			shown, hidden, ok := e.redact([]byte(c.outcome), nil)
			if string(shown) != c.shown || hidden != c.hidden || !ok {
				t.Errorf("%s, %v, %v", shown, hidden, ok)
			}
			if all, ok := e.RedactFor([]byte(c.outcome), []string{"see"}); string(all) != c.outcome || !ok {
				t.Errorf("with the right: %s, %v", all, ok)
			}
		})
	}
	t.Run("of what is not JSON nothing is shown", func(t *testing.T) {
		if shown, ok := e.RedactFor([]byte(`{"iban"`), nil); shown != nil || ok {
			t.Errorf("%s, %v", shown, ok)
		}
	})
}
