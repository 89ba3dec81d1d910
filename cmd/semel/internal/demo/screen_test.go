package demo

import (
	"bytes"
	"strings"
	"testing"
)

func TestScreen(t *testing.T) {
	t.Run("on a terminal the moving line gives way to the next one", func(t *testing.T) {
		var b bytes.Buffer
		s := &Screen{w: &b, terminal: true}
		s.progress(func() string { return "1 of 2" })
		s.progress(func() string { return "2 of 2" })
		s.line("done")
		s.line("next")
		if want := "\r\x1b[K   1 of 2\r\x1b[K   2 of 2\r\x1b[K   done\n   next\n"; b.String() != want {
			t.Errorf("written %q, want %q", b.String(), want)
		}
	})
	t.Run("elsewhere there are whole lines without colours", func(t *testing.T) {
		var b bytes.Buffer
		s := NewScreen(&b)
		stop := s.live(func() string { return "moving" })
		s.progress(func() string { return "moving" })
		stop()
		s.chapter("Title")
		s.verdict(false, "%d", 3)
		if want := "\n1. Title\n   WRONG: 3\n"; b.String() != want {
			t.Errorf("written %q, want %q", b.String(), want)
		}
	})
	t.Run("colours begin and end", func(t *testing.T) {
		var b bytes.Buffer
		s := &Screen{w: &b, colour: true}
		s.verdict(true, "fine")
		if want := "   \x1b[32mok: fine\x1b[0m\n"; b.String() != want {
			t.Errorf("written %q, want %q", b.String(), want)
		}
	})
	t.Run("a long quotation is broken between words", func(t *testing.T) {
		var b bytes.Buffer
		text := strings.TrimSpace(strings.Repeat("some words ", 20))
		NewScreen(&b).quote(text)
		for line := range strings.Lines(b.String()) {
			if len(line) > 80 || !strings.HasPrefix(line, "   ") {
				t.Errorf("line %q", line)
			}
		}
		if got := strings.Join(strings.Fields(b.String()), " "); got != `"`+text+`"` {
			t.Errorf("quoted %q", got)
		}
	})
	t.Run("the end of the story names every fault", func(t *testing.T) {
		var b bytes.Buffer
		r := sound()
		r.Protected.Effects = 21
		r.judge()
		NewScreen(&b).closing(&r)
		for _, want := range []string{"The demo found what should not be:", "charges behind the guard: 21 instead of 20"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%q is not in:\n%s", want, b.String())
			}
		}
	})
	t.Run("and its success in one sentence", func(t *testing.T) {
		var b bytes.Buffer
		r := sound()
		r.judge()
		NewScreen(&b).closing(&r)
		if want := "500 requests for 20 orders: 500 charges without a guard, 20 behind Semel.\n"; !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	})
}
