package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

// Whoever gives up does not wait for a server that hangs, nor for the connection to it.
func TestWatchEndsWithItsContext(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Timeout: time.Minute})
	srv.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	rec := small("k")
	_, stop := s.Watch(ctx, rec.ID)
	s.watch.mu.Lock()
	k := s.watch.keys[keyOf(s, rec)]
	s.watch.mu.Unlock()
	select {
	case <-k.armed:
		t.Error("the server has taken note, so nothing is proved")
	default:
	}
	stop()
	if n := len(s.watch.keys); n != 0 {
		t.Errorf("%d keys are watched", n)
	}
	srv.Resume()
	changed, stop := s.Watch(t.Context(), rec.ID)
	defer stop()
	mustApply(t, s, rec, semel.Revision{})
	<-changed
}

// Callers who give up while a server hangs leave nothing that grows: no write, no watcher,
// no question, no goroutine. Those who come afterwards find the store as it was.
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
			mustApply(t, s, small("before"), semel.Revision{})
			if _, stop := s.Watch(t.Context(), small("before").ID); true {
				stop()
			}
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
							if _, applied, err := s.Apply(ctx, semel.Write{Record: rec}); err == nil {
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
			for i := range s.writes {
				b := &s.writes[i]
				b.mu.Lock()
				queued, running = queued+len(b.queue), running+b.running
				b.mu.Unlock()
			}
			s.watch.mu.Lock()
			watched := len(s.watch.keys)
			for i := range s.watch.arming {
				watched += len(s.watch.arming[i].keys)
			}
			s.watch.mu.Unlock()
			shards := len(s.keys.shards)
			stages := int(s.stages.made)
			// A question has a goroutine of its own, and may have one of the client; what
			// connects has some more.
			most := before + 2*maxAsks + 2*flights*shards + shards + 64
			t.Logf("%d writes are queued, %d runs with %d stages and %d questions are on their way, %d keys are watched; %d goroutines, %d before",
				queued, running, stages, len(s.asks), watched, runtime.NumGoroutine(), before)
			if queued > 0 || s.room.writes.Load() != 0 || s.room.bytes.Load() != 0 || watched > 0 {
				t.Error("something waits for callers who have gone")
			}
			if running > flights*shards || stages > flights*shards || len(s.asks) > maxAsks || runtime.NumGoroutine() > most {
				t.Errorf("more is on its way than there may be; goroutines are at most %d", most)
			}
			resume()
			redistest.Eventually(t, "the store works again", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := s.Get(ctx, small("before").ID)
				return err
			})
			mustApply(t, s, small("afterwards"), semel.Revision{})
			redistest.Eventually(t, "everything has ended", func() error {
				for i := range s.writes {
					b := &s.writes[i]
					b.mu.Lock()
					n := b.running
					b.mu.Unlock()
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
