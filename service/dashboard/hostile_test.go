package dashboard_test

import (
	"slices"
	"testing"

	"github.com/semelhq/semel"
)

// Fields of a form may have any name, also one that objects have in JavaScript.
func TestFormsWithStrangeNamesAreCompared(t *testing.T) {
	tb := open(t, newWorld(t, false).page())
	got := eval[[]string](tb, `import(new URL('ui/js/diff.js', location.href)).then(({ differences }) =>
		differences('__proto__=1&constructor=1&toString=a', '__proto__=2&constructor=1&toString=a&toString=b').list.map((d) => d.path))`)
	if want := []string{"form.__proto__", "form.toString"}; !slices.Equal(got, want) {
		t.Errorf("they differ in %v, want %v", got, want)
	}
}

// A spreadsheet takes nothing in a cell for a formula, whatever separates its cells.
func TestCellsAreNoFormulas(t *testing.T) {
	tb := open(t, newWorld(t, false).page())
	got := eval[[]string](tb, `import(new URL('ui/js/bulk.js', location.href)).then(({ cell }) =>
		["a;=cmd|' /C calc'!A0", '=1', '\uFF1D1', ' @a', 'say "a"', -1, undefined].map(cell))`)
	want := []string{`"a;=cmd|' /C calc'!A0"`, `"'=1"`, "\"'\uFF1D1\"", `"' @a"`, `"say ""a"""`, "-1", `""`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHeldForStrangers: what a stranger can cause is beside what waits for somebody, and the
// overview doesn't count it. SECURITY.md: "Such calls are listed and counted apart from others".
func TestHeldForStrangers(t *testing.T) {
	w := newWorld(t, false)
	for key, to := range map[string]string{"waits-for-you": "", "of-a-stranger": "credential:made-up"} {
		ans, err := w.Engine().Begin(t.Context(), semel.Call{Tenant: "acme", Operation: "default", Key: key, BoundTo: to})
		if err != nil {
			t.Fatal(err)
		}
		if err := ans.Attempt.Hold(t.Context(), "no answer"); err != nil {
			t.Fatal(err)
		}
	}
	tb := open(t, w.page())
	tb.wait("[...document.querySelectorAll('.tile')].some((e) => /Held/.test(e.innerText) && /waits for somebody to decide/.test(e.innerText))")
	tb.visit("#/held")
	tb.shows("Held for callers whom nobody verified")
	got := eval[[]bool](tb, `[...document.querySelectorAll('section.card')].slice(0, 2).map((s) => [s.innerText.includes('waits-for-you'), s.innerText.includes('of-a-stranger')]).flat()`)
	if !slices.Equal(got, []bool{true, false, false, true}) {
		t.Errorf("what is where: %v", got)
	}
}
