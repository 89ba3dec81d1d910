package clause

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	t.Run("the embedded table parses and is not empty", func(t *testing.T) {
		if len(All()) < 100 {
			t.Fatalf("%d clauses, want all of them", len(All()))
		}
	})
	t.Run("a clause is found by its id", func(t *testing.T) {
		c, ok := Lookup("CORE-INV.1")
		if !ok || c.Level != "MUST" || c.Source != "core-correctness-model" || c.Text == "" {
			t.Fatalf("Lookup = %+v, %v", c, ok)
		}
	})
	t.Run("an unknown id is not found", func(t *testing.T) {
		if c, ok := Lookup("CORE-INV.99"); ok {
			t.Fatalf("found %+v", c)
		}
	})
}

func TestParseRefusesABrokenTable(t *testing.T) {
	const heading = "id\tlevel\tsource\trequirement\n"
	for name, test := range map[string]struct{ tsv, want string }{
		"another heading": {"key\tlevel\tsource\trequirement\n", "line 1"},
		"a missing field": {heading + "A.1\tMUST\tspec\n", "line 2: 3 fields"},
		"an empty field":  {heading + "A.1\tMUST\tspec\t\n", "line 2: empty field"},
		"unknown level":   {heading + "A.1\tSHALL\tspec\ttext\n", `line 2: level "SHALL"`},
		"an id twice":     {heading + "A.1\tMUST\tspec\ttext\nA.1\tMAY\tspec\ttext\n", "line 3: A.1 appears twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(test.tsv)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}
