package top

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/semelhq/semel/cmd/semel/internal/admin"
	"github.com/semelhq/semel/cmd/semel/internal/screen"
	"github.com/semelhq/semel/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs; go test -update writes it anew. Got:\n%s", file, text)
	}
}

var now = time.Date(2026, 11, 25, 20, 15, 30, 0, time.UTC)

// busy is what a service with many operations tells.
func busy(t *testing.T) *Snapshot {
	t.Helper()
	id := func(operation, key string) string {
		return store.ID{Tenant: "acme", Principal: "shop", Operation: operation, Key: key}.Encode()
	}
	text, err := json.Marshal(map[string]any{
		"from": now.Add(-time.Hour), "to": now, "step_seconds": 60, "nodes": 3,
		"total": map[string]any{"deliveries": 1234567, "executed": 1100000, "duplicates": 134567, "duplicate_share": 0.109, "simultaneous": 4211, "failed_attempts": 12, "refused": 7},
		"operations": []any{
			map[string]any{"operation": "payments.charge@2", "deliveries": 900000, "duplicates": 100000, "duplicate_share": 0.1111, "simultaneous": 4000, "failed_attempts": 12},
			map[string]any{"operation": "orders.place", "deliveries": 300000, "duplicates": 34000, "duplicate_share": 0.1133, "simultaneous": 211},
			map[string]any{"operation": "mail.\x1b[31msend", "deliveries": 34567, "duplicates": 567, "duplicate_share": 0.0164},
		},
		"series": []any{
			map[string]any{"door": "http", "operation": "payments.charge@2", "what": "execute", "count": 1100000},
			map[string]any{"door": "http", "operation": "payments.charge@2", "what": "replay", "count": 130000},
			map[string]any{"door": "api", "operation": "orders.place", "what": "replay", "count": 4000},
			map[string]any{"door": "api", "operation": "orders.place", "what": "conflict", "count": 567},
			map[string]any{"door": "http", "operation": "orders.place", "what": "simultaneous", "count": 4211},
		},
		"points": []any{
			map[string]any{"at": now.Add(-3 * time.Minute), "deliveries": 10}, map[string]any{"at": now.Add(-2 * time.Minute), "deliveries": 80},
			map[string]any{"at": now.Add(-time.Minute), "deliveries": 40, "added_p50_seconds": 0.00042, "added_p99_seconds": 0.0131}, map[string]any{"at": now, "deliveries": 0},
		},
		"repeated": []any{
			map[string]any{"record": id("payments.charge@2", "order-7731"), "operation": "payments.charge@2", "duplicates": 4100, "peak": 310, "last": now.Add(-4 * time.Second)},
			map[string]any{"record": id("orders.place", "a very long key that somebody has chosen"), "operation": "orders.place", "duplicates": 12, "peak": 1, "last": now.Add(-40 * time.Minute)},
		},
	})
	s := &Snapshot{Figures: &admin.Figures{}, Attempts: &admin.Attempts{InFlight: 4, Held: 2, OldestInFlight: 2 * time.Second, OldestHeld: 3 * time.Hour}}
	if err == nil {
		err = json.Unmarshal(text, s.Figures)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// screenOf makes a screen of a size, and what answers its questions.
func screenOf(t *testing.T, width, height int, fetch Fetch) *Model {
	t.Helper()
	m := New(Options{Fetch: fetch, Service: "http://127.0.0.1:8481", Interval: 2 * time.Second, Window: time.Hour, Now: func() time.Time { return now }})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

// answer carries out a question.
func answer(t *testing.T, m *Model, ask tea.Cmd) {
	t.Helper()
	if ask == nil {
		t.Fatal("nothing is asked")
	}
	m.Update(ask())
}

func key(name string) tea.KeyPressMsg {
	if name == "ctrl+c" {
		return tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

func press(m *Model, name string) tea.Cmd {
	_, cmd := m.Update(key(name))
	return cmd
}

func view(m *Model) string { return m.View().Content }

func TestViews(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
	}{{"80x24.txt", 80, 24}, {"40x24.txt", 40, 24}, {"120x40.txt", 120, 40}, {"80x12.txt", 80, 12}} {
		m := screenOf(t, test.width, test.height, func(time.Duration) (*Snapshot, error) { return busy(t), nil })
		answer(t, m, m.Init())
		text := view(m)
		golden(t, test.name, text+"\n")
		lines := strings.Split(text, "\n")
		if len(lines) != test.height {
			t.Errorf("%s has %d lines", test.name, len(lines))
		}
		for _, line := range lines {
			if ansi.StringWidth(line) > test.width || strings.Contains(line, "\x1b") {
				t.Errorf("%s has the line %q", test.name, line)
			}
		}
	}
	golden(t, "once.txt", busy(t).Text(Duplicates, 0, screen.Ink{}))
}

func TestAQuietService(t *testing.T) {
	m := screenOf(t, 40, 10, func(time.Duration) (*Snapshot, error) {
		return &Snapshot{Figures: &admin.Figures{Nodes: 1, StepSeconds: 60}}, nil
	})
	if text := view(m); !strings.Contains(text, "Asking…") {
		t.Error(text)
	}
	answer(t, m, m.Init())
	if text := view(m); !strings.Contains(text, "Nothing was delivered in this time.") || !strings.Contains(text, "not counted yet") || !strings.Contains(text, "1 node") {
		t.Error(text)
	}
}

func TestKeys(t *testing.T) {
	var asked []time.Duration
	m := screenOf(t, 80, 30, func(d time.Duration) (*Snapshot, error) {
		asked = append(asked, d)
		return busy(t), nil
	})
	first := func() string {
		_, rest, _ := strings.Cut(view(m), "OPERATION  ")
		return strings.Fields(strings.Split(rest, "\n")[1])[0]
	}
	answer(t, m, m.Init())
	if first() != "payments.charge@2" {
		t.Errorf("%s is first by duplicates", first())
	}
	press(m, "s")
	press(m, "s")
	if text := view(m); first() != "orders.place" || !strings.Contains(text, "s sort: share") {
		t.Errorf("%s is first by share\n%s", first(), text)
	}
	press(m, "r")
	if text := view(m); !strings.HasPrefix(first(), "mail.") || !strings.Contains(text, "share, reversed") {
		t.Errorf("%s is first in reverse\n%s", first(), text)
	}
	answer(t, m, press(m, "+"))
	if got := asked[len(asked)-1]; got != 3*time.Hour || !strings.Contains(view(m), "last 3h") {
		t.Errorf("asked for %v", got)
	}
	answer(t, m, press(m, "-"))
	answer(t, m, press(m, "-"))
	if got := asked[len(asked)-1]; got != 15*time.Minute {
		t.Errorf("asked for %v", got)
	}
	m.window = 0
	if press(m, "-") != nil {
		t.Error("it asks for less than the shortest time")
	}
	press(m, "p")
	if _, cmd := m.Update(tickMsg{m.asked}); cmd != nil || !strings.Contains(view(m), "paused") {
		t.Errorf("it asks while it is paused:\n%s", view(m))
	}
	answer(t, m, press(m, "p"))
	for _, name := range []string{"q", "ctrl+c"} {
		if cmd := press(m, name); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s doesn't quit", name)
		}
	}
}

// Answers that come late, or not at all, don't take the place of what is known.
func TestTroubleIsShown(t *testing.T) {
	var fail error
	m := screenOf(t, 80, 24, func(time.Duration) (*Snapshot, error) { return busy(t), fail })
	clock := now
	m.opts.Now = func() time.Time { return clock }
	answer(t, m, m.Init())
	fail = errors.New("the service can't be reached: \x1b[31mrefused")
	_, ask := m.Update(tickMsg{m.asked})
	answer(t, m, ask)
	clock = now.Add(90 * time.Second)
	text := view(m)
	for _, want := range []string{"No answer, asking again: the service can't be reached", "as it was 1m ago", "payments.charge@2"} {
		if !strings.Contains(text, want) {
			t.Errorf("it doesn't say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	fail = nil
	old := m.ask()
	answer(t, m, m.ask())
	before := m.asked
	if _, cmd := m.Update(old()); cmd != nil || m.asked != before {
		t.Error("the answer to an older question counts")
	}
	if _, cmd := m.Update(tickMsg{m.asked - 1}); cmd != nil {
		t.Error("the tick of an older question asks")
	}
	if text := view(m); strings.Contains(text, "No answer") {
		t.Error(text)
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	for s, want := range map[float64]string{0: "0µs", 0.00042: "420µs", 0.0031: "3.1ms", 0.25: "250ms", 2.5: "2.5s"} {
		if got := latency(s); got != want {
			t.Errorf("%v is %s", s, got)
		}
	}
	for _, name := range ColumnNames() {
		if c, ok := ParseColumn(name); !ok || c.String() != name {
			t.Errorf("%s is the column %v", name, c)
		}
	}
	if _, ok := ParseColumn("size"); ok {
		t.Error("there is no column size")
	}
}

// Figures of one node aren't shown as those of all.
func TestWhileTheStoreIsAway(t *testing.T) {
	s := busy(t)
	if got := s.Text(Duplicates, 0, screen.Ink{}); strings.Contains(got, "The store doesn't answer") || strings.Contains(got, "counted last") {
		t.Error(got)
	}
	s.Figures.Alone = true
	if got := s.Text(Duplicates, 0, screen.Ink{}); !strings.HasPrefix(got, "The store doesn't answer: ") || !strings.Contains(got, "as counted last") {
		t.Error(got)
	}
	m := screenOf(t, 40, 24, func(time.Duration) (*Snapshot, error) { return s, nil })
	answer(t, m, m.Init())
	for line := range strings.Lines(view(m)) {
		if ansi.StringWidth(strings.TrimSuffix(line, "\n")) > 40 {
			t.Errorf("a line is too wide: %q", line)
		}
	}
}
