package screen

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

func TestTyping(t *testing.T) {
	key := func(name string) tea.KeyPressMsg {
		codes := map[string]tea.KeyPressMsg{
			"left": {Code: tea.KeyLeft}, "right": {Code: tea.KeyRight}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
			"backspace": {Code: tea.KeyBackspace}, "delete": {Code: tea.KeyDelete},
		}
		if k, ok := codes[name]; ok {
			return k
		}
		if letter, ok := strings.CutPrefix(name, "ctrl+"); ok {
			return tea.KeyPressMsg{Code: rune(letter[0]), Mod: tea.ModCtrl}
		}
		return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
	}
	for _, test := range []struct{ keys, want, view string }{
		{"a b c", "abc", "abc_"},
		{"a b c left left x", "axbc", "axbc"},
		{"a b backspace", "a", "a_"},
		{"backspace left delete", "", "_"},
		{"a b home delete", "b", "b"},
		{"a b c home right ctrl+k", "a", "a_"},
		{"a b c ctrl+u", "", "_"},
		{"é ü 世 left backspace", "é世", "é世"},
		{"a \x1b b", "ab", "ab_"},
	} {
		var in Input
		for name := range strings.SplitSeq(test.keys, " ") {
			in.Type(key(name))
		}
		if got := in.Text(); got != test.want {
			t.Errorf("%q makes %q, want %q", test.keys, got, test.want)
		}
		if got := in.View(Ink{}, 20); got != test.view {
			t.Errorf("%q shows %q, want %q", test.keys, got, test.view)
		}
	}
	var in Input
	in.Set("operation:pay state:held")
	if in.Type(key("ctrl+w")); in.Text() != "operation:pay " {
		t.Errorf("%q", in.Text())
	}
	in.Insert("one\ntwo\x1b[31m")
	if in.Text() != "operation:pay one two[31m" {
		t.Errorf("%q", in.Text())
	}
	in.Insert(strings.Repeat("x", 2*maxInput))
	if n := len([]rune(in.Text())); n != maxInput {
		t.Errorf("%d runes", n)
	}
	if got := in.View(Ink{}, 10); len(got) != 10 {
		t.Errorf("%q", got)
	}
}

func TestLines(t *testing.T) {
	on := Ink{On: true}
	if got := Cut(on.Red("abcdef"), 4); ansi.Strip(got) != "abc…" {
		t.Errorf("%q", got)
	}
	if got := Pad("世界", 5); got != "世界 " || PadLeft("12", 4) != "  12" {
		t.Errorf("%q", got)
	}
	if got := Flow([]string{"one", "two", "three"}, 9); !slices.Equal(got, []string{"one  two", "three"}) {
		t.Errorf("%q", got)
	}
	if got := Fit([]string{"a", "bcdef", "g"}, []string{"foot"}, 4, 3); got != "a\nbcd…\nfoot" {
		t.Errorf("%q", got)
	}
	if got := Fit([]string{"a"}, []string{"foot"}, 4, 3); got != "a\n\nfoot" {
		t.Errorf("%q", got)
	}
}

func TestColors(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want bool
	}{
		{map[string]string{"TERM": "xterm"}, true}, {map[string]string{"TERM": "xterm", "NO_COLOR": "yes"}, false}, {map[string]string{"TERM": "dumb"}, false},
	} {
		ink := InkFor(func(name string) string { return test.env[name] })
		for _, paint := range []func(string) string{ink.Bold, ink.Faint, ink.Red, ink.Green, ink.Yellow, ink.Blue, ink.Selected} {
			if got := paint("x"); strings.Contains(got, "\x1b") != test.want || ansi.Strip(got) != "x" {
				t.Errorf("%v: %q", test.env, got)
			}
		}
	}
}
