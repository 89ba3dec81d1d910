package upgrade

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// TestUpgrade replaces earlier programs by this one as docs/upgrade.md says, on every store,
// and compares what each call gets.
func TestUpgrade(t *testing.T) {
	thorough.Only(t, "earlier programs, which are built")
	for _, from := range []string{first, recent} {
		for name, open := range map[string]func(t *testing.T) (url string, beside bool){
			"embedded": func(t *testing.T) (string, bool) { return "pebble:data", false },
			"redis":    func(t *testing.T) (string, bool) { return redistest.Start(t, "always").URL(), true },
			"postgres": func(t *testing.T) (string, bool) {
				server := pgtest.Start(t, nil)
				return server.URL(server.Database(t)), from != first // or a migration renames
			},
		} {
			t.Run(from+"/"+name, func(t *testing.T) {
				program(t, from)
				program(t, "")
				url, beside := open(t)
				newWorld(t, from, url).upgrade(beside)
			})
		}
	}
}

// upgrade fills the store by the earlier program and asks this one. Where both may serve at a
// time, this one starts while the other still does.
func (w *world) upgrade(beside bool) {
	t := w.t
	calls := append(byAPI(w.numbers()), w.byDoors()...)
	before := w.start(w.from)
	w.fill(before, calls)
	was := w.record(before, calls)
	var now *node
	if beside {
		now = w.start("")
		w.compare(now, before, calls, was)
	} else if w.served() {
		w.refused("", "stop them first") // and the earlier program serves on:
		w.compare(before, nil, calls, was)
	}
	before.stop()
	for i, c := range calls {
		if c.cutOff {
			was.answers[i].Code, calls[i].held = "held", true
			was.lists["held"][c.operation+" "+c.key+" processing"] = 1
		}
	}
	if now == nil {
		now = w.start("")
	}
	w.compare(now, nil, calls, was)
	w.goOn(now, calls)
	now.stop()
	w.audit()
	t.Run("back", func(t *testing.T) { w.back(t, calls, was) })
}

// fill brings all calls about, those that keep running at the end.
func (w *world) fill(n *node, calls []call) {
	for _, last := range []bool{false, true} {
		for _, c := range calls {
			if c.last == last && c.make != nil {
				c.make(w.t, n)
			}
		}
	}
	// Leases end, and sweeps have seen it; messages are delivered or parked.
	until(w.t, func() string {
		held, failed := listed(n, "held"), listed(n, "state:failed")
		for _, c := range calls {
			if c.held && c.key != "" && held[c.operation+" "+c.key+" processing"] == 0 || c.abandoned && failed[c.operation+" "+c.key+" failed"] == 0 {
				return "the earlier program doesn't look at: " + c.name
			}
		}
		asked := w.up.asked()
		for _, path := range []string{"/message/ok", "/message/gone", "/ga/ok", "/inbox/ok"} {
			if asked[path] == 0 {
				return "no message came to " + path
			}
		}
		return ""
	})
}

// recorded is what the earlier program said.
type recorded struct {
	answers []answer
	asked   map[string]int
	lists   map[string]map[string]int
}

// queries are the lists that must not lose a call.
var queries = []string{"held", "state:processing", "state:completed", "state:failed", ""}

// record asks the earlier program for every call that may not run again.
func (w *world) record(n *node, calls []call) recorded {
	was := recorded{answers: make([]answer, len(calls)), lists: map[string]map[string]int{}}
	for i, c := range calls {
		if !c.runs {
			was.answers[i] = c.ask(n)
		}
	}
	for _, q := range queries {
		was.lists[q] = listed(n, q)
	}
	was.asked = w.up.asked()
	return was
}

// compare asks a node for every call that may not run again, and for its lists.
func (w *world) compare(n, other *node, calls []call, was recorded) {
	w.t.Helper()
	w.lists(n, was, "before it is asked for calls")
	for i, c := range calls {
		if c.runs {
			continue
		}
		if got := c.ask(n); !got.same(was.answers[i]) {
			w.t.Errorf("%s: got %d %s %s, from the earlier program %d %s %s\n%s", c.name, got.Status, got.Code, got.Body,
				was.answers[i].Status, was.answers[i].Code, was.answers[i].Body, got.raw)
		}
		if other != nil {
			if got := c.ask(other); !got.same(was.answers[i]) {
				w.t.Errorf("%s: got %d %s from the earlier program beside this one\n%s", c.name, got.Status, got.Code, got.raw)
			}
		}
	}
	w.lists(n, was, "after it was asked for calls")
	if asked := w.up.asked(); !maps.Equal(asked, was.asked) {
		w.t.Errorf("the upstream was asked again: %s", difference(asked, was.asked))
	}
}

func (w *world) lists(n *node, was recorded, when string) {
	w.t.Helper()
	for _, q := range queries {
		if got := listed(n, q); !maps.Equal(got, was.lists[q]) {
			w.t.Errorf("the list %q has, %s, %s", q, when, difference(got, was.lists[q]))
		}
	}
	if n.commit != "" {
		return // not every program has the gauge
	}
	want := fmt.Sprintf("\nsemel_attempts{state=\"held\"} %d\n", len(was.lists["held"]))
	until(w.t, func() string {
		a := n.send(request{admin: true, path: "/metrics"})
		if !strings.Contains(string(a.raw), want) {
			return "the metrics don't have" + want
		}
		return ""
	})
}

func (a answer) same(b answer) bool {
	return a.Status == b.Status && a.Code == b.Code && a.Body == b.Body
}

func difference(got, want map[string]int) string {
	var all []string
	for key := range maps.Keys(want) {
		if got[key] != want[key] {
			all = append(all, fmt.Sprintf("%s: %d, want %d", key, got[key], want[key]))
		}
	}
	for key := range maps.Keys(got) {
		if want[key] == 0 {
			all = append(all, fmt.Sprintf("%s: %d, want none", key, got[key]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// audit verifies the log that both programs have written, and the records by it.
func (w *world) audit() {
	w.t.Helper()
	if !w.evidence() {
		return
	}
	exe := program(w.t, "")
	for _, args := range [][]string{
		{"evidence", "export", "--config", "semel.yaml", "--out", "log.jsonl"},
		{"evidence", "verify", "--keys", "key.pub", "log.jsonl"},
		{"store", "audit", "--config", "semel.yaml"},
	} {
		if out, err := command(w.dir, exe, args...); err != nil {
			w.t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// goOn runs what may run, and settles what is held.
func (w *world) goOn(n *node, calls []call) {
	w.t.Helper()
	for _, c := range calls {
		if !c.runs {
			continue
		}
		was := w.up.asked()[c.path]
		got := c.ask(n)
		if c.path == "" && (got.Status != http.StatusCreated || got.Code != "execute") || c.path != "" && w.up.asked()[c.path] != was+1 {
			w.t.Errorf("%s should run again, and got %d %s %s", c.name, got.Status, got.Code, got.raw)
		}
	}
	held := listed(n, "held")
	cmd := w.serve("")
	cmd.Args = []string{cmd.Path, "records", "settle", "--url", n.AdminURL, "--token-file", "token", "--yes", "--all", "--outcome", "failed", "--reason", "it was looked up"}
	out, err := cmd.CombinedOutput()
	if left := listed(n, "held"); err != nil || len(held) == 0 || len(left) > 0 {
		w.t.Errorf("of %d held calls %d are left: %v\n%s", len(held), len(left), err, out)
	}
}

// served reports whether the store is PostgreSQL, the one with migrations.
func (w *world) served() bool { return strings.HasPrefix(w.store, "postgres") }

// refused starts a program, which has to end by saying why.
func (w *world) refused(commit, why string) {
	w.t.Helper()
	cmd := w.serve(commit)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd = exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	cmd.Dir = w.dir
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), why) {
		w.t.Errorf("the program %q isn't refused: %v\n%s", commit, err, out)
	}
}

// back starts the earlier program on what this one has written. It answers as before, or
// refuses; it never runs a call again.
func (w *world) back(t *testing.T, calls []call, was recorded) {
	if w.served() { // each of the programs lacks a migration
		w.refused(w.from, "the schema was migrated by a later program")
		return
	}
	n := w.start(w.from)
	defer n.stop()
	before := w.up.asked()
	for i, c := range calls {
		if c.runs || c.held {
			continue
		}
		if got := c.ask(n); !got.same(was.answers[i]) && got.Status != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s, before the upgrade %d %s\n%s", c.name, got.Status, got.Code, was.answers[i].Status, was.answers[i].Code, got.raw)
		}
	}
	if asked := w.up.asked(); !maps.Equal(asked, before) {
		t.Errorf("the upstream was asked again: %s", difference(asked, before))
	}
}
