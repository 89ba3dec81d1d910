package waiting

import (
	"testing"
	"time"

	"github.com/semelhq/semel/store"
)

func TestSeatsAreLentFairly(t *testing.T) {
	s := Seats[string]{Max: 4}
	for i, want := range []bool{true, true, false} { // one may take half of them
		if got := s.Admit("a"); got != want {
			t.Errorf("seat %d of a: %v", i+1, got)
		}
	}
	if !s.Admit("b") || s.Admit("b") {
		t.Error("b gets no seat, or more than half of what is free")
	}
	if n, by := s.Taken(); n != 3 || by != 2 || s.Empty() {
		t.Errorf("%d seats of %d", n, by)
	}
	s.Dismiss("a")
	s.Dismiss("a")
	s.Dismiss("b")
	if n, by := s.Taken(); n != 0 || by != 0 || !s.Empty() {
		t.Errorf("%d seats of %d after all have left", n, by)
	}
}

func TestAWakeReachesThoseWhoListenThen(t *testing.T) {
	var w Wakes
	one, other := store.ID{Key: "one"}, store.ID{Key: "other"}
	woken, unlisten := w.Listen(one)
	asleep, stop := w.Listen(other)
	defer stop()
	w.Wake(one)
	select {
	case <-woken:
	default:
		t.Error("nobody woke")
	}
	again, unlistenAgain := w.Listen(one)
	unlisten() // of a group that is gone: the new one stays
	w.Wake(one)
	select {
	case <-again:
	default:
		t.Error("who listened again didn't wake")
	}
	unlistenAgain()
	select {
	case <-asleep:
		t.Error("another record's listener woke")
	default:
	}
}

func TestAWatchIsSharedUntilItIsOver(t *testing.T) {
	var w Watches[string, int]
	started, stopped := 0, 0
	start := func(*Watch[int]) func() { started++; return func() { stopped++ } }
	first, before, leave := w.Share("k", start)
	w.Begin(first)
	second, later, leaveToo := w.Share("k", start)
	if first != second || before != 0 || later != 1 || started != 1 {
		t.Errorf("%d watches, %d and %d looks before", started, before, later)
	}
	w.Finish("k", first, 7, nil)
	<-first.Over
	if third, _, leaveThird := w.Share("k", start); third == first || first.Value != 7 {
		t.Error("a watch that is over is shared")
	} else {
		leaveThird()
	}
	if leave(); stopped != 1 {
		t.Errorf("%d stopped while one still shares the first", stopped)
	}
	if leaveToo(); stopped != 2 {
		t.Errorf("%d stopped in the end", stopped)
	}
}

func TestRetryAfterIsTheRestOfAUsualExecution(t *testing.T) {
	var l Latency
	if d := l.RetryAfter(2*time.Second, time.Minute); d != time.Second {
		t.Errorf("%v where nothing is usual", d)
	}
	l.Observe(8 * time.Second)
	l.Observe(16 * time.Second) // an eighth counts
	for age, want := range map[time.Duration]time.Duration{time.Second: 8 * time.Second, 8900 * time.Millisecond: 100 * time.Millisecond, 20 * time.Second: 10 * time.Second} {
		if d := l.RetryAfter(age, time.Minute); d != want {
			t.Errorf("at the age of %v: %v, want %v", age, d, want)
		}
	}
	if d := l.RetryAfter(time.Second, 3*time.Second); d != 3*time.Second {
		t.Errorf("%v with three seconds of lease", d)
	}
	if d := l.RetryAfter(time.Second, 0); d != MinRetryAfter {
		t.Errorf("%v without a lease", d)
	}
}
