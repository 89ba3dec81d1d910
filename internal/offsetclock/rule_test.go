package offsetclock

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/store"
)

// next lets a tenth of a second pass, and returns how far the time of each process then is ahead
// of what has passed since the world began.
func (w *world) next(origin store.Instant) []time.Duration {
	w.t.Helper()
	w.pass(100 * time.Millisecond)
	off := make([]time.Duration, len(w.nodes))
	for i, m := range w.nodes {
		off[i] = m.now().Sub(origin) - w.real
	}
	return off
}

// The time follows a leap when that has lasted as long as it is long, by the monotonic clock: at
// least ten seconds and at most an hour. Whatever else the servers' clock does meanwhile begins
// the wait anew, for the whole of the leap.
func TestTheTimeFollowsALeapAtTheInstant(t *testing.T) {
	type leap struct{ by, after time.Duration } // since the one before
	for name, c := range map[string]struct {
		leaps []leap
		total time.Duration // that the time makes up for in the end
		wait  time.Duration // from the last leap that counts
		last  int
	}{
		"two seconds, after the shortest wait":                    {[]leap{{2 * time.Second, 0}}, 2 * time.Second, MinWait, 0},
		"ten minutes, after ten":                                  {[]leap{{10 * time.Minute, 0}}, 10 * time.Minute, 10 * time.Minute, 0},
		"two hours, after one":                                    {[]leap{{2 * time.Hour, 0}}, 2 * time.Hour, MaxWait, 0},
		"400 days, after an hour":                                 {[]leap{{400 * 24 * time.Hour, 0}}, 400 * 24 * time.Hour, MaxWait, 0},
		"one that grows a little, after the wait of the whole":    {[]leap{{10 * time.Second, 0}, {30 * time.Second, 5 * time.Second}}, 40 * time.Second, 40 * time.Second, 1},
		"one that grows by a day, after the wait of the whole":    {[]leap{{10 * time.Second, 0}, {25 * time.Hour, 5 * time.Second}}, 25*time.Hour + 10*time.Second, MaxWait, 1},
		"one that shrinks, after a wait of its own":               {[]leap{{25 * time.Hour, 0}, {-24 * time.Hour, 50 * time.Minute}}, time.Hour, MaxWait, 1},
		"one that was put right and comes again, after all of it": {[]leap{{2 * time.Hour, 0}, {-2 * time.Hour, 30 * time.Minute}, {2 * time.Hour, time.Minute}}, 2 * time.Hour, MaxWait, 2},
		"one that is corrected a little, as if it wasn't":         {[]leap{{10 * time.Minute, 0}, {Leap - bound, 9 * time.Minute}}, 10*time.Minute + Leap - bound, 10 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.live(time.Minute)
			origin := w.server.Add(-w.real)
			var began time.Duration
			for i, l := range c.leaps {
				w.live(l.after)
				w.server = w.server.Add(l.by)
				if i == c.last {
					began = w.real
				}
			}
			for {
				off := w.next(origin)
				lasted := w.real - began
				if off[0] < c.total/2 && off[1] < c.total/2 {
					if lasted > c.wait+Period+bound { // a process looks every Period
						t.Fatalf("after %v the time has not followed", lasted)
					}
					continue
				}
				if lasted < c.wait-bound {
					t.Errorf("the time follows after %v, want %v", lasted, c.wait)
				}
				for i, o := range off {
					if (o - c.total).Abs() > Leap {
						t.Errorf("process %d is ahead by %v after %v, want %v", i, o, lasted, c.total)
					}
				}
				return
			}
		})
	}
}

// The time doesn't move a moment before the instant that is shown as the one at which it follows.
func TestTheTimeFollowsNoSoonerThanItSays(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	w.server = w.server.Add(10 * time.Minute)
	w.live(time.Minute)
	until := a.State(a.now()).Until
	w.live(until.Sub(a.now()) - 2*time.Millisecond - trip) // which may take a reading
	before := a.now()
	if before >= until || until.Sub(before) > 100*time.Millisecond {
		t.Fatalf("%v before the time follows it is %v", until.Sub(before), before)
	}
	w.pass(until.Sub(before) - 1)
	if at := a.now(); at >= until {
		t.Errorf("a nanosecond before it follows, the time has gone on by %v", at.Sub(before))
	}
	w.pass(1)
	if at := a.now(); at.Sub(until) < 10*time.Minute-Leap {
		t.Errorf("at the instant it has gone on by %v", at.Sub(before))
	} else if leap := a.State(at).Leap; leap.At != until || (leap.By-10*time.Minute).Abs() > Leap {
		t.Errorf("leases are judged by a leap of %v at %v", leap.By, leap.At) // though nobody has noted that
	}
}

// A leap that was put right but for what clocks are corrected by is over.
func TestASmallLagIsNoLeap(t *testing.T) {
	w := newWorld(t, 2)
	w.live(time.Minute)
	w.server = w.server.Add(2 * time.Hour)
	w.live(time.Minute)
	w.server = w.server.Add(Leap/2 - 2*time.Hour)
	w.live(2 * Period)
	w.agree()
	for _, m := range w.nodes {
		if st := m.State(m.now()); st != (store.ClockState{}) {
			t.Errorf("half a second behind, its state is %+v", st)
		}
		if off := m.now().Sub(w.server); off.Abs() > bound {
			t.Errorf("it is off by %v", off)
		}
	}
}

// A clock that shows more than could pass between two readings has leapt, whatever it does in
// between.
func TestAServersClockThatRunsTooFast(t *testing.T) {
	for name, c := range map[string]struct{ passes, more time.Duration }{
		"by a tenth, between readings that are far apart": {MaxAge - Period, (MaxAge - Period) / 10},
		"at twice the speed":                              {Period + bound, Period + bound},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.live(10 * time.Second)
			a := w.nodes[0]
			a.now()
			at, real := a.now(), w.real
			w.server = w.server.Add(c.more)
			w.pass(c.passes)
			if went := a.now().Sub(at); went > w.real-real+Leap {
				t.Errorf("in %v the time goes on by %v", w.real-real, went)
			}
			if st := a.State(a.now()); (st.Held - c.more).Abs() > bound {
				t.Errorf("%v are held back, want %v", st.Held, c.more)
			}
		})
	}
	t.Run("by less than quartz clocks drift, in step", func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.nodes[0]
		for range 1000 {
			w.server = w.server.Add(MaxAge / 2000)
			w.pass(MaxAge / 2)
			a.now()
		}
		if st := a.State(a.now()); st != (store.ClockState{}) {
			t.Errorf("its state is %+v", st)
		}
	})
}

// What can't be read may be what a later version has noted: a process that runs goes on by
// itself, and leaves it as it is.
func TestANoteThatCanNotBeReadIsLeftAsItIs(t *testing.T) {
	w := newWorld(t, 1)
	a := w.nodes[0]
	w.live(10 * time.Second)
	noted, note := a.Noted, a.Note
	writes := 0
	a.Note = func(ctx context.Context, was, next string) error {
		writes++
		return note(ctx, was, next)
	}
	for name, broken := range map[string]func(context.Context) (string, error){
		"of a later version": func(context.Context) (string, error) { return w.note, nil },
		"nobody answers":     func(context.Context) (string, error) { return "", errors.New("nobody answers") },
	} {
		t.Run(name, func(t *testing.T) {
			a.Noted = broken
			right := w.note
			w.note = "2 of a later version"
			at, real := a.now(), w.real
			w.server = w.server.Add(2 * time.Hour)
			w.live(time.Minute)
			if went := a.now().Sub(at); (went - (w.real - real)).Abs() > Leap {
				t.Errorf("in %v the time goes on by %v", w.real-real, went)
			}
			if writes != 0 || w.note != "2 of a later version" {
				t.Errorf("%d writes; it is noted %q", writes, w.note)
			}
			w.server, w.note, a.Noted = w.server.Add(-2*time.Hour), right, noted
			w.live(2 * Period)
			if writes == 0 {
				t.Error("nothing is noted when it can be read again")
			}
			writes = 0
		})
	}
}

// From what is known when a reading comes to what it is found to be, and from that to what is
// noted of it. Times are seconds after the note that everything begins with.
func TestWhatAReadingIsFoundToBe(t *testing.T) {
	const (
		noted = store.Instant(1e18)
		ever  = time.Duration(math.MaxInt64)
		s     = time.Second
	)
	at := func(d time.Duration) store.Instant { return noted.Add(d) }
	was := Note{At: noted, Boot: "boot", BootOff: time.Duration(noted)} // the boot was then
	held := Note{At: noted, Off: -2 * time.Hour, Since: noted, Until: at(MaxWait), Boot: "boot", BootOff: time.Duration(noted)}
	ran := func(d, lead time.Duration, n Note) *reckoning { // one that began at the note, d ago
		return &reckoning{note: n, at: noted, since: Moment{Mono: time.Hour - d}, lead: lead, ceiling: noted.Add(-lead)}
	}
	read := func(d time.Duration, boot string) Reading {
		m := Moment{Mono: time.Hour}
		return Reading{At: at(d), Asked: m, Came: m, Boot: bootclock.Reading{ID: boot, Up: 20 * s}}
	}
	for name, c := range map[string]struct {
		k     *reckoning
		n     Note
		r     Reading
		found finding
		off   time.Duration // of the new note
		until time.Duration // zero: none
		time  time.Duration // that it is now, without what is held back
	}{
		"a store that nobody has used":                   {nil, Note{}, read(ever/2, "boot"), inStep, 0, 0, ever / 2},
		"a start soon after the note":                    {nil, was, read(Near, ""), inStep, 0, 0, Near},
		"a start later":                                  {nil, was, read(Near+s, ""), ahead, -Near - s, MinWait, 0},
		"a start by a clock that was put back":           {nil, was, read(-2*s, ""), behind, 2 * s, MinWait, 0},
		"a start later, on a machine that was on":        {nil, was, read(20*s+Near, "boot"), inStep, 0, 0, 20*s + Near},
		"a start there, after a leap":                    {nil, was, read(21*s+Near, "boot"), ahead, -Near - s, 20*s + MinWait, 20 * s},
		"a start there, by a clock that was put back":    {nil, was, read(19*s-Near, "boot"), behind, Near + s, 20*s + MinWait, 20 * s},
		"a start there, by one that is a bit behind":     {nil, was, read(20*s-Near, "boot"), inStep, 0, 0, 20*s - Near},
		"a start while a leap is waited for":             {nil, held, read(2*time.Hour+s, ""), inStep, -2 * time.Hour, MaxWait, s},
		"a reading of what has passed":                   {ran(3*s, 0, was), was, read(3*s, ""), inStep, 0, 0, 3 * s},
		"a reading a second ahead":                       {ran(3*s, 0, was), was, read(4*s, ""), inStep, 0, 0, 4 * s},
		"a reading further ahead":                        {ran(3*s, 0, was), was, read(4*s+bound, ""), ahead, -s - bound, 3*s + MinWait, 3 * s},
		"a reading a bit behind":                         {ran(3*s, 0, was), was, read(3*s-bound, ""), inStep, 0, 0, 3 * s},
		"a reading further behind":                       {ran(3*s, 0, was), was, read(3*s-2*bound, ""), behind, 2 * bound, 0, 3 * s},
		"one of a process that runs ahead already":       {ran(3*s, s, was), was, read(3*s+bound, ""), ahead, 0, 0, 3*s + bound},
		"one while others know of a later time":          {ran(3*s, 0, was), Note{At: at(9 * s)}, read(9*s+Near, ""), inStep, 0, 0, 9*s + Near},
		"one that is ahead of these":                     {ran(3*s, 0, was), Note{At: at(9 * s)}, read(10*s+Near, ""), ahead, -s - Near, 9*s + MinWait, 9 * s},
		"one after the leap that is waited for has gone": {ran(3*s, 0, held), held, read(3*s, ""), behind, 0, 0, 3 * s},
		"one after it has gone but for a second":         {ran(3*s, 0, held), held, read(3*s+Leap, ""), behind, 0, 0, 3*s + Leap},
		"one of a leap that nobody else has noted":       {ran(3*s, 0, held), was, read(2*time.Hour+3*s, ""), ahead, -2 * time.Hour, MaxWait, 3 * s},
		"one of such a leap, corrected a little":         {ran(3*s, 0, held), was, read(2*time.Hour+3*s+Leap, ""), ahead, -2*time.Hour - Leap, MaxWait, 3 * s},
		"one of a leap that grows":                       {ran(3*s, 0, held), held, read(4*time.Hour+3*s, ""), ahead, -4 * time.Hour, 3*s + MaxWait, 3 * s},
		"one after another process has followed":         {ran(3*s, 0, held), Note{At: noted, Leap: store.Leap{At: held.Until, By: 2 * time.Hour}}, read(2*time.Hour+3*s, ""), inStep, 0, 0, 2*time.Hour + 3*s},
		"one after this process has followed, unnoted":   {ran(3*s, 0, held.followed()), held, read(3*s, ""), inStep, 0, 0, 3 * s},
		"one when the wait is over":                      {ran(MaxWait, 0, held), held, read(2*time.Hour+MaxWait, ""), inStep, 0, 0, 2*time.Hour + MaxWait},
		"one when it is over and nothing can be noted":   {ran(MaxWait, 0, held), was, read(2*time.Hour+MaxWait, ""), inStep, 0, 0, 2*time.Hour + MaxWait},
	} {
		t.Run(name, func(t *testing.T) {
			var e expected
			n := c.n
			if c.k == nil {
				e = n.onStart(&c.r)
			} else {
				e, n = c.k.carriedOn(n, &c.r, 0, 0, bound)
			}
			if found := e.find(&c.r, n.Off, bound); found != c.found {
				t.Errorf("found %v between %v and %v, want %v", found, e.least.Sub(noted), e.most.Sub(noted), c.found)
			}
			next := c.k.next(c.n, c.r, 0, bound)
			var until time.Duration
			if next.note.Until != 0 {
				until = next.note.Until.Sub(noted)
			}
			if next.note.Off != c.off || until != c.until || (next.note.Since == 0) != (until == 0) {
				t.Errorf("noted %v until %v, want %v until %v", next.note.Off, until, c.off, c.until)
			}
			if next.at != at(c.time) {
				t.Errorf("the time is %v, want %v", next.at.Sub(noted), c.time)
			}
		})
	}
}

// What a note says of the clock before, at and after the instant that it names.
func TestWhatANoteSays(t *testing.T) {
	const since, until, by = store.Instant(1e18), store.Instant(1e18 + 1e10), 25 * time.Hour
	leap := store.Leap{At: 5, By: 7}
	ahead, back := Note{Off: -by, Since: since, Until: until, Leap: leap}, Note{Off: by, Since: since, Until: until, Leap: leap}
	for name, c := range map[string]struct {
		note Note
		at   store.Instant
		want store.ClockState
	}{
		"nothing":                   {Note{Leap: leap}, since, store.ClockState{Leap: leap}},
		"a leap that is waited for": {ahead, until - 1, store.ClockState{Held: by, Since: since, Until: until, Leap: leap}},
		"one that is followed":      {ahead, until, store.ClockState{Leap: store.Leap{At: until, By: by}}},
		"a clock put back":          {back, until - 1, store.ClockState{Back: by, Since: since, Until: until, Leap: leap}},
		"one that stays so":         {back, until, store.ClockState{Back: by, Ahead: by, Since: since, Until: until, Leap: leap}},
	} {
		if got := c.note.state(c.at); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A pause in which nobody looked is confirmed by a reading that was asked for ConfirmAfter later,
// unless it has turned out to be something else.
func TestWhenAPauseIsConfirmed(t *testing.T) {
	const paused = store.Instant(1e18)
	m := Moment{Mono: time.Minute} // the machine was on for longer
	var k *reckoning
	k = k.next(Note{At: paused}, Reading{At: paused.Add(time.Hour), Asked: m, Came: m}, 0, bound)
	if k.paused == nil || *k.paused != (pause{paused, time.Hour, m.Mono}) || k.note.Leap != (store.Leap{}) {
		t.Errorf("on its start a process has noted %+v, and has to confirm %+v", k.note, k.paused)
	}
	n := Note{At: paused, Off: -time.Hour, Since: paused, Until: paused.Add(time.Hour)}
	for name, c := range map[string]struct {
		after     time.Duration
		since     store.Instant
		confirmed bool
	}{
		"a moment too early":            {ConfirmAfter - 1, paused, false},
		"in time":                       {ConfirmAfter, paused, true},
		"after the clock was set again": {ConfirmAfter, paused + 1, false},
	} {
		k := &reckoning{note: n, at: paused, ceiling: paused, paused: &pause{at: paused, by: time.Hour}}
		was := n
		was.Since = c.since
		m := Moment{Mono: c.after}
		next := k.next(was, Reading{At: paused.Add(time.Hour + c.after), Asked: m, Came: m}, 0, bound)
		want := store.Leap{}
		if c.confirmed {
			want = store.Leap{At: paused, By: -time.Hour}
		}
		if next.note.Leap != want || (next.paused == nil) != (c.after >= ConfirmAfter) {
			t.Errorf("%s: leases are judged by %+v; to be confirmed: %v", name, next.note.Leap, next.paused != nil)
		}
	}
}

// A clock that is put right when a process has read it last, just before that follows: the time
// that it has given stays, and others take it over.
func TestAClockThatIsPutRightJustBeforeTheStep(t *testing.T) {
	const by = 10 * time.Minute
	w := newWorld(t, 2)
	a, b := w.nodes[0], w.nodes[1]
	w.live(time.Minute)
	w.server = w.server.Add(by)
	w.live(time.Minute)
	until := a.State(a.now()).Until
	w.live(until.Sub(a.now()) - time.Second)
	if err := a.Read(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.server = w.server.Add(-by)
	w.pass(until.Sub(a.now()))
	if off := a.now().Sub(w.server); (off - by).Abs() > Leap {
		t.Fatalf("the process doesn't follow what it has seen: it is off by %v", off)
	}
	w.live(4 * Period)
	w.agree()
	at, real := b.now(), w.real
	w.live(time.Minute)
	w.agree()
	if went := b.now().Sub(at); (went - (w.real - real)).Abs() > bound {
		t.Errorf("in %v the time goes on by %v", w.real-real, went)
	}
}
