package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/cmd/semel/internal/screen"
	"github.com/semelhq/semel/store"
)

// Column is what operations are sorted by.
type Column int

// The columns, in the order in which a key goes through them.
const (
	Duplicates Column = iota
	Deliveries
	Share
	Simultaneous
	Failed
	Name
	columns
)

var columnNames = [columns]string{"duplicates", "deliveries", "share", "simultaneous", "failed", "name"}

// String is the column's name.
func (c Column) String() string { return columnNames[c] }

// ColumnNames are the names of all columns.
func ColumnNames() []string { return columnNames[:] }

// ParseColumn finds a column by its name.
func ParseColumn(name string) (c Column, ok bool) {
	i := slices.Index(columnNames[:], name)
	return Column(max(i, 0)), i >= 0
}

// View is [tea.Model.View].
func (m *Model) View() tea.View {
	v := tea.NewView(screen.Fit(m.lines(), m.foot(), m.width, m.height))
	v.AltScreen, v.WindowTitle = true, "semel top"
	return v
}

func (m *Model) foot() []string {
	order := m.sort.String()
	if m.reversed {
		order += ", reversed"
	}
	pause := "p pause"
	if m.paused {
		pause = "p go on"
	}
	return []string{m.opts.Ink.Faint(strings.Join(screen.Flow([]string{"q quit", "s sort: " + order, "+/- time", pause, "r reverse"}, 0), ""))}
}

// lines are everything above the keys.
func (m *Model) lines() []string {
	ink := m.opts.Ink
	state := "every " + m.opts.Interval.String()
	switch {
	case m.paused:
		state = ink.Yellow("paused")
	case m.err != nil && m.shown != nil:
		state = ink.Red("as it was " + short(m.opts.Now().Sub(m.at)) + " ago")
	}
	head := screen.Flow([]string{ink.Bold("semel top"), plain(m.opts.Service), "last " + short(Windows[m.window]), state}, m.width)
	if m.err != nil {
		head = append(head, ink.Red("No answer, asking again: "+plain(m.err.Error())))
	}
	if m.shown == nil {
		if m.err == nil {
			head = append(head, "Asking…")
		}
		return head
	}
	room := m.height - len(head) - 1
	return append(head, m.shown.lines(m.sort, m.reversed, m.width, room, ink)...)
}

// Text is the snapshot for a pipe, with nothing left out. A width of zero is no limit.
func (s *Snapshot) Text(sort Column, width int, ink screen.Ink) string {
	return strings.Join(s.lines(sort, false, width, 0, ink), "\n") + "\n"
}

// roomForCurve is from how many lines on the curve of deliveries is drawn.
const roomForCurve = 18

// lines are the snapshot, on so many lines; zero is no limit.
func (s *Snapshot) lines(sort Column, reversed bool, width, room int, ink screen.Ink) []string {
	f := s.Figures
	var lines []string
	if f.Alone {
		lines = append(lines, ink.Red("The store doesn't answer: these are the figures of the node that was asked, without the newest of others"))
	}
	lines = append(lines, s.totals(width, ink)...)
	lines = append(lines, "")
	if line := sparkline(f, width); line != "" && (room == 0 || room >= roomForCurve) {
		lines = append(lines, line, "")
	}
	decisions := decisionTable(f, ink)
	operations := operationTable(f, sort, reversed, ink)
	repeated := repeatedTable(f)
	if len(f.Operations) == 0 {
		return append(lines, decisions.lines(width, 0)...)
	}
	lines = append(lines, decisions.lines(width, 0)...)
	lines = append(lines, "")
	left := 0 // no limit
	if room > 0 {
		left = max(room-len(lines)-1, 2) // and an empty line between the two tables
		half := max(left/2, 2)
		few := min(len(operations.rows)+1, max(half, left-len(repeated.rows)-1))
		lines = append(lines, operations.lines(width, few)...)
		left -= few
	} else {
		lines = append(lines, operations.lines(width, 0)...)
	}
	if len(repeated.rows) > 0 && (room == 0 || left >= 2) {
		lines = append(lines, "")
		lines = append(lines, repeated.lines(width, left)...)
	}
	return lines
}

// totals are the sums, and what is open at the moment.
func (s *Snapshot) totals(width int, ink screen.Ink) []string {
	f, t := s.Figures, &s.Figures.Total
	lines := screen.Flow([]string{
		"deliveries " + ink.Bold(number(t.Deliveries)), "executed " + number(t.Executed),
		"duplicates " + ink.Bold(number(t.Duplicates)) + " (" + percent(t.DuplicateShare) + ")", "simultaneous " + number(t.Simultaneous),
		"failed " + alarming(ink, t.FailedAttempts), "refused " + number(t.Refused),
	}, width)
	items := []string{}
	for i := len(f.Points) - 1; i >= 0; i-- {
		if p := &f.Points[i]; p.Deliveries > 0 {
			items = append(items, "added p50 "+latency(p.P50), "p99 "+latency(p.P99)+" ("+p.At.UTC().Format("15:04")+")")
			break
		}
	}
	if a := s.Attempts; a != nil {
		held := "held " + strconv.Itoa(a.Held)
		if a.Held > 0 {
			held = ink.Yellow(held + " (oldest " + short(a.OldestHeld) + ")")
		}
		flying := "in flight " + strconv.Itoa(a.InFlight)
		if a.InFlight > 0 {
			flying += " (oldest " + short(a.OldestInFlight) + ")"
		}
		items = append(items, flying, held)
		if f.Alone {
			items = append(items, "as counted last")
		}
	} else {
		items = append(items, "in flight and held: not counted yet")
	}
	nodes := strconv.Itoa(f.Nodes) + " nodes"
	if f.Nodes == 1 {
		nodes = "1 node"
	}
	return append(lines, screen.Flow(append(items, nodes), width)...)
}

func alarming(ink screen.Ink, n int64) string {
	if n == 0 {
		return "0"
	}
	return ink.Red(number(n))
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the deliveries of the last steps, as many as there is room for.
func sparkline(f *admin.Figures, width int) string {
	what := " deliveries a minute"
	if f.StepSeconds >= 3600 {
		what = " deliveries an hour"
	}
	points := f.Points
	if most := max(width, 80) - len(what); width > 0 && width < 80 {
		points = points[max(len(points)-max(width-len(what), 0), 0):]
	} else if len(points) > most {
		points = points[len(points)-most:]
	}
	var top int64
	for i := range points {
		top = max(top, points[i].Deliveries)
	}
	if top == 0 || len(points) == 0 {
		return ""
	}
	var b strings.Builder
	for i := range points {
		b.WriteRune(bars[points[i].Deliveries*int64(len(bars)-1)/top])
	}
	return b.String() + what
}

// decisions are all that a delivery can get.
var decisions = []semel.Decision{
	semel.Execute, semel.Replay, semel.InFlight, semel.Conflict, semel.Held, semel.TooLate, semel.Throttled, semel.OtherDoor, semel.OtherCaller, semel.Superseded, semel.SequenceGap,
}

func decisionTable(f *admin.Figures, ink screen.Ink) *table {
	counts := map[semel.Decision]int64{}
	for _, s := range f.Series {
		counts[semel.Decision(s.What)] += s.Count
	}
	t := &table{head: []string{"DECISION", "DELIVERIES", "SHARE"}}
	for _, d := range decisions {
		if n := counts[d]; n > 0 {
			t.rows = append(t.rows, []string{string(d), number(n), percent(float64(n) / float64(max(f.Total.Deliveries, 1)))})
		}
	}
	if len(t.rows) == 0 {
		return &table{head: []string{ink.Faint("Nothing was delivered in this time.")}}
	}
	return t
}

func operationTable(f *admin.Figures, by Column, reversed bool, ink screen.Ink) *table {
	sorted := slices.Clone(f.Operations)
	slices.SortStableFunc(sorted, func(a, b admin.Operation) int {
		order := 0
		switch by {
		case Duplicates:
			order = cmp.Compare(b.Duplicates, a.Duplicates)
		case Deliveries:
			order = cmp.Compare(b.Deliveries, a.Deliveries)
		case Share:
			order = cmp.Compare(b.DuplicateShare, a.DuplicateShare)
		case Simultaneous:
			order = cmp.Compare(b.Simultaneous, a.Simultaneous)
		case Failed:
			order = cmp.Compare(b.FailedAttempts, a.FailedAttempts)
		}
		if order = cmp.Or(order, cmp.Compare(a.Operation, b.Operation)); reversed {
			return -order
		}
		return order
	})
	t := &table{head: []string{"OPERATION", "DUPLICATES", "SHARE", "DELIVERIES", "SIMULTANEOUS", "FAILED"}}
	for i := range sorted {
		o := &sorted[i]
		t.rows = append(t.rows, []string{plain(o.Operation), number(o.Duplicates), percent(o.DuplicateShare), number(o.Deliveries), number(o.Simultaneous), alarming(ink, o.FailedAttempts)})
	}
	return t
}

func repeatedTable(f *admin.Figures) *table {
	t := &table{head: []string{"REPEATED KEY", "DUPLICATES", "OPERATION", "PEAK/MIN", "LAST"}, left: 2}
	for i := range f.Repeated {
		r := &f.Repeated[i]
		key := r.Record
		if id, err := store.DecodeID(r.Record); err == nil {
			key = id.Key
		}
		t.rows = append(t.rows, []string{plain(key), number(r.Duplicates), plain(r.Operation), number(r.Peak), short(f.To.Sub(r.Last)) + " ago"})
	}
	return t
}

// plain is a text that others chose, without what a terminal would obey.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// number writes 1234567 as 1,234,567.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// latency is a time in seconds, with about two digits.
func latency(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(seconds*1000, 'f', 1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
}

// short is a duration in its largest unit.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(max(d, 0)/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}
