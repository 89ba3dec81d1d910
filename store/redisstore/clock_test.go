package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/bootclock"
	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// testTime is the clocks of machines and servers as a test sets them. They stand still
// otherwise, and readings take no time.
type testTime struct {
	mono, wall, server atomic.Int64
	slept              atomic.Int64
	fails              atomic.Pointer[error]
	readings           atomic.Int64
}

// pass lets time pass.
func (tt *testTime) pass(d time.Duration) {
	for _, c := range []*atomic.Int64{&tt.mono, &tt.wall, &tt.server} {
		c.Add(int64(d))
	}
}

// suspend lets time pass while this machine does not run.
func (tt *testTime) suspend(d time.Duration) {
	tt.wall.Add(int64(d))
	tt.server.Add(int64(d))
	tt.slept.Add(int64(d))
}

// on opens a Store that has these clocks.
func (tt *testTime) on(t *testing.T, url, prefix string) *Store {
	t.Helper()
	s, err := tt.try(t, url, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (tt *testTime) try(t *testing.T, url, prefix string) (*Store, error) {
	t.Helper()
	s := mustOpen(t, url, &Options{Prefix: fresh()}) // by the true clocks
	s.keys = newKeyspace(prefix)
	s.clock.Machine = func() offsetclock.Moment {
		return offsetclock.Moment{Wall: time.Duration(tt.wall.Load()), Mono: time.Duration(tt.mono.Load())}
	}
	s.clock.Boot = func() bootclock.Reading {
		return bootclock.Reading{ID: "boot", Up: time.Duration(tt.mono.Load() + tt.slept.Load()), Slept: time.Duration(tt.slept.Load())}
	}
	s.readTime = func(context.Context, rueidis.Client) (store.Instant, error) {
		tt.readings.Add(1)
		if err := tt.fails.Load(); err != nil {
			return 0, *err
		}
		return tt.truth(), nil
	}
	// Begin anew, by these.
	s.clock.Forget()
	return s, s.clock.Read(t.Context())
}

// reread has the servers' clock read, and returns what became of it.
func reread(s *Store) error {
	var going *offsetclock.Attempt
	for range 2 { // the first may be under way already
		var err error
		if going, err = s.clock.Soon(); err != nil {
			return err
		}
		<-going.Over
	}
	return going.Err
}

// truth is what the servers' clock shows.
func (tt *testTime) truth() store.Instant {
	return store.Instant(1e18).Add(time.Duration(tt.server.Load()))
}

// wantNow checks that the clock of a Store is right, and returns it.
func (tt *testTime) wantNow(t *testing.T, s *Store) store.Instant {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if off := now.Sub(tt.truth()); off.Abs() > clockBound {
		t.Fatalf("the clock is off by %v", off)
	}
	return now
}

// live lets time pass while Stores look at their clocks.
func (tt *testTime) live(t *testing.T, d time.Duration, stores ...*Store) {
	t.Helper()
	for step := time.Duration(0); d > 0; d -= step {
		step = min(d, offsetclock.Period) // or far more, in the midst of a long time
		if d > 2*offsetclock.MaxAge {
			step = offsetclock.MaxAge
		}
		tt.pass(step)
		for _, s := range stores {
			if err := reread(s); err != nil {
				t.Fatal(err)
			}
			mustNow(t, s)
		}
	}
}

// A server's clock that leaps is followed by nobody before it has lasted, nor by those who begin
// meanwhile; one that is put back is never followed, and nobody is without a time.
func TestAServerClockThatLeaps(t *testing.T) {
	clause.Proves(t, "G-CLOCK")
	srv := redistest.Start(t, "")
	for _, leap := range []time.Duration{10 * time.Second, 2 * time.Hour, 25 * time.Hour, 400 * 24 * time.Hour} {
		t.Run(leap.String(), func(t *testing.T) {
			var tt testTime
			prefix := fresh()
			s, other := tt.on(t, srv.URL(), prefix), tt.on(t, srv.URL(), prefix)
			tt.live(t, 3*offsetclock.Period, s, other)
			// want checks that all have the time that has passed, and those who begin too.
			start := mustNow(t, s)
			want := func(at time.Duration) {
				t.Helper()
				for name, s := range map[string]*Store{"one": s, "another": other, "who begins": tt.on(t, srv.URL(), prefix)} {
					if off := mustNow(t, s).Sub(start) - at; off.Abs() > offsetclock.Period+clockBound {
						t.Errorf("%s is off by %v", name, off)
					}
				}
			}
			tt.server.Add(int64(leap)) // for a moment
			want(0)
			tt.live(t, 6*time.Second, s, other)
			want(6 * time.Second)
			if st := s.ClockState(mustNow(t, s)); (st.Held - leap).Abs() > clockBound {
				t.Errorf("its state is %+v", st)
			}
			tt.server.Add(-int64(leap))
			tt.live(t, 6*time.Second, s, other)
			want(12 * time.Second)

			tt.server.Add(int64(leap)) // for ever
			wait := min(leap, time.Hour)
			tt.live(t, offsetclock.Period, s, other) // they see it
			tt.live(t, wait-6*time.Second-offsetclock.Period, s, other)
			want(6*time.Second + wait)
			tt.live(t, 9*time.Second, s, other)
			want(15*time.Second + wait + leap)
			tt.wantNow(t, s)

			tt.server.Add(-int64(leap)) // and back
			tt.live(t, 6*time.Second, s, other)
			want(21*time.Second + wait + leap)
		})
	}
}

func TestAcceptingAClock(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s, other := tt.on(t, srv.URL(), "p"), tt.on(t, srv.URL(), "p")
	tt.live(t, offsetclock.Period, s, other)
	tt.server.Add(int64(25 * time.Hour))
	tt.live(t, offsetclock.Period, s, other)
	if st, err := other.AcceptClock(t.Context()); err != nil || st.Held == 0 {
		t.Errorf("it gives %+v, %v", st, err)
	}
	tt.live(t, 3*offsetclock.Period, s, other)
	tt.wantNow(t, s)
	tt.wantNow(t, other)
}

// A step back that is small is made up for while the clock goes on.
func TestAClockThatIsALittleAheadSlowsDown(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	tt.server.Add(-int64(clockBound / 2))
	for range 2 {
		if err := reread(s); err != nil {
			t.Fatal(err)
		}
		last := tt.wantNow(t, s)
		for range 20 {
			tt.pass(offsetclock.Period / 20)
			now := tt.wantNow(t, s)
			if now < last.Add(offsetclock.Period/20*8/10) {
				t.Fatalf("in %v the clock moves by %v", offsetclock.Period/20, now.Sub(last))
			}
			last = now
		}
	}
	if lead := tt.wantNow(t, s).Sub(tt.truth()); lead > clockBound/4 {
		t.Errorf("the clock is ahead by %v still", lead)
	}
}

// The monotonic clock of a machine stands still while it is suspended, so the servers' is
// read before the clock answers: that it is behind would show leases that are over as if
// they were not.
func TestAMachineThatWasSuspendedAsksFirst(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	tt.wantNow(t, s)

	down := errors.New("nobody answers")
	tt.suspend(time.Minute)
	tt.fails.Store(&down)
	if now, err := s.Now(t.Context()); !errors.Is(err, down) {
		t.Fatalf("where nobody answers, the clock gives %v, %v", now, err)
	}
	tt.fails.Store(nil)
	tt.wantNow(t, s) // the wall clock of the machine says the same

	// A wall clock that was set is no suspended machine.
	tt.wall.Add(int64(time.Hour))
	n := tt.readings.Load()
	tt.wantNow(t, s)
	tt.wantNow(t, s)
	if n = tt.readings.Load() - n; n != 1 {
		t.Errorf("the servers were asked %d times", n)
	}

	// An answer that comes after the machine was suspended is as old as that.
	read := s.readTime
	s.readTime = func(ctx context.Context, r rueidis.Client) (store.Instant, error) {
		at, err := read(ctx, r)
		tt.suspend(time.Minute)
		return at, err
	}
	if err := reread(s); !errors.Is(err, offsetclock.ErrSuspended) {
		t.Errorf("the reading ends with %v", err)
	}
	s.readTime = read
	tt.wantNow(t, s)
}

// The servers' clock is carried on for as long as it is not off by then.
func TestAClockThatWasNotReadForLong(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	down := errors.New("nobody answers")
	tt.fails.Store(&down)
	tt.pass(offsetclock.MaxAge - time.Second)
	tt.wantNow(t, s)
	tt.pass(2 * time.Second)
	if now, err := s.Now(t.Context()); !errors.Is(err, down) {
		t.Errorf("the clock gives %v, %v", now, err)
	}
	tt.fails.Store(nil)
	tt.wantNow(t, s)
}

// Whoever waits for a reading leaves with their context, and all wait for the same one.
func TestCallersOfAClockThatHangs(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	hangs, asked := make(chan struct{}), make(chan struct{}, 100)
	read := s.readTime
	s.readTime = func(ctx context.Context, r rueidis.Client) (store.Instant, error) {
		asked <- struct{}{}
		<-hangs
		return read(ctx, r)
	}
	tt.pass(2 * offsetclock.MaxAge)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			if _, err := s.Now(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
	<-asked
	cancel()
	callers.Wait()
	if n := len(asked); n != 0 {
		t.Errorf("the servers are asked %d times more", n)
	}
	close(hangs)
	tt.wantNow(t, s)
}

// One server that is wrong says nothing about the others, whoever begins.
func TestOneClockOfAClusterThatIsWrong(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "", redistest.Patient...)
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		var tt testTime
		prefix := fresh()
		s := tt.on(t, c.URL(), prefix)
		var n atomic.Int64
		for _, st := range []*Store{s, tt.on(t, c.URL(), prefix)} {
			read := st.readTime
			st.readTime = func(ctx context.Context, r rueidis.Client) (store.Instant, error) {
				at, err := read(ctx, r)
				if n.Add(1)%int64(len(c.Nodes)) == 0 {
					at = at.Add(off)
				}
				return at, err
			}
			if st != s {
				st.clock.Forget()
			}
			for range 3 {
				if err := reread(st); err != nil {
					t.Error(err)
				}
				tt.wantNow(t, st)
			}
		}
	}
}

// What was noted goes on where another program has noted it, and can't be replaced by who
// doesn't know it.
func TestWhatIsNotedOfTheClock(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	noted := func() offsetclock.Note {
		t.Helper()
		text, err := s.noted(t.Context())
		n, bad := offsetclock.ParseNote(text)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if off := noted().At.Sub(tt.truth()); off.Abs() > clockBound {
		t.Errorf("noted is a time that is off by %v", off)
	}
	was := noted()
	if err := s.note(t.Context(), "1 2 3 4 5 6 7 \"\" 8", "1 9 9 9 9 9 9 \"\" 9"); err != nil || noted() != was {
		t.Errorf("it was replaced: %+v, %v", noted(), err)
	}
	// Before, there was another note.
	srv.Do("DEL", "p:time")
	srv.Do("SET", "p:clock", strconv.FormatInt(tt.truth().Add(time.Hour).Micros(), 10))
	if ahead := mustNow(t, tt.on(t, srv.URL(), "p")).Sub(tt.truth()); ahead != time.Hour {
		t.Errorf("who begins is ahead by %v", ahead)
	}
	srv.Do("SET", "p:time", "no time")
	if _, err := tt.try(t, srv.URL(), "p"); err == nil {
		t.Error("with a note that is none one begins")
	}
	if err := reread(s); err != nil {
		t.Errorf("with a note that is none the reading ends with %v", err)
	}
}
