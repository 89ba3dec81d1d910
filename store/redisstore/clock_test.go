package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel/internal/offsetclock"
	"github.com/semelhq/semel/internal/redistest"
	"github.com/semelhq/semel/store"
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
	s.keys = newKeyspace(prefix)
	s.clock.Machine = func() offsetclock.Moment {
		return offsetclock.Moment{Wall: time.Duration(tt.wall.Load()), Mono: time.Duration(tt.mono.Load())}
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
	tt.pass(offsetclock.Period)
	tt.server.Add(int64(time.Hour))
	if err := reread(s); err == nil || !strings.Contains(err.Error(), "went ahead by 1h0m") {
		t.Fatalf("the reading ends with %v", err)
	}
	wantStopped[*offsetclock.AheadError](t, s)
	tt.pass(offsetclock.ConfirmAfter - 1) // not long enough
	_ = reread(s)
	wantStopped[*offsetclock.AheadError](t, s)
	tt.server.Add(-int64(time.Hour))
	tt.pass(offsetclock.AskAgain)
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
	wantStopped[*offsetclock.AheadError](t, s)
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
	tt.pass(offsetclock.ConfirmAfter)
	ahead := tt.wantNow(t, s) // it has confirmed it
	tt.server.Add(-int64(time.Hour))
	tt.pass(offsetclock.Period)
	for name, st := range map[string]*Store{"it has believed it": s, "it has not seen it": other} {
		if err := reread(st); err == nil || !strings.Contains(err.Error(), "59m") || !strings.Contains(err.Error(), "put it right, or wait until") {
			t.Errorf("where %s, the reading ends with %v", name, err)
		}
		wantStopped[*offsetclock.BehindError](t, st)
	}
	if _, err := tt.try(t, srv.URL(), "p"); err == nil {
		t.Error("one begins all the same")
	}

	srv.Do("COPY", "p:clock", "p:kept")
	srv.Do("DEL", "p:clock")
	tt.pass(offsetclock.AskAgain)
	tt.wantNow(t, other)
	wantStopped[*offsetclock.BehindError](t, s) // until it ends
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
	c := redistest.StartCluster(t, "")
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		var tt testTime
		s := tt.on(t, c.URL(), fresh())
		var n atomic.Int64
		for _, st := range []*Store{s, tt.on(t, c.URL(), s.opts.Prefix)} {
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

// How far the clock has come is noted by those who have two readings that agree, and only
// ever rises.
func TestHowFarTheClockHasComeIsNoted(t *testing.T) {
	srv := redistest.Start(t, "")
	var tt testTime
	s := tt.on(t, srv.URL(), "p")
	if n := srv.Do("EXISTS", "p:clock"); n != "0" {
		t.Error("it is noted after one reading")
	}
	noted := func() store.Instant {
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
