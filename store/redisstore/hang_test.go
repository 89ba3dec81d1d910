package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// Callers who give up while a server hangs leave nothing that grows: no write, no
// watcher, no question, no goroutine. Those who come afterwards find the store as it was.
func TestWhoGivesUpLeavesNothing(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string, pause, resume func()){
		"one server": func(t *testing.T) (string, func(), func()) {
			srv := redistest.Start(t, "")
			return srv.URL(), srv.Pause, srv.Resume
		},
		"a Cluster": func(t *testing.T) (string, func(), func()) {
			// None takes over, and none is given up, while they hang.
			c := redistest.StartCluster(t, "", "cluster-require-full-coverage", "no", "cluster-replica-no-failover", "yes")
			each := func(f func(*redistest.Server)) func() {
				return func() {
					for _, n := range c.Nodes {
						f(n)
					}
				}
			}
			return c.URL(), each((*redistest.Server).Pause), each((*redistest.Server).Resume)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, pause, resume := start(t)
			// Nothing is let go of because a connection is given up.
			s := mustOpen(t, url, &Options{Timeout: 5 * time.Minute})
			mustApply(t, s, small("before"), store.Revision{})
			before := runtime.NumGoroutine()
			pause()
			const rounds, callers = 10, 400
			for round := range rounds {
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%20)*time.Millisecond)
						defer cancel()
						rec := large(fmt.Sprint(round, ".", i), 1e18)
						switch i % 4 {
						case 0:
							rec.Result.Data = nil
							fallthrough
						case 1:
							if _, applied, err := s.Apply(ctx, store.Write{Record: new(rec)}); err == nil {
								t.Errorf("applied %v although the server hangs", applied)
							}
						case 2:
							if _, err := s.Get(ctx, rec.ID); err == nil {
								t.Error("an answer although the server hangs")
							}
						case 3:
							_, stop := s.Watch(ctx, rec.ID)
							<-ctx.Done()
							stop()
						}
					})
				}
				all.Wait()
			}
			queued, running := 0, 0
			for i := range s.queues {
				waiting, sent := s.queues[i].Len()
				queued, running = queued+waiting, running+sent
			}
			runs := workers * len(s.queues)
			// A question has a goroutine of its own, and may have one of the client; what
			// connects has some more.
			most := before + 2*maxAsks + 2*runs + 64
			t.Logf("%d writes are queued, %d runs and %d questions are on their way; %d goroutines, %d before",
				queued, running, len(s.asks), runtime.NumGoroutine(), before)
			if queued > 0 {
				t.Error("something waits for callers who have gone")
			}
			if running > runs || len(s.asks) > maxAsks || runtime.NumGoroutine() > most {
				t.Errorf("more is on its way than there may be; goroutines are at most %d", most)
			}
			resume()
			servertest.Eventually(t, "the store works again", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.Get(ctx, small("before").ID)
				return err
			})
			mustApply(t, s, small("afterwards"), store.Revision{})
			servertest.Eventually(t, "everything has ended", func() error {
				for i := range s.queues {
					_, n := s.queues[i].Len()
					if n > 0 {
						return fmt.Errorf("%d runs of shard %d are on their way", n, i)
					}
				}
				if n := len(s.asks); n > 0 {
					return fmt.Errorf("%d questions are on their way", n)
				}
				return nil
			})
		})
	}
}
