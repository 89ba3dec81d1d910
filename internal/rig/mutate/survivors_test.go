package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseSurvivors(t *testing.T) {
	got, err := parseSurvivors("# words\n\na.go\tf\tdrop x\tit only saves time\na.go\tf\tdrop y\tas above\n")
	if err != nil || len(got) != 2 || got["a.go\tf\tdrop x"] != "it only saves time" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{
		"a.go\tf\tdrop x\n", "a.go\tf\tdrop x\t \n", "a.go f drop x because\n", "a.go\tf\tdrop x\tr\nb.go\tf\ty\tr\ta\n",
		"a.go\tf\tdrop x\tone reason\na.go\tf\tdrop x\tanother\n",
	} {
		if got, err := parseSurvivors(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestTheSurvivorsOfTheModuleAreWellFormed(t *testing.T) {
	text, err := os.ReadFile("../../../" + known)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseSurvivors(string(text)); err != nil {
		t.Error(err)
	}
}

func TestCompareWithSurvivors(t *testing.T) {
	known := survivors{"a\tf\told": "r", "a\tf\tdead": "r", "a\tf\tgone": "r", "b\tf\tnot looked at": "r"}
	results := map[string]verdict{
		"a\tf\told": survived, "a\tf\tdead": killed, "a\tf\tnew": survived, "a\tf\tkilled": killed, "a\tf\tbroken": broken, "a\tf\tslow": tooLong,
	}
	existing := map[string]bool{"a\tf\told": true, "a\tf\tdead": true, "a\tf\tnew": true}
	c := known.compare(results, existing, map[string]bool{"a": true})
	if !slices.Equal(c.fresh, []string{"a\tf\tnew"}) || !slices.Equal(c.dead, []string{"a\tf\tdead"}) || !slices.Equal(c.gone, []string{"a\tf\tgone"}) {
		t.Errorf("%+v", c)
	}
	var out strings.Builder
	if err := report(&out, results, c); err != errSurvivors {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"6 mutants: 2 killed, 1 timed out, 2 survived, 1 did not compile", "a\tf\tnew", "a\tf\tdead", "a\tf\tgone"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not say %q", out.String(), want)
		}
	}
	if err := report(&out, results, comparison{dead: c.dead, gone: c.gone}); err != nil {
		t.Errorf("got %v", err)
	}
}
