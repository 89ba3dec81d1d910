package door_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
)

// Every code has a row, and every row says something.
func TestTheTableHasEveryCode(t *testing.T) {
	seen := map[semel.Code]bool{}
	for _, m := range door.Meanings() {
		if seen[m.Code] {
			t.Errorf("%s has two rows", m.Code)
		}
		seen[m.Code] = true
		if m.Status < 400 || m.Status > 599 || m.Title == "" || !strings.HasSuffix(m.Meaning, ".") || !strings.HasSuffix(m.Action, ".") {
			t.Errorf("%s: %+v", m.Code, m)
		}
	}
	for _, code := range semel.Codes() {
		if !seen[code] {
			t.Errorf("%s has no row", code)
		}
	}
	for _, d := range semel.Decisions() {
		if code, refuses := d.Code(); refuses && !slices.Contains(semel.Codes(), code) {
			t.Errorf("the decision %s refuses with a code that the engine doesn't have", d)
		}
	}
}

// A code that nobody has heard of is a fault of the server, and not a success.
func TestAnUnknownCodeIsInternal(t *testing.T) {
	if m, ok := door.Lookup("never heard of"); ok || m.Code != door.CodeInternal || m.Status != 500 {
		t.Errorf("%v %+v", ok, m)
	}
}
