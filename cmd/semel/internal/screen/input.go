package screen

import (
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// maxInput bounds what is typed, in runes.
const maxInput = 1024

// Input is a line that somebody types into. The zero value is empty.
type Input struct {
	text []rune
	at   int // of the cursor
}

// Text is what has been typed.
func (i *Input) Text() string { return string(i.text) }

// Set replaces the text, with the cursor at its end.
func (i *Input) Set(text string) {
	i.text = []rune(text)
	i.at = len(i.text)
}

// Type takes a key, and reports whether it has changed the text. The keys are those of a
// shell's line: arrows, Home, End, Backspace, Delete, and Control with a, e, u, k and w.
func (i *Input) Type(key tea.KeyPressMsg) (changed bool) {
	before := len(i.text)
	switch name := key.String(); name {
	case "left", "ctrl+b":
		i.at = max(i.at-1, 0)
	case "right", "ctrl+f":
		i.at = min(i.at+1, len(i.text))
	case "home", "ctrl+a":
		i.at = 0
	case "end", "ctrl+e":
		i.at = len(i.text)
	case "backspace":
		i.remove(max(i.at-1, 0), i.at)
	case "delete":
		i.remove(i.at, min(i.at+1, len(i.text)))
	case "ctrl+u":
		i.remove(0, i.at)
	case "ctrl+k":
		i.remove(i.at, len(i.text))
	case "ctrl+w":
		from := i.at
		for from > 0 && i.text[from-1] == ' ' {
			from--
		}
		for from > 0 && i.text[from-1] != ' ' {
			from--
		}
		i.remove(from, i.at)
	default:
		i.Insert(key.Text)
	}
	return len(i.text) != before
}

// Insert puts text at the cursor, as when it is pasted. What can't be printed is left out.
func (i *Input) Insert(text string) {
	for _, r := range text {
		if unicode.IsSpace(r) {
			r = ' '
		}
		if unicode.IsPrint(r) && len(i.text) < maxInput {
			i.text = append(i.text[:i.at], append([]rune{r}, i.text[i.at:]...)...)
			i.at++
		}
	}
}

func (i *Input) remove(from, to int) {
	i.text = append(i.text[:from], i.text[to:]...)
	i.at = from
}

// View is the line with its cursor, for at most so many runes: those around the cursor.
func (i *Input) View(ink Ink, width int) string {
	from := max(i.at-width+1, 0)
	to := min(len(i.text), from+width)
	var b strings.Builder
	b.WriteString(string(i.text[from:min(i.at, to)]))
	under := " "
	if i.at < len(i.text) {
		under = string(i.text[i.at])
	}
	if ink.On {
		under = ink.Selected(under)
	} else if under == " " {
		under = "_"
	}
	b.WriteString(under)
	if i.at+1 < to {
		b.WriteString(string(i.text[i.at+1 : to]))
	}
	return b.String()
}
