package top

import (
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/semelhq/semel/cmd/semel/internal/screen"
)

// minName is how many cells the first column of a table keeps, before others are left out.
const minName = 12

// table has a column of names, and numbers behind it.
type table struct {
	head []string
	rows [][]string
	left int // another column with text on the left; zero: none
}

// lines draw the table with so many rows at most, its head included; zero is no limit. In a
// width that is too small, columns are left out from the right.
func (t *table) lines(width, most int) []string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	shown, used := 1, 0
	for shown < len(widths) && (width <= 0 || used+2+widths[shown]+min(widths[0], minName) <= width) {
		used += 2 + widths[shown]
		shown++
	}
	if width > 0 {
		widths[0] = min(widths[0], width-used)
	}
	rows := t.rows
	hidden := 0
	if most > 0 && len(rows) > most-1 {
		rows = rows[:max(most-2, 0)]
		hidden = len(t.rows) - len(rows)
	}
	lines := []string{t.line(t.head[:shown], widths)}
	for _, row := range rows {
		lines = append(lines, t.line(row[:shown], widths))
	}
	if hidden > 0 {
		lines = append(lines, "and "+strconv.Itoa(hidden)+" more")
	}
	return lines
}

func (t *table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		switch {
		case i == 0 || i == t.left:
			cell = screen.Pad(cell, widths[i])
		default:
			cell = screen.PadLeft(cell, widths[i])
		}
		if i > 0 {
			b.WriteString("  ")
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}
