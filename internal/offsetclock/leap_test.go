package offsetclock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

// What may be going on while a clock leaps.
const (
	runs      = "while processes run"
	restarted = "while none runs"
	rebooted  = "while no machine is on"
)

var starts = []string{runs, restarted, rebooted}

// What two processes make of a server's clock that leaps, while they run or while nobody does.
func TestLeaps(t *testing.T) {
	const window, lease = 24 * time.Hour, 6 * time.Second
	for _, by := range []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
		for _, sign := range []time.Duration{1, -1} {
			for _, lasts := range []time.Duration{5 * time.Second, 50 * time.Minute, 70 * time.Minute} {
				for _, start := range starts {
					down := start != runs
					t.Run(fmt.Sprintf("by %v for %v %s", sign*by, lasts, start), func(t *testing.T) {
						w := newWorld(t, 2)
						w.live(time.Minute)
						a, b := w.nodes[0], w.nodes[1]
						leapt, begun := w.real, a.now()
						expires := begun.Add(window) // of a call that is completed now
						// leaseAt checks that a lease which begins at some time is as long as it should be.
						leaseFrom := func(at store.Instant, real time.Duration) {
							t.Helper()
							over := b.leaseTime(at) >= at.Add(lease)
							if lasted := w.real - real; over && lasted < lease-Leap-bound || !over && lasted > lease+Leap+bound {
								t.Fatalf("after %v the lease is over: %v", lasted, over)
							}
						}
						kept := func() {
							t.Helper()
							// A call completed just now has its whole window, whatever the clock does later.
							if a.now() >= expires {
								t.Fatalf("%v after a leap by %v the call has expired", w.real-leapt, by)
							}
						}
						if down {
							w.nodes = nil
						}
						w.server = w.server.Add(sign * by)
						w.pass(time.Second)
						if down {
							for _, m := range []*machine{a, b} {
								m.startAnew(start == rebooted)
								w.nodes = append(w.nodes, m)
							}
						}
						wait := min(max(by, MinWait), MaxWait)
						for passed := w.real - leapt; passed < lasts; passed = w.real - leapt {
							w.live(2 * time.Second)
							w.agree()
							if lasts < lease {
								w.live(lasts - 2*time.Second)
								continue
							}
							at, real := a.now(), w.real
							w.live(lease / 2)
							if !down || passed > MinWait {
								leaseFrom(at, real)
							}
							w.live(lease)
							leaseFrom(at, real)
							if w.real-leapt < wait {
								kept()
							}
							if passed > time.Minute && (wait-passed).Abs() > 2*time.Minute {
								w.live(time.Minute)
							}
						}
						followed := sign > 0 && lasts > wait
						if off := a.now().Sub(w.server); followed && off.Abs() > bound {
							t.Errorf("the clock doesn't follow: it is off by %v", off)
						} else if sign < 0 && (off-by).Abs() > Near {
							t.Errorf("the clock is ahead by %v", off)
						} else if st := a.State(a.now()); sign > 0 && !followed && (st.Held-by).Abs() > Near {
							t.Errorf("%v are held back", st.Held)
						}
						made := a.now()
						madeFor := made.Add(a.State(made).Held + window)
						w.server = w.server.Add(-sign * by) // right again
						w.live(10 * time.Second)
						w.agree()
						if !followed {
							kept()
						}
						at, real := b.now(), w.real
						w.live(lease / 2)
						leaseFrom(at, real)
						w.live(lease)
						leaseFrom(at, real)
						w.live(65 * time.Minute) // whatever is followed now
						if a.now() >= madeFor {
							t.Error("a call that was completed before the clock was put right has expired")
						}
						if st := a.State(a.now()); st.Held != 0 {
							t.Errorf("later %v are held back", st.Held)
						}
						if ahead := a.State(a.now()).Ahead; (a.now().Sub(w.server) - ahead).Abs() > 3*time.Second {
							t.Errorf("the clock is ahead by %v, and says %v", a.now().Sub(w.server), ahead)
						}
					})
				}
			}
		}
	}
}

// The clock of a machine says nothing about that of the server, however it leaps: the time, and
// the lease of a holder on another machine, go on as they were.
func TestLeapsOfAMachine(t *testing.T) {
	const lease = 6 * time.Second
	for _, by := range []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
		for _, sign := range []time.Duration{1, -1} {
			for _, lasts := range []time.Duration{5 * time.Second, 50 * time.Minute, 70 * time.Minute} {
				for _, start := range starts {
					t.Run(fmt.Sprintf("by %v for %v %s", sign*by, lasts, start), func(t *testing.T) {
						w := newWorld(t, 2)
						w.live(time.Minute)
						a, b := w.nodes[0], w.nodes[1]
						leap := func(by time.Duration) {
							a.wall += by
							if start != runs {
								a.startAnew(start == rebooted)
							}
						}
						// right checks the time, and a lease that b's process has, by each of the clocks.
						right := func(what string) {
							t.Helper()
							w.agree()
							for _, m := range w.nodes {
								if off := m.now().Sub(w.server); off.Abs() > 2*bound {
									t.Errorf("%s the time is off by %v", what, off)
								}
								if st := m.State(m.now()); st != (store.ClockState{}) {
									t.Errorf("%s its state is %+v", what, st)
								}
							}
							at := b.now()
							w.live(lease - time.Second)
							if a.leaseTime(at) >= at.Add(lease) {
								t.Errorf("%s a lease of %v is over after %v", what, lease, lease-time.Second)
							}
							w.live(time.Second + 2*bound)
							if a.leaseTime(at) < at.Add(lease-bound) {
								t.Errorf("%s a lease of %v isn't over after it", what, lease)
							}
						}
						leap(sign * by)
						right("at once")
						w.live(lasts)
						right("then")
						leap(-sign * by)
						right("put right")
					})
				}
			}
		}
	}
}

// A lease that is at work when the time follows a leap is as long as any other, wherever it
// is judged.
func TestALeaseAtTheStep(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	w.server = w.server.Add(400 * 24 * time.Hour)
	w.live(MaxWait - 10*time.Second)
	before := a.now()
	var at store.Instant
	var real time.Duration
	for a.now().Sub(before) < time.Hour { // until the step
		at, real = a.now(), w.real
		w.pass(100 * time.Millisecond)
	}
	for w.real-real < 5*time.Second {
		if b.leaseTime(at) >= at.Add(6*time.Second) {
			t.Fatalf("the lease is over after %v", w.real-real)
		}
		w.pass(100 * time.Millisecond)
	}
	w.pass(2 * time.Second)
	if b.leaseTime(at) < at.Add(6*time.Second) {
		t.Error("the lease is not over after 7s")
	}
	at = a.now() // and one that begins after it
	w.pass(5 * time.Second)
	if b.leaseTime(at) >= at.Add(6*time.Second) {
		t.Error("a later lease is over after 5s")
	}
}

func TestAWeekendWithoutAnybody(t *testing.T) {
	const weekend = 60 * time.Hour
	w := newWorld(t, 1)
	a := w.nodes[0]
	w.live(time.Minute)
	at := a.now()
	w.nodes = nil
	w.pass(weekend)
	t.Run("on a machine that was on: nothing is held back", func(t *testing.T) {
		a.mono += weekend // the machine, not the process
		a.start()
		if got := a.now(); got.Sub(w.server).Abs() > bound+trip {
			t.Errorf("the clock is off by %v", got.Sub(w.server))
		}
		if st := a.State(a.now()); st != (store.ClockState{}) {
			t.Errorf("its state is %+v", st)
		}
	})
	t.Run("on a machine that was off: expiry is held back for an hour, and leases for seconds", func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.nodes[0]
		w.live(time.Minute)
		at = a.now()
		w.nodes = nil
		w.pass(weekend)
		a.startAnew(true)
		w.nodes = append(w.nodes, a)
		if moved := a.now().Sub(at); moved > Near {
			t.Fatalf("the clock has moved by %v", moved)
		}
		if a.leaseTime(at) >= at.Add(time.Hour) {
			t.Error("a lease of an hour is over at once")
		}
		w.live(ConfirmAfter + Period)
		if a.leaseTime(at.Add(-Near)) < at.Add(time.Hour) {
			t.Error("a lease of an hour, from before, is not over")
		}
		new := a.now()
		w.live(MaxWait - 20*time.Second)
		if a.leaseTime(new) < new.Add(MaxWait-30*time.Second) || a.leaseTime(new) > new.Add(MaxWait) {
			t.Errorf("a new lease is judged by %v later", a.leaseTime(new).Sub(new))
		}
		if moved := a.now().Sub(at); moved > MaxWait {
			t.Fatalf("the clock has moved by %v", moved)
		}
		w.live(30 * time.Second)
		if off := a.now().Sub(w.server); off.Abs() > bound {
			t.Errorf("after an hour the clock is off by %v", off)
		}
	})
}

func TestASleepingMachine(t *testing.T) {
	for _, d := range []time.Duration{2 * time.Second, time.Minute, 60 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			w := newWorld(t, 2)
			w.live(time.Minute)
			w.sleep(w.nodes[0], d)
			if off := w.nodes[0].now().Sub(w.server); off.Abs() > bound+trip {
				t.Errorf("the clock is off by %v", off)
			}
			w.agree()
			if st := w.nodes[0].State(w.nodes[0].given); st != (store.ClockState{}) {
				t.Errorf("its state is %+v", st)
			}
		})
	}
	t.Run("whose boot clock drifts meanwhile", func(t *testing.T) {
		w := newWorld(t, 1)
		w.live(time.Minute)
		const d = 60 * time.Hour
		w.sleep(w.nodes[0], d)
		w.server = w.server.Add(d / 2000) // 500 ppm
		if off := w.nodes[0].now().Sub(w.server); off.Abs() > bound {
			t.Errorf("the clock is off by %v", off)
		}
		if st := w.nodes[0].State(w.nodes[0].given); st != (store.ClockState{}) {
			t.Errorf("its state is %+v", st)
		}
	})
	t.Run("that no clock has counted, beside others that know the time", func(t *testing.T) {
		w := newWorld(t, 2)
		w.live(time.Minute)
		a, b := w.nodes[0], w.nodes[1]
		w.nodes = []*machine{b}
		w.live(time.Hour)
		w.nodes = []*machine{a, b}
		w.live(Period + time.Second)
		w.agree()
		if st := b.State(b.now()); st != (store.ClockState{}) {
			t.Errorf("its state is %+v", st)
		}
	})
}

func TestAcceptingAClock(t *testing.T) {
	w := newWorld(t, 2)
	w.server = w.server.Add(25 * time.Hour)
	w.live(time.Minute)
	a, b := w.nodes[0], w.nodes[1]
	st, err := a.Accept(context.Background(), false)
	noError(t, err)
	if st.Held < 24*time.Hour || st.Until.Sub(a.now()) > AcceptAfter {
		t.Errorf("accepted, its state is %+v", st)
	}
	at, real := b.now(), w.real
	w.live(AcceptAfter + time.Second)
	w.agree()
	if off := b.now().Sub(w.server); off.Abs() > bound {
		t.Errorf("the clock is off by %v", off)
	}
	if lasted := b.leaseTime(at).Sub(at); (lasted - (w.real - real)).Abs() > bound {
		t.Errorf("a lease that began before has lasted for %v", lasted)
	}
	st, err = b.Accept(context.Background(), false) // there is nothing to accept
	if noError(t, err); st.Held != 0 {
		t.Errorf("its state is %+v", st)
	}
	w.server = w.server.Add(25 * time.Hour)
	w.live(time.Minute)
	w.nodes = w.nodes[:1]
	st, err = a.Accept(context.Background(), true)
	if noError(t, err); st.Held != 0 || a.now().Sub(w.server).Abs() > bound {
		t.Errorf("one alone is off by %v, its state is %+v", a.now().Sub(w.server), st)
	}
}

// What can't be noted is noted later, and what nobody can read is as it was.
func TestANoteThatIsOutOfReach(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	w.live(10 * time.Second)
	down := fmt.Errorf("nobody answers")
	for _, m := range w.nodes {
		m.Noted = func(context.Context) (string, error) { return "", down }
		m.Note = func(context.Context, string, string) error { return down }
	}
	at := a.now()
	w.server = w.server.Add(2 * time.Hour)
	w.live(30 * time.Minute)
	w.agree()
	if moved := a.now().Sub(at); moved > 31*time.Minute {
		t.Fatalf("the clock has moved by %v", moved)
	}
	for _, m := range w.nodes {
		was := m.Clock
		m.start()
		was.Noted, was.Note = m.Noted, m.Note
		m.Clock = was
	}
	w.live(20 * time.Minute)
	w.agree()
	if st := b.State(b.now()); (st.Held - 2*time.Hour).Abs() > time.Second {
		t.Errorf("its state is %+v", st)
	}
	w.live(11 * time.Minute)
	if off := b.now().Sub(w.server); off.Abs() > bound {
		t.Errorf("an hour after the leap the clock is off by %v", off)
	}
	c := &machine{w: w, boot: "c"}
	c.start()
	c.Noted = func(context.Context) (string, error) { return "", down }
	if _, err := c.Now(context.Background()); err == nil {
		t.Error("a process starts without what others have noted")
	}
}

// Accepting reports what keeps it from being noted.
func TestAcceptingWhatCanNotBeNoted(t *testing.T) {
	down := errors.New("nobody answers")
	for name, c := range map[string]struct {
		after int // notes are read before it goes wrong
		wrong func(m *machine)
		want  error // nil: any
	}{
		"no reading":       {0, func(m *machine) { m.Ask = func(context.Context) (Reading, error) { return Reading{}, down } }, down},
		"no note":          {1, func(m *machine) { m.Noted = func(context.Context) (string, error) { return "", down } }, down},
		"an unknown note":  {1, func(m *machine) { m.Noted = func(context.Context) (string, error) { return "2", nil } }, nil},
		"nothing is noted": {1, func(m *machine) { m.Note = func(context.Context, string, string) error { return down } }, down},
		"others note other things, again and again": {0, func(m *machine) {
			m.Note = func(context.Context, string, string) error { return nil }
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			a := w.nodes[0]
			w.server = w.server.Add(25 * time.Hour)
			w.live(time.Minute)
			if noted := a.Noted; c.after > 0 {
				a.Noted = func(ctx context.Context) (string, error) {
					text, err := noted(ctx)
					c.wrong(a)
					return text, err
				}
			} else {
				c.wrong(a)
			}
			if st, err := a.Accept(context.Background(), false); err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("accepted, %+v, %v", st, err)
			}
		})
	}
}
