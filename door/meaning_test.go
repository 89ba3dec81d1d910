package door_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/store"
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

// Programs and models know five steps.
func TestEveryRefusalSaysWhatToDo(t *testing.T) {
	for _, m := range door.Meanings() {
		if !slices.Contains([]store.Action{"wait", "verify", "fix_request", "new_key", "stop"}, m.Do) {
			t.Errorf("%s: %q", m.Code, m.Do)
		}
		if m.Do == "wait" && m.Status < 500 && m.Retry == 0 && m.Effect == "" {
			t.Errorf("%s: waiting for nothing", m.Code)
		}
	}
}

// What a code means is for callers of any protocol; what is of HTTP is in the hint.
func TestNoHTTPInADetail(t *testing.T) {
	codes := append(semel.Codes(), door.CodeUnauthorized, door.CodeOverloaded, door.CodeOverBudget, door.CodeTooLarge, door.CodeBodyTooSlow, door.CodeKeyMissing, door.CodeKeyInvalid, door.CodeInternal)
	http := regexp.MustCompile(`[Rr]etry-After|Prefer|Authorization|Content-Type|GET |problem|status|\b[2-5]\d\d\b`)
	for _, code := range codes {
		m, _ := door.Lookup(code)
		if found := http.FindString(m.Detail()); found != "" && code != semel.CodeOtherCaller { // which has a status to ask for
			t.Errorf("%s speaks of %q: %s", code, found, m.Detail())
		}
	}
}

// A code that nobody has heard of is a fault of the server, and not a success.
func TestAnUnknownCodeIsInternal(t *testing.T) {
	if m, ok := door.Lookup("never heard of"); ok || m.Code != door.CodeInternal || m.Status != 500 {
		t.Errorf("%v %+v", ok, m)
	}
}
