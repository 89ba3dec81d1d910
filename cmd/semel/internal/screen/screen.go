// Package screen has what the interactive screens of the commands share: colors, columns,
// a line to type into, and running a model in a terminal.
//
// It draws with escape sequences of its own and not with lipgloss, which asks the terminal
// for its colors, and tmux by running it, when any program that is linked with it starts.
package screen

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// Ink colors text. The zero value leaves it as it is, for pipes and for NO_COLOR.
type Ink struct {
	On bool
}

// InkFor is what suits a terminal: colors unless the variable NO_COLOR isn't empty or TERM
// is dumb.
func InkFor(env func(string) string) Ink {
	return Ink{On: env("NO_COLOR") == "" && env("TERM") != "dumb"}
}

func (i Ink) styled(s ansi.Style, text string) string {
	if !i.On || text == "" {
		return text
	}
	return s.Styled(text)
}

// Bold, Faint, Red, Green, Yellow and Blue are what their names say.
func (i Ink) Bold(text string) string { return i.styled(ansi.NewStyle().Bold(), text) }

// Faint is for what matters least.
func (i Ink) Faint(text string) string { return i.styled(ansi.NewStyle().Faint(), text) }

// Red is for what needs somebody now.
func (i Ink) Red(text string) string {
	return i.styled(ansi.NewStyle().ForegroundColor(ansi.Red), text)
}

// Green is for what is well.
func (i Ink) Green(text string) string {
	return i.styled(ansi.NewStyle().ForegroundColor(ansi.Green), text)
}

// Yellow is for what somebody should look at.
func (i Ink) Yellow(text string) string {
	return i.styled(ansi.NewStyle().ForegroundColor(ansi.Yellow), text)
}

// Blue is for what is neither.
func (i Ink) Blue(text string) string {
	return i.styled(ansi.NewStyle().ForegroundColor(ansi.Blue), text)
}

// Selected marks the line that keys act on. Without colors that is up to the caller.
func (i Ink) Selected(text string) string {
	return i.styled(ansi.NewStyle().Reverse(true), ansi.Strip(text))
}

// Cut shortens a line to a width in cells, sequences left out; a width of zero is no limit.
func Cut(line string, width int) string {
	if width <= 0 {
		return line
	}
	return ansi.Truncate(line, width, "…")
}

// Pad fills a text up to a width in cells, and cuts what is longer.
func Pad(text string, width int) string {
	text = Cut(text, width)
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

// PadLeft is Pad with the spaces in front, for numbers.
func PadLeft(text string, width int) string {
	text = Cut(text, width)
	return strings.Repeat(" ", max(width-ansi.StringWidth(text), 0)) + text
}

// Flow puts items on as few lines as they need, two spaces between them. A width of zero is
// no limit.
func Flow(items []string, width int) (lines []string) {
	line := ""
	for _, item := range items {
		switch joined := line + "  " + item; {
		case line == "":
			line = item
		case width > 0 && ansi.StringWidth(joined) > width:
			lines, line = append(lines, line), item
		default:
			line = joined
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	for i := range lines {
		lines[i] = Cut(lines[i], width)
	}
	return lines
}

// Fit makes lines fill a screen exactly, each cut to its width: the last lines, foot, stay at
// the bottom, and what doesn't fit above them is left out.
func Fit(body, foot []string, width, height int) string {
	room := max(height-len(foot), 0)
	lines := make([]string, 0, height)
	for i := range room {
		line := ""
		if i < len(body) {
			line = Cut(body[i], width)
		}
		lines = append(lines, line)
	}
	for _, line := range foot {
		lines = append(lines, Cut(line, width))
	}
	return strings.Join(lines, "\n")
}

// Run shows a model on a terminal until it quits, is interrupted or ctx is done, none of
// which is an error.
func Run(ctx context.Context, m tea.Model, in io.Reader, out io.Writer) (tea.Model, error) {
	// Signals end ctx, which the command's caller sees to.
	last, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithEnvironment(os.Environ()), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		err = nil
	}
	return last, err
}
