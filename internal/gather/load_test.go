package gather

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A queue is silent from the arrival of the first item that waits, or from the last answer, and
// only while something waits. How many wait, and for how long each, doesn't matter.
func TestAQueueIsSilentWhileNobodyIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed(t, 1)
		silent := func(want time.Duration) {
			t.Helper()
			if got := k.Load().Silent(); got != want {
				t.Errorf("silent for %v, want %v", got, want)
			}
		}
		pass := func(d time.Duration) { <-time.After(d) }
		pass(time.Hour)
		silent(0)
		k.come(1, "a", "its own")
		pass(3 * time.Second)
		k.come(2, "b", "its own")
		pass(3 * time.Second)
		silent(6 * time.Second)
		k.end(0)
		silent(0) // b has waited for 3 s, behind a, which was answered
		pass(2 * time.Second)
		silent(2 * time.Second)
		k.end(1)
		pass(time.Hour)
		silent(0)
		if since := time.Since(k.Load().Answered); since != time.Hour {
			t.Errorf("the last answer was %v ago", since)
		}
		k.done("a", "b")
	})
}

// What fails and is sent again without end is no answer either. A failure that nobody has
// repeated is forgotten.
func TestFailuresAreSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		fails := true
		q := Queue[*named]{
			Send: func([]*named) { <-time.After(4 * time.Second) }, Failed: func(*named) bool { return fails },
			Workers: 1, MaxBatch: 4, MaxBytes: 100, Work: &work, Room: NewRoom(),
		}
		try := func() {
			if err := q.Do(context.Background(), &named{}); err != nil {
				t.Error(err)
			}
		}
		for n := range 3 {
			work.Go(try)
			<-time.After(4*time.Second + 500*time.Millisecond)
			synctest.Wait()
			if l := q.Load(); !l.Answered.IsZero() || l.Silent() != 0 {
				t.Errorf("after failure %d, while nothing waits: %+v", n, l)
			}
		}
		work.Go(try)
		<-time.After(time.Second)
		if got := q.Load().Silent(); got != 14*time.Second+500*time.Millisecond {
			t.Errorf("silent for %v", got)
		}
		<-time.After(time.Hour)
		fails = false
		work.Go(try)
		<-time.After(time.Second)
		if got := q.Load().Silent(); got != time.Second {
			t.Errorf("an hour after the last failure silent for %v", got)
		}
		work.Wait()
		if q.Load().Answered.IsZero() {
			t.Error("an answer is not noted")
		}
	})
}
