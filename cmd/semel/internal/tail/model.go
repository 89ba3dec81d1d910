package tail

import (
	"fmt"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/semelhq/semel/cmd/semel/internal/screen"
)

// Kept is how many events a screen keeps: as many as a node does. It bounds its memory.
const Kept = 4096

// Batch is what has come since the batch before. After one with Err nothing else comes.
type Batch struct {
	Events []Event
	// Lost says why the stream broke off; it is being opened again. Empty: it is open.
	Lost string
	Err  error
}

// Options configures [New].
type Options struct {
	// Next waits for the next batch; it reports false when there is none any more.
	Next func() (Batch, bool)
	// Why tells the story of a record, by its name.
	Why func(record string) (string, error)
	// Service is how the service is named at the top.
	Service string
	// Filter is the text to begin with.
	Filter string
	Ink    screen.Ink
}

// Model is the screen, for bubbletea.
type Model struct {
	opts          Options
	width, height int

	events []Event // the oldest first, at most Kept
	frozen []Event // those that were there when it was paused; nil: it isn't
	missed int     // events that came meanwhile
	lost   string
	ended  error

	input   screen.Input
	editing bool
	applied string // the text of the filter
	filter  Filter
	wrong   string // what is wrong with the text that is typed

	shown    []int  // indexes of the events that are selected, the oldest first
	selected uint64 // number of the event that keys act on; zero: the newest
	count    uint64 // events that have come
	pane     *pane  // nil: closed
}

// pane is the story of a record.
type pane struct {
	record string
	title  string
	text   string
	told   bool // the text is there
	from   int  // the first line that is seen
}

type (
	batchMsg struct {
		Batch
		more bool
	}
	whyMsg struct {
		record, text string
		err          error
	}
)

// New makes the screen.
func New(opts Options) (*Model, error) {
	m := &Model{opts: opts, width: 80, height: 24, applied: opts.Filter}
	m.input.Set(opts.Filter)
	var err error
	m.filter, err = ParseFilter(opts.Filter)
	return m, err
}

// Err is why the stream ended, once it has.
func (m *Model) Err() error { return m.ended }

// Init waits for the first events.
func (m *Model) Init() tea.Cmd { return m.next }

func (m *Model) next() tea.Msg {
	b, more := m.opts.Next()
	return batchMsg{b, more}
}

// Update is [tea.Model.Update].
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case batchMsg:
		return m, m.take(msg)
	case whyMsg:
		m.tell(msg)
	case tea.PasteMsg:
		if m.editing {
			m.input.Insert(msg.Content)
			m.typed()
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// take adds a batch, and forgets the oldest events.
func (m *Model) take(b batchMsg) tea.Cmd {
	if !b.more {
		return nil
	}
	m.lost = b.Lost
	if b.Err != nil {
		m.ended = b.Err
		return tea.Quit
	}
	for _, e := range b.Events {
		m.count++
		e.number = m.count
		m.events = append(m.events, e)
	}
	if extra := len(m.events) - Kept; extra > 0 {
		m.events = append(m.events[:0], m.events[extra:]...)
		clear(m.events[len(m.events):cap(m.events)])
	}
	if m.frozen != nil {
		m.missed += len(b.Events)
	} else {
		m.selectShown()
	}
	return m.next
}

// listed are the events that are looked at.
func (m *Model) listed() []Event {
	if m.frozen != nil {
		return m.frozen
	}
	return m.events
}

// selectShown finds the events that the filter selects.
func (m *Model) selectShown() {
	m.shown = m.shown[:0]
	all := m.listed()
	for i := range all {
		if m.filter.Matches(&all[i]) {
			m.shown = append(m.shown, i)
		}
	}
}

// cursor is the index in shown of the event that keys act on; -1 if there is none. An event
// that is gone is followed by the oldest.
func (m *Model) cursor() int {
	if m.selected == 0 {
		return len(m.shown) - 1
	}
	all := m.listed()
	for i, at := range m.shown {
		if all[at].number == m.selected {
			return i
		}
	}
	return min(0, len(m.shown)-1)
}

// move selects another event; the newest is followed as more come.
func (m *Model) move(by int) {
	if len(m.shown) == 0 {
		return
	}
	to := min(max(m.cursor()+by, 0), len(m.shown)-1)
	if m.selected = m.listed()[m.shown[to]].number; to == len(m.shown)-1 {
		m.selected = 0
	}
}

func (m *Model) key(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.pane != nil:
		return m.paneKey(name)
	case m.editing:
		return m.editKey(key)
	}
	switch name {
	case "q":
		return tea.Quit
	case "/", "f":
		m.editing = true
		m.input.Set(m.applied)
	case "esc":
		m.use("")
		m.selected = 0
	case "p", "space":
		m.pause()
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.rows())
	case "pgdown":
		m.move(m.rows())
	case "home", "g":
		m.move(-Kept)
	case "end", "G":
		m.move(Kept)
	case "enter":
		return m.open()
	}
	return nil
}

// pause keeps what is seen as it is, while events are still gathered, or goes on.
func (m *Model) pause() {
	if m.frozen != nil {
		m.frozen, m.missed = nil, 0
	} else {
		m.frozen = append([]Event{}, m.events...)
	}
	m.selectShown()
}

// editKey types into the filter, which counts at once.
func (m *Model) editKey(key tea.KeyPressMsg) tea.Cmd {
	switch key.String() {
	case "enter":
		if f, err := ParseFilter(m.input.Text()); err != nil {
			m.wrong = err.Error()
		} else {
			m.editing, m.wrong, m.applied, m.filter = false, "", m.input.Text(), f
			m.selectShown()
		}
	case "esc":
		m.use(m.applied)
	default:
		if m.input.Type(key) {
			m.typed()
		}
	}
	return nil
}

// typed filters by what is typed until now. While that says nothing, the filter before
// counts.
func (m *Model) typed() {
	f, err := Open(m.input.Text())
	if err != nil {
		m.wrong = err.Error()
		return
	}
	m.wrong, m.filter = "", f
	m.selectShown()
}

// use filters by a text that is right.
func (m *Model) use(text string) {
	if f, err := ParseFilter(text); err == nil {
		m.editing, m.wrong, m.applied, m.filter = false, "", text, f
		m.selectShown()
	}
}

// open asks for the story of the selected event's record.
func (m *Model) open() tea.Cmd {
	at := m.cursor()
	if at < 0 {
		return nil
	}
	e := m.listed()[m.shown[at]]
	if e.Record == "" {
		return nil
	}
	m.selected = e.number // it isn't to move while it is read about
	m.pane = &pane{record: e.Record, title: plain(e.ID.Operation + " " + e.ID.Key)}
	return m.ask(e.Record)
}

func (m *Model) ask(record string) tea.Cmd {
	return func() tea.Msg {
		text, err := m.opts.Why(record)
		return whyMsg{record, text, err}
	}
}

// tell shows a story, if somebody still waits for it.
func (m *Model) tell(msg whyMsg) {
	if m.pane == nil || m.pane.record != msg.record {
		return
	}
	if msg.err != nil {
		msg.text = "There is no answer: " + plain(msg.err.Error())
	}
	m.pane.text, m.pane.told = msg.text, true
}

// lines are the story as it fits a width: what is longer goes on in the next line, because
// commands are there to be copied.
func (p *pane) lines(width int) (lines []string) {
	for line := range strings.Lines(p.text) {
		wrapped := ansi.Hardwrap(plain(strings.TrimRight(line, "\n")), max(width, 1), true)
		lines = append(lines, strings.Split(wrapped, "\n")...)
	}
	return lines
}

// paneKey scrolls the story, or closes it.
func (m *Model) paneKey(name string) tea.Cmd {
	p, page := m.pane, max(m.height-2, 1)
	last := max(len(p.lines(m.width))-page, 0)
	switch name {
	case "esc", "q", "backspace", "left":
		m.pane = nil
	case "up", "k":
		p.from = max(p.from-1, 0)
	case "down", "j":
		p.from = min(p.from+1, last)
	case "pgup":
		p.from = max(p.from-page, 0)
	case "pgdown", "space":
		p.from = min(p.from+page, last)
	case "home", "g":
		p.from = 0
	case "end", "G":
		p.from = last
	case "r":
		return m.ask(p.record)
	}
	return nil
}

// rows is how many events there is room for.
func (m *Model) rows() int { return max(m.height-3, 1) }

// View is [tea.Model.View].
func (m *Model) View() tea.View {
	text := m.list()
	if m.pane != nil {
		text = m.story()
	}
	v := tea.NewView(text)
	v.AltScreen, v.WindowTitle = true, "semel tail"
	return v
}

func (m *Model) list() string {
	ink := m.opts.Ink
	state := ink.Green("live")
	switch {
	case m.frozen != nil && m.missed > 0:
		state = ink.Yellow("paused, " + strconv.Itoa(m.missed) + " new")
	case m.frozen != nil:
		state = ink.Yellow("paused")
	case m.lost != "":
		state = ink.Red("connecting again: " + plain(m.lost))
	}
	body := []string{strings.Join([]string{ink.Bold("semel tail"), plain(m.opts.Service), state, fmt.Sprintf("%d of %d", len(m.shown), len(m.listed()))}, "  ")}
	switch {
	case m.editing:
		body = append(body, "filter: "+m.input.View(ink, max(m.width-9, 10)))
	case m.applied != "":
		body = append(body, "filter: "+ink.Bold(plain(m.applied)))
	default:
		body = append(body, ink.Faint("all events of this node; / filters them"))
	}
	at, all := m.cursor(), m.listed()
	first := max(len(m.shown)-m.rows(), 0)
	if m.selected != 0 { // the selected one stays in the middle
		first = min(max(at-m.rows()/2, 0), first)
	}
	if len(m.shown) == 0 {
		hint := "Waiting for the first delivery."
		if len(all) > 0 {
			hint = "No event is selected. A word is any name of a call; operation:, key:, state: and decision: select more."
		}
		body = append(body, ink.Faint(hint))
	}
	for i := first; i < min(first+m.rows(), len(m.shown)); i++ {
		line := all[m.shown[i]].Line(ink, max(m.width-2, 1))
		if i == at {
			line = ink.Selected("> " + screen.Pad(line, max(m.width-2, 1)))
		} else {
			line = "  " + line
		}
		body = append(body, line)
	}
	keys := []string{"q quit", "/ filter", "p pause", "j k select", "Enter why", "Esc all"}
	if m.frozen != nil {
		keys[2] = "p go on"
	}
	foot := ink.Faint(strings.Join(keys, "  "))
	switch {
	case m.wrong != "":
		foot = ink.Red(plain(m.wrong))
	case m.editing:
		foot = ink.Faint("Enter keeps the filter  Esc goes back  key:order* operation:pay* state:failed decision:replay -decision:execute")
	}
	return screen.Fit(body, []string{foot}, m.width, m.height)
}

func (m *Model) story() string {
	ink, p := m.opts.Ink, m.pane
	body := []string{ink.Bold("why " + p.title)}
	lines := p.lines(m.width)
	if !p.told {
		body = append(body, ink.Faint("Asking…"))
	}
	foot := "Esc back  j k scroll  r ask again"
	if p.from < len(lines) {
		body = append(body, lines[p.from:]...)
	}
	if left := len(lines) - p.from - max(m.height-2, 1); left > 0 {
		foot += "  " + strconv.Itoa(left) + " more lines"
	}
	return screen.Fit(body, []string{ink.Faint(foot)}, m.width, m.height)
}
