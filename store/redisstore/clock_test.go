package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

// testTime is the clocks of machines and servers as a test sets them. They stand still
// otherwise, and readings take no time.
type testTime struct {
	mono, wall, server atomic.Int64
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
	s.keys = newKeyspace(prefix, s.link.cluster)
	c := &s.clock
	c.source = func() moment {
		return moment{wall: time.Duration(tt.wall.Load()), mono: time.Duration(tt.mono.Load())}
	}
	c.readTime = func(context.Context, rueidis.Client) (semel.Instant, error) {
		tt.readings.Add(1)
		if err := tt.fails.Load(); err != nil {
			return 0, *err
		}
		return tt.truth(), nil
	}
	// Begin anew, by these.
	c.state.Store(nil)
	c.given.Store(0)
	return s, s.readClock(t.Context())
}

// reread has the servers' clock read, and returns what became of it.
func reread(s *Store) error {
	var going *attempt
	for range 2 { // the first may be under way already
		var err error
		if going, err = s.readSoon(); err != nil {
			return err
		}
		<-going.over
	}
	return going.err
}

// truth is what the servers' clock shows.
func (tt *testTime) truth() semel.Instant {
	return semel.Instant(1e18).Add(time.Duration(tt.server.Load()))
}

// wantNow checks that the clock of a Store is right, and returns it.
func (tt *testTime) wantNow(t *testing.T, s *Store) semel.Instant {
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

// wantStopped checks that the clock of a Store gives no time and says why.
func wantStopped[E error](t *testing.T, s *Store) {
	t.Helper()
	now, err := s.Now(t.Context())
	if why, ok := errors.AsType[E](err); !ok {
		t.Fatalf("the clock gives %v, %v, want %T", now, err, why)
	}
}

// A server's clock that is ahead for a moment is believed by nobody: not by those who see
// it, so that they agree with those who begin later.
func TestAClockThatIsAheadForAMoment(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	before := tt.wantNow(t, s)
	tt.pass(syncEvery)
	tt.server.Add(int64(time.Hour))
	if err := reread(s); err == nil || !strings.Contains(err.Error(), "went ahead by 1h0m") {
		t.Fatalf("the reading ends with %v", err)
	}
	wantStopped[*aheadError](t, s)
	tt.pass(confirmAfter - 1) // not long enough
	_ = reread(s)
	wantStopped[*aheadError](t, s)
	tt.server.Add(-int64(time.Hour))
	tt.pass(askAgain)
	after := tt.wantNow(t, s) // it asks again by itself
	if after < before {
		t.Errorf("the clock went back by %v", before.Sub(after))
	}
	other := tt.on(t, srv.URL(), "p")
	tt.wantNow(t, other)
	// An earlier sighting does not confirm a later one.
	tt.pass(time.Hour)
	tt.wantNow(t, s)
	tt.server.Add(int64(time.Hour))
	_ = reread(s)
	wantStopped[*aheadError](t, s)
}

// A clock that was ahead for long enough to be believed has ended leases, and given fences.
// When it is put right, nobody goes on, nor begins, before it has come as far again; an
// operator who knows better can have it otherwise.
func TestAClockThatWasAheadAndIsPutRight(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s, other := tt.on(t, srv.URL(), "p"), tt.on(t, srv.URL(), "p")
	tt.wantNow(t, other)
	tt.server.Add(int64(time.Hour))
	_ = reread(s)
	tt.pass(confirmAfter)
	ahead := tt.wantNow(t, s) // it has confirmed it
	tt.server.Add(-int64(time.Hour))
	tt.pass(syncEvery)
	for name, st := range map[string]*Store{"it has believed it": s, "it has not seen it": other} {
		if err := reread(st); err == nil || !strings.Contains(err.Error(), "59m") || !strings.Contains(err.Error(), "put it right, or wait until") {
			t.Errorf("where %s, the reading ends with %v", name, err)
		}
		wantStopped[*behindError](t, st)
	}
	if _, err := tt.try(t, srv.URL(), "p"); err == nil {
		t.Error("one begins all the same")
	}

	srv.Do("COPY", "p:clock", "p:kept")
	srv.Do("DEL", "p:clock")
	tt.pass(askAgain)
	tt.wantNow(t, other)
	wantStopped[*behindError](t, s) // until it ends
	tt.on(t, srv.URL(), "p")
	srv.Do("COPY", "p:kept", "p:clock", "REPLACE")

	tt.pass(time.Hour)
	for _, st := range []*Store{s, other, tt.on(t, srv.URL(), "p")} {
		if now := tt.wantNow(t, st); now < ahead {
			t.Errorf("the clock went back by %v", ahead.Sub(now))
		}
	}
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
			tt.pass(syncEvery / 20)
			now := tt.wantNow(t, s)
			if now < last.Add(syncEvery/20*8/10) {
				t.Fatalf("in %v the clock moves by %v", syncEvery/20, now.Sub(last))
			}
			last = now
		}
	}
	k := s.clock.state.Load()
	if lead := k.now(s.clock.source()).Sub(tt.truth()); lead > clockBound/4 {
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
	wantStopped[*aheadError](t, s) // which this is, as far as a machine can tell
	tt.pass(confirmAfter)
	tt.wantNow(t, s)

	// A wall clock that was set is no suspended machine.
	tt.wall.Add(int64(time.Hour))
	n := tt.readings.Load()
	tt.wantNow(t, s)
	tt.wantNow(t, s)
	if n = tt.readings.Load() - n; n != 1 {
		t.Errorf("the servers were asked %d times", n)
	}

	// An answer that comes after the machine was suspended is as old as that.
	c := &s.clock
	read := c.readTime
	c.readTime = func(ctx context.Context, r rueidis.Client) (semel.Instant, error) {
		at, err := read(ctx, r)
		tt.suspend(time.Minute)
		return at, err
	}
	if err := reread(s); !errors.Is(err, errSuspended) {
		t.Errorf("the reading ends with %v", err)
	}
	c.readTime = read
	wantStopped[*aheadError](t, s)
}

// The servers' clock is carried on for as long as it is not off by then.
func TestAClockThatWasNotReadForLong(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	down := errors.New("nobody answers")
	tt.fails.Store(&down)
	tt.pass(maxAge - time.Second)
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
	c := &s.clock
	read := c.readTime
	c.readTime = func(ctx context.Context, r rueidis.Client) (semel.Instant, error) {
		asked <- struct{}{}
		<-hangs
		return read(ctx, r)
	}
	tt.pass(2 * maxAge)
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
	c := redistest.StartCluster(t, "")
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		var tt testTime
		s := tt.on(t, c.URL(), fresh())
		var n atomic.Int64
		for _, st := range []*Store{s, tt.on(t, c.URL(), s.opts.Prefix)} {
			read := st.clock.readTime
			st.clock.readTime = func(ctx context.Context, r rueidis.Client) (semel.Instant, error) {
				at, err := read(ctx, r)
				if n.Add(1)%int64(len(c.Nodes)) == 0 {
					at = at.Add(off)
				}
				return at, err
			}
			if st != s {
				st.clock.state.Store(nil)
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

// How far the clock has come is noted by those who have two readings that agree, and only
// ever rises.
func TestHowFarTheClockHasComeIsNoted(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	if n := srv.Do("EXISTS", "p:clock"); n != "0" {
		t.Error("it is noted after one reading")
	}
	noted := func() semel.Instant {
		at, err := s.noted(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if err := reread(s); err != nil || noted().Sub(tt.truth()).Abs() > clockBound {
		t.Errorf("noted is %v, %v", noted(), err)
	}
	was := noted()
	s.note(t.Context(), was.Add(-time.Minute))
	if noted() != was {
		t.Error("the note went back")
	}
	srv.Do("SET", "p:clock", "no time")
	if err := reread(s); err == nil || !strings.Contains(err.Error(), "p:clock") {
		t.Errorf("with a note that is none the reading ends with %v", err)
	}
}

// world is a machine that runs, is suspended and starts anew, and a server whose clock is
// set, as a test of the rule itself sees them.
type world struct {
	server semel.Instant
	here   moment
	given  semel.Instant // the latest, of this process
	noted  semel.Instant
	k      *reckoning
}

func (w *world) pass(d time.Duration) {
	w.server = w.server.Add(d)
	w.here.mono += d
	w.here.wall += d
}

// read reads the server's clock, which takes time.
func (w *world) read(there, back time.Duration) {
	r := reading{asked: w.here}
	high := max(w.given, w.noted)
	w.pass(there)
	r.at = w.server
	w.pass(back)
	r.came = w.here
	if w.k = w.k.next(r, high); w.k.agreed && w.k.stopped == nil {
		w.noted = max(w.noted, w.k.at)
	}
}

// Whatever clocks do, and however long readings take: what is given out never goes back,
// nor behind what was noted; right after a reading it is the server's time; a step ahead is
// not believed by one reading; and the clock goes on in the end.
func TestTheRuleOfTheClock(t *testing.T) {
	some := func(t *rapid.T, most time.Duration, name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{server: 1e18, here: moment{wall: 1e18, mono: 1e9}}
		give := func() {
			if w.k == nil || !w.k.holds(w.here) {
				return
			}
			now := w.k.now(w.here)
			if now < w.given || now < w.noted.Add(-clockBound) {
				t.Fatalf("the clock is %v, and was %v, noted is %v", now, w.given, w.noted)
			}
			w.given = now
		}
		read := func() {
			there, back := some(t, 100*time.Millisecond, "there"), some(t, 100*time.Millisecond, "back")
			if rapid.IntRange(0, 9).Draw(t, "slow") == 0 {
				there *= 50
			}
			before, k := w.server, w.k
			w.read(there, back)
			if w.k.stopped != nil {
				return
			}
			now, trip := w.k.now(w.here), there+back
			if off := now.Sub(w.server); off > clockBound+trip || off < -trip {
				t.Fatalf("the clock is off by %v after a reading of %v", off, trip)
			}
			if k != nil && k.stopped == nil {
				passed := w.here.mono - k.since.mono
				if ahead := before.Sub(k.ceiling) - (passed - trip); ahead > clockBound+passed/1000+trip {
					t.Fatalf("a step ahead of %v is believed at once", ahead)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass":    func(t *rapid.T) { w.pass(some(t, 20*time.Second, "for")); give() },
			"a bit":   func(t *rapid.T) { w.pass(some(t, time.Second, "for")); give() },
			"read":    func(*rapid.T) { read(); give() },
			"ahead":   func(t *rapid.T) { w.server = w.server.Add(some(t, 2*time.Hour, "by")) },
			"back":    func(t *rapid.T) { w.server = w.server.Add(-some(t, 2*time.Hour, "by")) },
			"slew":    func(t *rapid.T) { w.server = w.server.Add(some(t, 2*clockBound, "by") - clockBound) },
			"set":     func(t *rapid.T) { w.here.wall += some(t, 2*time.Hour, "by") - time.Hour },
			"suspend": func(t *rapid.T) { d := some(t, time.Hour, "for"); w.server = w.server.Add(d); w.here.wall += d; give() },
			"restart": func(*rapid.T) { w.k, w.given = nil, 0 },
			"":        func(*rapid.T) {},
		})
		// Now the server's clock is left alone.
		if behind := max(w.given, w.noted).Sub(w.server); behind > 0 {
			w.pass(behind)
		}
		for range 3 {
			w.pass(confirmAfter + time.Second)
			read()
		}
		if w.k.stopped != nil {
			t.Fatalf("the clock does not go on: %v", w.k.stopped)
		}
		give()
	})
}

func TestWhatAClockSaysThatHasStopped(t *testing.T) {
	until := semel.InstantOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	for err, want := range map[error]string{
		&behindError{90 * time.Minute, until}: "the servers' clock is 1h30m0s behind the time that this store has been used with: put it right, or wait until 2030-01-02T03:04:05Z",
		&aheadError{time.Minute}:              "the servers' clock went ahead by 1m0s at once: it is believed when it does so for 5s more, unless it is put right",
	} {
		if got := fmt.Sprint(err); got != want {
			t.Errorf("it says %q", got)
		}
	}
}
