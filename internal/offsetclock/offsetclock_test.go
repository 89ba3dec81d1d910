package offsetclock

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel/store"
)

// world is a machine that runs, is suspended and restarts, and a server whose clock is set.
type world struct {
	server store.Instant
	here   Moment
	given  store.Instant // the latest, of this process
	noted  store.Instant
	k      *reckoning
}

func (w *world) pass(d time.Duration) {
	w.server = w.server.Add(d)
	w.here.Mono += d
	w.here.Wall += d
}

// read reads the server's clock, which takes time.
func (w *world) read(there, back time.Duration) {
	r := Reading{Asked: w.here}
	high := max(w.given, w.noted)
	w.pass(there)
	r.At = w.server
	w.pass(back)
	r.Came = w.here
	if w.k = w.k.next(r, high, bound); w.k.agreed && w.k.stopped == nil {
		w.noted = max(w.noted, w.k.at)
	}
}

// Whatever clocks do, and however long readings take: the time never goes back, nor behind
// the stored one; right after a reading it is the server's time; one reading isn't enough for
// a step ahead; and in the end the clock goes on.
func TestTheRuleOfTheClock(t *testing.T) {
	some := func(t *rapid.T, most time.Duration, name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{server: 1e18, here: Moment{Wall: 1e18, Mono: 1e9}}
		give := func() {
			if w.k == nil || !w.k.holds(w.here, bound) {
				return
			}
			now := w.k.now(w.here)
			if now < w.given || now < w.noted.Add(-bound) {
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
			if off := now.Sub(w.server); off > bound+trip || off < -trip {
				t.Fatalf("the clock is off by %v after a reading of %v", off, trip)
			}
			if k != nil && k.stopped == nil {
				passed, slept := w.here.Mono-k.since.Mono, max(0, w.here.skew()-k.since.skew())
				if ahead := before.Sub(k.ceiling) - (passed - trip); ahead > Leap+slept+passed/1000+trip {
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
			"slew":    func(t *rapid.T) { w.server = w.server.Add(some(t, 2*bound, "by") - bound) },
			"set":     func(t *rapid.T) { w.here.Wall += some(t, 2*time.Hour, "by") - time.Hour },
			"suspend": func(t *rapid.T) { d := some(t, time.Hour, "for"); w.server = w.server.Add(d); w.here.Wall += d; give() },
			"restart": func(*rapid.T) { w.k, w.given = nil, 0 },
			"":        func(*rapid.T) {},
		})
		// Now the server's clock is left alone.
		if behind := max(w.given, w.noted).Sub(w.server); behind > 0 {
			w.pass(behind)
		}
		for range 3 {
			w.pass(ConfirmAfter + time.Second)
			read()
		}
		if w.k.stopped != nil {
			t.Fatalf("the clock does not go on: %v", w.k.stopped)
		}
		give()
	})
}

func TestWhatAClockSaysThatHasStopped(t *testing.T) {
	until := store.InstantOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	for err, want := range map[error]string{
		&BehindError{90 * time.Minute, until}: "the servers' clock is 1h30m0s behind the time that this store has been used with: put it right, or wait until 2030-01-02T03:04:05Z",
		&AheadError{time.Minute}:              "the servers' clock went ahead by 1m0s at once: it is believed when it does so for 5s more, unless it is put right",
	} {
		if got := fmt.Sprint(err); got != want {
			t.Errorf("it says %q", got)
		}
	}
}
