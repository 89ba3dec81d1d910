package overdue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatTakesTooLongIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		began := time.Now()
		late := make(chan string, 10)
		after := func(name string, d time.Duration) *Work {
			return w.After(d, func() { late <- fmt.Sprint(name, " ", time.Since(began)) })
		}
		after("slow", 3*time.Second)
		quick := after("quick", 2*time.Second)
		after("first", time.Second)
		time.AfterFunc(1500*time.Millisecond, quick.Done)
		<-time.After(2500 * time.Millisecond)
		after("later", time.Second)
		<-time.After(time.Hour)
		synctest.Wait()
		for _, want := range []string{"first 1s", "slow 3s", "later 3.5s"} {
			if got := <-late; got != want {
				t.Errorf("%q is late, want %q", got, want)
			}
		}
		if len(late)+len(w.work) > 0 || !w.next.IsZero() {
			t.Errorf("afterwards %d are late, %d are watched, and the timer runs at %v", len(late), len(w.work), w.next)
		}
	})
}

func TestAContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		began := time.Now()
		ctx, cancel := w.WithTimeout(t.Context(), time.Second)
		<-ctx.Done()
		if took := time.Since(began); took != time.Second || ctx.Err() == nil {
			t.Errorf("it ends after %v, %v", took, ctx.Err())
		}
		cancel()
		outer, stop := context.WithCancel(t.Context())
		inner, cancel := w.WithTimeout(outer, time.Second)
		defer cancel()
		stop()
		if <-inner.Done(); time.Since(began) != time.Second {
			t.Error("it outlives the one around it")
		}
		_, cancel = w.WithTimeout(t.Context(), time.Second)
		cancel()
		if len(w.work) != 1 { // that of inner
			t.Errorf("%d are watched", len(w.work))
		}
	})
}

// Work that ends in time costs no timer: those would wake a thread up.
func TestWorkInTimeStartsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.After(3*time.Second, func() {}).Done()
		began, runs := w.next, 0
		for range 1000 {
			w.After(3*time.Second, func() { t.Error("late") }).Done()
			<-time.After(10 * time.Millisecond)
			if synctest.Wait(); w.next != began {
				began, runs = w.next, runs+1
			}
		}
		if runs > 8 { // it ran, and was started again, every three seconds
			t.Errorf("the timer changed %d times for 1,000 calls", runs)
		}
		<-time.After(time.Minute)
	})
}

func BenchmarkAfter(b *testing.B) {
	var w Watch
	b.Run("watch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.After(3*time.Second, func() {}).Done()
		}
	})
	b.Run("timer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			time.AfterFunc(3*time.Second, func() {}).Stop()
		}
	})
}
