package tail

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
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

// TestMain shows times in UTC, whatever the machine's zone is.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

var errForbidden = &semel.Error{Code: semel.CodeForbidden, Message: "not any more"}

var start = time.Date(2026, 11, 25, 20, 15, 30, 123e6, time.UTC)

// told is an event as a service sends it, so many seconds after start.
func told(seq int, kind, operation, key string, members map[string]any) client.Event {
	data := map[string]any{"at": start.Add(time.Duration(seq) * time.Second)}
	if operation != "" {
		data["record"] = store.ID{Tenant: "acme", Principal: "shop", Operation: operation, Key: key}.Encode()
	}
	maps.Copy(data, members)
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return client.Event{ID: fmt.Sprint(seq), Type: kind, Data: text}
}

// day is one event of each kind.
func day(t *testing.T) []Event {
	t.Helper()
	var all []Event
	for _, ev := range []client.Event{
		told(1, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "execute", "attempt": 1, "status": "processing"}),
		told(2, "ended", "payments.charge@2", "order-1", map[string]any{"disposition": "completed", "took_ms": 1250, "by": "holder", "attempt": 1}),
		told(3, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "replay", "status": "completed", "attempt": 1, "waited_ms": 30}),
		told(4, "decided", "payments.charge@2", "order-1", map[string]any{"decision": "conflict", "status": "completed", "attempt": 1}),
		told(5, "ended", "payments.charge@2", "order-2", map[string]any{"held": true, "held_reason": "the upstream did not answer", "took_ms": 5000, "by": "holder", "attempt": 2}),
		told(6, "decided", "payments.charge@2", "order-2", map[string]any{"decision": "held", "status": "processing", "attempt": 2}),
		told(7, "ended", "mail.send", "a key with \x1b[31mcolor", map[string]any{"disposition": "rejected", "took_ms": 3, "by": "operator", "reason": "no such address"}),
		told(8, "decided", "mail.send", "m-1", map[string]any{"decision": "throttled", "limit": "duplicates", "status": "completed", "attempt": 1}),
		told(9, "lease_lost", "mail.send", "m-2", map[string]any{"attempt": 3, "reason": "the lease was lost"}),
		told(10, "purged", "", "", map[string]any{"count": 40}),
		told(11, "gap", "", "", nil),
	} {
		e, err := Parse(ev)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestFilters(t *testing.T) {
	all := day(t)
	seqs := func(f Filter) string {
		var found []string
		for i := range all {
			if f.Matches(&all[i]) && all[i].Kind != "gap" {
				found = append(found, all[i].Seq)
			}
		}
		return strings.Join(found, " ")
	}
	for text, want := range map[string]string{
		"":                                     "1 2 3 4 5 6 7 8 9 10",
		"order-1":                              "1 2 3 4",
		"order-*":                              "1 2 3 4 5 6",
		`"order-1"`:                            "1 2 3 4",
		"operation:mail.*":                     "7 8 9",
		"-operation:mail.*":                    "1 2 3 4 5 6",
		"operation:mail.send OR key:order-2":   "5 6 7 8 9",
		"(key:m-1 OR key:m-2) -key:m-1":        "9",
		"held":                                 "5 6",
		"state:rejected":                       "7",
		"state:processing":                     "1 5 6",
		"decision:replay":                      "3",
		"decision:replay decision:conflict":    "3 4",
		"-decision:execute order-1":            "2 3 4",
		"tenant:acme principal:shop key:m-*":   "8 9",
		"tenant:other":                         "",
		"call:" + all[4].ID.Encode():           "5 6",
		all[4].ID.Encode() + " decision:held":  "6",
		`key:"a key with \x1b[31mcolor"`:       "7",
		"operation:payments.charge@2 -order-1": "5 6",
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := seqs(f); got != want {
			t.Errorf("%s selects %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"decision:replya":              "did you mean replay?",
		"decision:zzz":                 "there is no decision",
		"(decision:replay OR held)":    "can't stand in parentheses",
		"decision:replay OR held":      "exclude each other",
		"attribute:order=1":            "events have no attributes",
		"-(fingerprint:1:ab held)":     "events have no attributes",
		"created<1h":                   "events have no attributes",
		"oporation:x":                  "did you mean operation?",
		"state:":                       "has an empty value",
		`key:"x`:                       "doesn't end",
		"order-1 after:2026-01-01":     "semel records watch",
		"key:a key:b":                  "given twice",
		"-decision:nothing-like-it":    "there is no decision",
		"decision:":                    "there is no decision",
		"operation:x (held":            "isn't closed",
		"call:nothing":                 "isn't the name of a call",
		"created>7d":                   "events have no",
		"attribute_prefix:order=1":     "events have no",
		"-attribute:order=1 operation": "events have no",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"ord": "1 2 3 4 5 6", "operation:pay": "1 2 3 4 5 6", "-operation:pay": "7 8 9", "key:m": "8 9", "order-1 ": "1 2 3 4",
		"decision:rep": "1 2 3 4 5 6 7 8 9 10", "mail decision:re": "", "order-2 decision:hel": "5 6", "order-": "1 2 3 4 5 6", "m-*": "8 9", "hel": "", "held": "5 6", "-": "",
	} {
		f, err := Open(text)
		if text == "-" {
			if err == nil {
				t.Error("a minus alone selects something")
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := seqs(f); got != want {
			t.Errorf("while %s is typed it selects %s, want %s", text, got, want)
		}
	}
}

func TestStrangeEventsAreRefused(t *testing.T) {
	for _, text := range []string{`[`, `{"record":"x"}`, `{"record":7}`} {
		if e, err := Parse(client.Event{Type: "decided", Data: []byte(text)}); err == nil {
			t.Errorf("%s is %+v", text, e)
		}
	}
	if e, err := Parse(client.Event{Type: "later", Data: []byte(`{"decision":"unheard of","status":"new"}`)}); err != nil || !strings.Contains(e.Line(screen.Ink{}, 80), "later") {
		t.Errorf("%+v, %v", e, err)
	}
}

// screenOf is a screen of a size that has got events.
func screenOf(t *testing.T, width, height int, events ...Event) *Model {
	t.Helper()
	m, err := New(Options{
		Next: func() (Batch, bool) { return Batch{}, false }, Service: "http://127.0.0.1:8481",
		Why: func(record string) (string, error) {
			id, err := store.DecodeID(record)
			if err != nil || id.Key == "m-2" {
				return "", errors.New("it is gone")
			}
			return fmt.Sprintf("%s, key %s: completed, executed once\n\n  2026-11-25 20:15:31  attempt 1 began\n%send\n", id.Operation, id.Key, strings.Repeat("  line\n", 30)), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	come(m, events...)
	return m
}

func come(m *Model, events ...Event) { m.Update(batchMsg{Batch{Events: events}, true}) }

func key(name string) tea.KeyPressMsg {
	switch name {
	case "ctrl+c":
		return tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	case "enter":
		return tea.KeyPressMsg{Code: tea.KeyEnter}
	case "esc":
		return tea.KeyPressMsg{Code: tea.KeyEscape}
	case "up":
		return tea.KeyPressMsg{Code: tea.KeyUp}
	case "pgdown":
		return tea.KeyPressMsg{Code: tea.KeyPgDown}
	case "backspace":
		return tea.KeyPressMsg{Code: tea.KeyBackspace}
	case "space":
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

// press presses keys, and carries out the last one's command.
func press(m *Model, names ...string) (cmd tea.Cmd) {
	for _, name := range names {
		_, cmd = m.Update(key(name))
	}
	return cmd
}

// typeIn presses a key for each letter.
func typeIn(m *Model, text string) {
	for _, r := range text {
		m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
}

func view(m *Model) string { return m.View().Content }

func TestViews(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
		keys          []string
	}{
		{"list-80.txt", 80, 16, nil},
		{"list-40.txt", 40, 12, []string{"up", "up"}},
		{"short-80.txt", 80, 6, nil},
	} {
		m := screenOf(t, test.width, test.height, day(t)...)
		press(m, test.keys...)
		text := view(m)
		golden(t, test.name, text+"\n")
		for line := range strings.SplitSeq(text, "\n") {
			if ansi.StringWidth(line) > test.width || strings.Contains(line, "\x1b") {
				t.Errorf("%s has the line %q", test.name, line)
			}
		}
		if n := strings.Count(text, "\n") + 1; n != test.height {
			t.Errorf("%s has %d lines", test.name, n)
		}
	}
	m := screenOf(t, 40, 14, day(t)[:4]...)
	m.Update(press(m, "enter")())
	golden(t, "why-40.txt", view(m)+"\n")
	m = screenOf(t, 80, 12, day(t)...)
	press(m, "/")
	typeIn(m, "operation:pay* decision:con")
	golden(t, "filter-80.txt", view(m)+"\n")
}

func TestFilterAsYouType(t *testing.T) {
	m := screenOf(t, 100, 30, day(t)...)
	press(m, "/")
	typeIn(m, "order-2")
	if text := view(m); strings.Contains(text, "order-1 ") || strings.Count(text, "order-2 ") != 2 {
		t.Errorf("while it is typed:\n%s", text)
	}
	press(m, "backspace")
	if text := view(m); !strings.Contains(text, "order-1 ") {
		t.Errorf("a letter less selects more:\n%s", text)
	}
	typeIn(m, "2 stat:")
	if text := view(m); !strings.Contains(text, "no such qualifier") || strings.Contains(text, "order-1 ") {
		t.Errorf("what is wrong is told, and the filter before counts:\n%s", text)
	}
	if press(m, "enter"); !m.editing {
		t.Error("a wrong filter is kept")
	}
	press(m, "esc")
	if text := view(m); !strings.Contains(text, "order-1 ") || strings.Contains(text, "no such") {
		t.Errorf("Esc takes it back:\n%s", text)
	}
	press(m, "/")
	m.Update(tea.PasteMsg{Content: "decision:held\n"})
	press(m, "enter")
	if text := view(m); strings.Contains(text, "order-1 ") || !strings.Contains(text, "filter: decision:held") {
		t.Errorf("it is kept:\n%s", text)
	}
	e := day(t)[0]
	if come(m, e); strings.Contains(view(m), "order-1 ") {
		t.Error("a new event isn't filtered")
	}
	press(m, "esc")
	if text := view(m); !strings.Contains(text, "order-1 ") {
		t.Errorf("Esc shows all again:\n%s", text)
	}
}

func TestPauseAndSelect(t *testing.T) {
	all := day(t)
	m := screenOf(t, 100, 30, all[:4]...)
	selected := func() string {
		for line := range strings.Lines(view(m)) {
			if strings.HasPrefix(line, "> ") {
				return line
			}
		}
		return ""
	}
	if !strings.Contains(selected(), "conflict") {
		t.Errorf("the newest is selected, not %q", selected())
	}
	press(m, "p")
	come(m, all[4:]...)
	if text := view(m); strings.Contains(text, "order-2") || !strings.Contains(text, "paused, 7 new") {
		t.Errorf("it isn't paused:\n%s", text)
	}
	press(m, "space")
	if text := view(m); !strings.Contains(text, "order-2") || !strings.Contains(text, "live") {
		t.Errorf("it doesn't go on:\n%s", text)
	}
	press(m, "up", "up", "k")
	was := selected()
	if !strings.Contains(was, "throttled") {
		t.Errorf("%q is selected", was)
	}
	come(m, all[0])
	if selected() != was {
		t.Errorf("a new event moves the selection to %q", selected())
	}
	// From one that was lost it goes on to the newest, which is followed again.
	press(m, "j", "j", "j")
	if !strings.Contains(selected(), "events were lost") {
		t.Errorf("%q is selected", selected())
	}
	if press(m, "j"); !strings.Contains(selected(), "execute") {
		t.Errorf("%q is selected", selected())
	}
	if come(m, all[2]); !strings.Contains(selected(), "replay") {
		t.Errorf("the newest isn't followed: %q", selected())
	}
	for _, name := range []string{"q", "ctrl+c"} {
		if cmd := press(m, name); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s doesn't quit", name)
		}
	}
}

func TestWhyInAPane(t *testing.T) {
	m := screenOf(t, 60, 12, day(t)...)
	press(m, "g")
	ask := press(m, "enter")
	if text := view(m); !strings.Contains(text, "why payments.charge@2 order-1") || !strings.Contains(text, "Asking…") {
		t.Errorf("%s", text)
	}
	m.Update(ask())
	if text := view(m); !strings.Contains(text, "attempt 1 began") || !strings.Contains(text, "more lines") || strings.Contains(text, "end") {
		t.Errorf("%s", text)
	}
	press(m, "G")
	if text := view(m); !strings.Contains(text, "\nend\n") {
		t.Errorf("it doesn't scroll to the end:\n%s", text)
	}
	if press(m, "esc"); !strings.Contains(view(m), "semel tail") || !strings.Contains(view(m), "> 20:15:31") {
		t.Errorf("Esc doesn't go back to where it was:\n%s", view(m))
	}
	press(m, "G", "up", "up")
	m.Update(press(m, "enter")())
	if text := view(m); !strings.Contains(text, "There is no answer: it is gone") {
		t.Errorf("%s", text)
	}
	m.Update(ask()) // the story of another call, too late
	if text := view(m); !strings.Contains(text, "it is gone") {
		t.Errorf("%s", text)
	}
	press(m, "esc", "down")
	if cmd := press(m, "enter"); cmd != nil {
		t.Error("a purge of many has a story")
	}
	if m := screenOf(t, 60, 12); press(m, "enter") != nil || !strings.Contains(view(m), "Waiting for the first delivery") {
		t.Error("no event has a story")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := screenOf(t, 80, 24)
	one := day(t)[0]
	for range 40 {
		come(m, slices.Repeat([]Event{one}, 250)...)
	}
	if len(m.events) != Kept || cap(m.events) > 4*Kept || len(m.shown) != Kept {
		t.Errorf("%d events in room for %d, %d shown", len(m.events), cap(m.events), len(m.shown))
	}
	press(m, "g", "up", "p")
	come(m, slices.Repeat([]Event{one}, Kept)...)
	if len(m.frozen) != Kept || len(m.events) != Kept {
		t.Errorf("%d are kept while it is paused, and %d beside", len(m.frozen), len(m.events))
	}
	press(m, "p")
	if m.cursor() != 0 {
		t.Errorf("the selected event is gone, and %d is selected", m.cursor())
	}
}

func TestTroubleIsShown(t *testing.T) {
	m := screenOf(t, 100, 10, day(t)...)
	m.Update(batchMsg{Batch{Lost: "refused"}, true})
	if text := view(m); !strings.Contains(text, "connecting again: refused") {
		t.Error(text)
	}
	if come(m, day(t)[0]); strings.Contains(view(m), "connecting again") {
		t.Error(view(m))
	}
	_, cmd := m.Update(batchMsg{Batch{Err: errForbidden}, true})
	if cmd == nil || cmd() != tea.Quit() || !errors.Is(m.Err(), errForbidden) {
		t.Errorf("the end of the stream isn't told: %v", m.Err())
	}
}

// A stream that breaks off is opened again after the last event; a refusal ends it.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		watch := func(_ context.Context, last string) iter.Seq2[client.Event, error] {
			asked = append(asked, last)
			return func(yield func(client.Event, error) bool) {
				switch len(asked) {
				case 1:
					_ = yield(told(6, "gap", "", "", nil), nil) && yield(told(7, "decided", "pay", "a", map[string]any{"decision": "execute"}), nil) &&
						yield(told(8, "decided", "pay", "a", map[string]any{"decision": "replay"}), nil) &&
						yield(client.Event{}, &semel.Error{Code: semel.CodeStoreUnavailable, Message: "away"})
				case 2:
					_ = yield(told(9, "gap", "", "", nil), nil) && yield(client.Event{}, errForbidden)
				}
			}
		}
		next := Follow(t.Context(), watch, "0")
		var seen []string
		var last Batch
		for {
			b, more := next()
			if !more {
				break
			}
			for _, e := range b.Events {
				seen = append(seen, e.Kind+e.Seq)
			}
			if b.Lost != "" {
				seen = append(seen, "lost")
			}
			last = b
		}
		if got := strings.Join(seen, " "); got != "decided7 decided8 lost gap9" {
			t.Errorf("seen %s", got)
		}
		if !slices.Equal(asked, []string{"0", "8"}) || !errors.Is(last.Err, errForbidden) {
			t.Errorf("asked after %q, ended by %v", asked, last.Err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		next := Follow(ctx, func(ctx context.Context, _ string) iter.Seq2[client.Event, error] {
			return func(yield func(client.Event, error) bool) {
				for n := 1; yield(told(n, "decided", "pay", "a", nil), nil); n++ {
				}
			}
		}, "")
		for range 3 {
			if b, more := next(); !more || len(b.Events) != maxBatch {
				t.Errorf("%d events, %v", len(b.Events), more)
			}
		}
		cancel()
		for {
			if _, more := next(); !more {
				break
			}
		}
	})
}
