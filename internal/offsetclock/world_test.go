package offsetclock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

// bound is that of the clocks that are tested, and trip how long it takes to ask the server.
const (
	bound = 100 * time.Millisecond
	trip  = 2 * time.Millisecond
)

// world is some machines and the server whose clock they follow. Nothing in it moves by itself.
type world struct {
	t      rapid.TB
	server store.Instant
	note   string
	real   time.Duration // that has passed
	nodes  []*machine
}

// machine is one process with its clocks.
type machine struct {
	*Clock
	w                 *world
	wall, mono, slept time.Duration
	boot              string
	given             store.Instant // the last time
}

func newWorld(t rapid.TB, nodes int) *world {
	w := &world{t: t, server: store.InstantOf(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)), real: time.Hour}
	for n := range nodes {
		m := &machine{w: w, boot: fmt.Sprint("boot ", n), mono: time.Duration(n+1) * time.Hour}
		m.start()
		w.nodes = append(w.nodes, m)
		m.now()
	}
	return w
}

// start starts a process on the machine, which knows nothing.
func (m *machine) start() {
	m.Clock = &Clock{
		Machine: func() Moment { return Moment{Wall: m.wall, Mono: m.mono} },
		Boot:    func() bootclock.Reading { return bootclock.Reading{ID: m.boot, Up: m.mono + m.slept, Slept: m.slept} },
		Bound:   bound,
		Ask: func(context.Context) (r Reading, err error) {
			r.Asked = m.Machine()
			m.w.pass(trip / 2)
			r.At = m.w.server
			m.w.pass(trip / 2)
			r.Came = m.Machine()
			return r, nil
		},
		Noted: func(context.Context) (string, error) { return m.w.note, nil },
		Note: func(_ context.Context, was, next string) error {
			if m.w.note == was {
				m.w.note = next
			}
			return nil
		},
		Beside: func(f func(context.Context)) error { f(context.Background()); return nil },
	}
}

// startAnew starts the process again, or the machine. What wasn't noted yet is forgotten.
func (m *machine) startAnew(machine bool) {
	if machine {
		m.boot += " again"
		m.mono, m.slept = 0, 0
	}
	m.start()
	m.given -= store.Instant(Near) // a time that was given is noted by then
}

// now is the time of the machine. It may be had at any moment, and never goes back.
func (m *machine) now() store.Instant {
	m.w.t.Helper()
	at, err := m.Now(context.Background())
	if err != nil {
		m.w.t.Fatalf("there is no time: %v", err)
	}
	if at < m.given {
		m.w.t.Fatalf("the time went back by %v", m.given.Sub(at))
	}
	m.given = at
	return at
}

// leaseTime is by which a lease is judged that began at some time.
func (m *machine) leaseTime(began store.Instant) store.Instant {
	now := m.now()
	return m.State(now).Leap.For(began, now)
}

// pass lets time pass on all clocks.
func (w *world) pass(d time.Duration) {
	w.real += d
	w.server = w.server.Add(d)
	for _, m := range w.nodes {
		m.mono, m.wall = m.mono+d, m.wall+d
	}
}

// live lets time pass while everybody looks at the clock.
func (w *world) live(d time.Duration) {
	w.t.Helper()
	for until := w.real + d; w.real < until; {
		w.pass(min(Period-bound, until-w.real))
		for _, m := range w.nodes {
			m.now()
		}
	}
}

// sleep lets time pass while a machine sleeps.
func (w *world) sleep(m *machine, d time.Duration) {
	mono := m.mono
	w.pass(d)
	m.mono, m.slept = mono, m.slept+d
}

// agree checks that all processes have the same time.
func (w *world) agree() {
	w.t.Helper()
	first := w.nodes[0].now()
	for _, m := range w.nodes[1:] {
		if off := m.now().Sub(first); off.Abs() > 3*bound {
			w.t.Fatalf("two processes differ by %v", off)
		}
	}
}

func TestANoteAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Custom(func(t *rapid.T) store.Instant { return store.Instant(rapid.Int64().Draw(t, "at")) })
		by := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "by")) })
		n := Note{
			At: at.Draw(t, "At"), Off: by.Draw(t, "Off"), Since: at.Draw(t, "Since"), Until: at.Draw(t, "Until"),
			Leap: store.Leap{At: at.Draw(t, "leapt"), By: by.Draw(t, "far")}, Boot: rapid.String().Draw(t, "Boot"), BootOff: by.Draw(t, "BootOff"),
		}
		if got, err := ParseNote(n.String()); err != nil || got != n {
			t.Fatalf("%q is read as %+v, %v", n, got, err)
		}
	})
	if n, err := ParseNote(""); err != nil || n != (Note{}) {
		t.Errorf("nothing is read as %+v, %v", n, err)
	}
	for _, text := range []string{"1", "2 0 0 0 0 0 0 \"\" 0", "123456789", "1 0 0 0 0 0 0 x 0"} {
		if n, err := ParseNote(text); err == nil {
			t.Errorf("%q is read as %+v", text, n)
		}
	}
}

// Whatever clocks do, and whoever is started anew: there is always a time, it never goes back,
// all processes have the same, and it makes no step but for a leap of the server's clock that
// has lasted as long as it is long.
func TestTheRuleOfTheClock(t *testing.T) {
	some := func(t *rapid.T, most time.Duration, name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 2)
		type reading struct{ real, off time.Duration } // how far the server's clock was ahead of what has passed
		origin := w.server.Add(-w.real)
		var past []reading
		seen := make([]time.Duration, 2)
		var agreed, slept time.Duration // when they last did
		look := func() {
			past = append(past, reading{w.real, w.server.Sub(origin) - w.real})
			for i, m := range w.nodes {
				off := m.now().Sub(origin) - w.real
				// A step is what the last reading showed, or to a time that another process has given.
				if step := off - seen[i]; step > Leap+bound && off > slices.Max(seen)+bound {
					from := w.real - min(step, MaxWait) + 2*Period
					for _, r := range past {
						if r.real >= from && r.real < w.real-Period && r.off < off-Leap-Near {
							t.Fatalf("a step of %v, %v after the server's clock was %v behind it", step, w.real-r.real, off-r.off)
						}
					}
				}
				seen[i] = off
			}
			// If the clock is set just before a step, some make that and others don't.
			if (seen[0] - seen[1]).Abs() <= 3*bound {
				agreed = w.real
			}
			most := Period + 3*bound
			if w.real-agreed > time.Minute {
				most = 3 * bound
			}
			if apart := (seen[0] - seen[1]).Abs(); apart > most && w.real-agreed > 5*Period && w.real-slept > 5*Period {
				t.Fatalf("two processes differ by %v for %v", apart, w.real-agreed)
			}
		}
		live := func(d time.Duration) {
			for until := w.real + d; w.real < until; {
				w.pass(min(Period-bound, until-w.real))
				look()
			}
		}
		live(10 * time.Second)
		t.Repeat(map[string]func(*rapid.T){
			"live":   func(t *rapid.T) { live(some(t, 12*time.Minute, "for")) },
			"a bit":  func(t *rapid.T) { live(some(t, 20*time.Second, "for")) },
			"ahead":  func(t *rapid.T) { w.server = w.server.Add(some(t, 30*time.Hour, "by")); live(2 * Period) },
			"back":   func(t *rapid.T) { w.server = w.server.Add(-some(t, 30*time.Hour, "by")); live(2 * Period) },
			"slew":   func(t *rapid.T) { w.server = w.server.Add(some(t, 2*bound, "by") - bound); live(Period) },
			"set":    func(t *rapid.T) { w.nodes[0].wall += some(t, 2*time.Hour, "by") - time.Hour; look() }, // or a sleep may go unnoticed
			"sleep":  func(t *rapid.T) { w.sleep(w.nodes[0], some(t, time.Hour, "for")); slept = w.real; look(); live(Period) },
			"start":  func(*rapid.T) { w.nodes[0].start(); w.nodes[0].given -= store.Instant(Near); look() },
			"accept": func(t *rapid.T) { noError(t, acceptAll(w)); past = nil; live(2 * AcceptAfter) },
			"":       func(*rapid.T) {},
		})
		live(MaxWait + time.Minute) // now the server's clock is left alone
		if behind := w.server.Sub(w.nodes[0].now()); behind > bound {
			t.Fatalf("in the end the time is %v behind", behind)
		}
	})
}

func acceptAll(w *world) error {
	_, err := w.nodes[0].Accept(context.Background(), false)
	return err
}
