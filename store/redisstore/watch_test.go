package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// Notices come until the watch is stopped or the store is closed, whether or not anybody
// takes them, and leave nothing running.
func TestWatchersAreToldToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Store)
		s.life, s.end = context.WithCancel(t.Context())
		changed, stop := s.Watch(t.Context(), semel.ID{})
		for range 3 {
			start := time.Now()
			<-changed
			if waited := time.Since(start); waited != lookPause {
				t.Errorf("a notice came after %v", waited)
			}
		}
		<-time.After(10 * lookPause) // nobody takes them
		stop()
		s.work.Wait()
		if n := len(changed); n != 1 {
			t.Errorf("%d notices were waiting", n)
		}
		_, stop = s.Watch(t.Context(), semel.ID{})
		defer stop()
		s.closed.Store(true)
		s.end()
		s.work.Wait()
		after, stop := s.Watch(t.Context(), semel.ID{})
		defer stop()
		<-time.After(10 * lookPause)
		if n := len(after); n != 0 {
			t.Errorf("%d notices came after the store was closed", n)
		}
	})
}

// BenchmarkWaiting is how long after an outcome a delivery that waits for it in another
// process has it, with the store's notices and by the engine's own polling.
func BenchmarkWaiting(b *testing.B) {
	srv := redistest.Start(b, "")
	for name, hide := range map[string]bool{"notices": false, "polling": true} {
		b.Run(name, func(b *testing.B) {
			var late atomic.Int64
			const calls = 64
			for b.Loop() {
				url, opts := srv.URL(), &Options{Prefix: fresh()}
				open := func(st semel.Store) *semel.Engine {
					e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op", InFlight: semel.WaitInFlight}}})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = e.Close(context.Background()) })
					return e
				}
				holder, waiter := open(mustOpen(b, url, opts)), open(noWatch{mustOpen(b, url, opts), hide})
				var all sync.WaitGroup
				for i := range calls {
					all.Go(func() {
						c := semel.Call{Operation: "op", Key: fmt.Sprint(i)}
						ans, err := holder.Begin(b.Context(), c)
						if err != nil {
							b.Error(err)
							return
						}
						waited := make(chan error, 1)
						go func() {
							_, err := waiter.Begin(b.Context(), c)
							waited <- err
						}()
						<-time.After(time.Second + rand.N(2*time.Second))
						ended := time.Now()
						if err := errors.Join(ans.Attempt.Complete(b.Context(), semel.Result{}), <-waited); err != nil {
							b.Error(err)
						}
						late.Add(int64(time.Since(ended)))
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(late.Load())/1e6/calls/float64(b.N), "ms-late")
		})
	}
}

// noWatch is a store that may hide its notices.
type noWatch struct {
	semel.Store
	hide bool
}

func (s noWatch) Extras() store.Extras {
	x := s.Store.Extras()
	if s.hide {
		x.Watch = nil
	}
	return x
}
