// Package top is the screen of semel top: what happens on all nodes of a service, drawn anew
// from time to time.
package top

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/cmd/semel/internal/screen"
)

// Snapshot is what is shown at one time.
type Snapshot struct {
	Figures *admin.Figures
	// Attempts are nil as long as the node hasn't counted them.
	Attempts *admin.Attempts
}

// Fetch asks for what happened in the last d. It has a limit of time by itself.
type Fetch func(d time.Duration) (*Snapshot, error)

// Windows are how far back a screen can look.
var Windows = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// Options configures [New].
type Options struct {
	Fetch Fetch
	// Service is how the service is named at the top.
	Service string
	// Interval is between an answer and the next question.
	Interval time.Duration
	// Window is one of Windows.
	Window time.Duration
	Sort   Column
	Ink    screen.Ink
	// Now is the clock of this machine.
	Now func() time.Time
}

// Model is the screen, for bubbletea. It asks one question at a time.
type Model struct {
	opts          Options
	width, height int

	shown    *Snapshot
	at       time.Time // when it was asked for
	err      error     // of the last question
	sort     Column
	reversed bool
	window   int // index in Windows
	paused   bool
	asked    int // number of the newest question
	waiting  bool
}

// New makes the screen.
func New(opts Options) *Model {
	m := &Model{opts: opts, sort: opts.Sort, width: 80, height: 24}
	for i, d := range Windows {
		if d == opts.Window {
			m.window = i
		}
	}
	return m
}

type (
	// answerMsg is the answer to one question.
	answerMsg struct {
		number int
		shown  *Snapshot
		err    error
		at     time.Time
	}
	// tickMsg says that it is time for the next question.
	tickMsg struct{ after int }
)

// Init asks the first question.
func (m *Model) Init() tea.Cmd { return m.ask() }

// ask asks a question. The answer to an older one is then not shown any more.
func (m *Model) ask() tea.Cmd {
	m.asked++
	m.waiting = true
	number, d := m.asked, Windows[m.window]
	return func() tea.Msg {
		at := m.opts.Now()
		shown, err := m.opts.Fetch(d)
		return answerMsg{number, shown, err, at}
	}
}

// Update is [tea.Model.Update].
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case answerMsg:
		if msg.number != m.asked {
			break
		}
		m.waiting = false
		if m.err = msg.err; msg.err == nil {
			m.shown, m.at = msg.shown, msg.at
		}
		number := msg.number
		return m, tea.Tick(m.opts.Interval, func(time.Time) tea.Msg { return tickMsg{number} })
	case tickMsg:
		if msg.after == m.asked && !m.paused {
			return m, m.ask()
		}
	}
	return m, nil
}

func (m *Model) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "s":
		m.sort = (m.sort + 1) % columns
	case "S":
		m.sort = (m.sort + columns - 1) % columns
	case "r":
		m.reversed = !m.reversed
	case "+", "=":
		return m.look(min(m.window+1, len(Windows)-1))
	case "-":
		return m.look(max(m.window-1, 0))
	case "p", "space":
		if m.paused = !m.paused; !m.paused && !m.waiting {
			return m.ask()
		}
	case "enter":
		if !m.waiting {
			return m.ask()
		}
	}
	return nil
}

// look changes how far back the screen looks.
func (m *Model) look(window int) tea.Cmd {
	if window == m.window {
		return nil
	}
	m.window = window
	return m.ask()
}
