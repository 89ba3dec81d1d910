package pgstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/pgtest"
)

// TestCallersThatLeave has callers come and go while commits wait for a standby that is
// away, and looks whether anything of them stays.
func TestCallersThatLeave(t *testing.T) {
	const callers = 10_000
	server := pgtest.Start(t, nil)
	database := server.Database(t)
	s := mustOpen(t, server.URL(database), &Options{Migrate: true, MaxBatch: 16, AcquireTimeout: time.Minute})
	t.Cleanup(func() { mustClose(t, s) })
	first := put(t, s, numbered("k", 1), semel.Revision{})
	standbys := func(names string) {
		server.Exec(t, database, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
		server.Exec(t, database, "SELECT pg_reload_conf()")
	}
	var stay sync.WaitGroup
	defer stay.Wait()
	standbys("nobody")
	defer standbys("") // so that nobody need wait
	server.Await(t, "SELECT current_setting('synchronous_standby_names') = 'nobody'")
	var over atomic.Bool
	defer over.Store(true)
	stay.Go(func() {
		// Some of the server's processes may hear of the setting later.
		for n := 0; !over.Load(); n++ {
			_, _, _ = s.Apply(t.Context(), semel.Write{Record: numbered(fmt.Sprint("stuck", n), 1)})
		}
	})
	server.Await(t, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

	var freed, told, unknown atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if i%4 == 0 {
				if _, err := s.Get(ctx, first.ID); err == nil {
					t.Error("a Get does not wait for the standby, so nothing is proved")
				}
				return
			}
			rec := numbered(fmt.Sprint("k", i%1000), byte(i)) // several of one identity
			rec.Revision[8], rec.Revision[9] = byte(i), byte(i>>8)
			rec.Result.Data = make([]byte, 1024)
			runtime.AddCleanup(&rec.Result.Data[0], func(*atomic.Int64) { freed.Add(1) }, &freed)
			_, applied, err := s.Apply(ctx, semel.Write{Record: rec})
			if applied || err == nil {
				t.Errorf("a commit does not wait for the standby: applied %v, %v", applied, err)
			}
			if told.Add(1); !errors.Is(err, semel.ErrNotApplied) {
				unknown.Add(1)
			}
		})
	}
	all.Wait()
	if n, bytes := s.commits.held(); n != 0 || bytes != 0 {
		t.Errorf("%d writes of %d bytes wait for nobody", n, bytes)
	}
	if n := s.looks.held(); n != 0 {
		t.Errorf("%d Gets wait for nobody", n)
	}
	// What is on its way is bounded by the connections; nothing else is kept.
	const onTheirWay = DefaultMaxConns * 16
	if unknown.Load() > onTheirWay {
		t.Errorf("%d of %d callers were told that their write may have been applied", unknown.Load(), told.Load())
	}
	await(t, "the memory of the others is free", func() bool {
		runtime.GC()
		return freed.Load() >= told.Load()-onTheirWay
	})
	standbys("")
	await(t, "the server commits again", func() bool {
		_, _, err := s.Apply(t.Context(), semel.Write{Record: numbered("afterwards", 1)})
		return err == nil
	})
}

func (g *gatherer) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Len()
}

func TestTheQueueIsBounded(t *testing.T) {
	const size, more = 100, 50
	for what, c := range map[string]struct {
		space space
		data  int
	}{
		"by the number of writes": {space{size, 1 << 30}, 1},
		"by their bytes":          {space{1 << 20, size * 10_000}, 10_000 - 1_000},
	} {
		t.Run(what, func(t *testing.T) {
			server := pgtest.Shared(t)
			w := newWire(t, server)
			s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, NoNotices: true, MaxConns: 1, AcquireTimeout: time.Minute, space: c.space})
			t.Cleanup(func() { mustClose(t, s) })
			gate := make(chan struct{})
			w.set(func(x *exchange) { x.gate = gate })
			var all sync.WaitGroup
			all.Go(func() { put(t, s, numbered("first", 1), semel.Revision{}) })
			await(t, "the connection is in use", func() bool { return s.commits.onItsWay() == 1 })
			var refused, applied atomic.Int64
			for i := range size + more {
				all.Go(func() {
					key := fmt.Sprint(i)
					if i%2 == 0 {
						key = "first" // these wait behind the other
					}
					rec := numbered(key, byte(i))
					rec.Result.Data = make([]byte, c.data)
					_, ok, err := s.Apply(t.Context(), semel.Write{Record: rec})
					switch {
					case errors.Is(err, ErrBusy):
						refused.Add(1)
					case err != nil:
						t.Error(err)
					case ok:
						applied.Add(1)
					}
				})
			}
			await(t, "the others are told, while nothing moves", func() bool {
				n, _ := s.commits.held()
				return n+int(refused.Load()) == size+more
			})
			if n, bytes := s.commits.held(); n < size*9/10 || n > c.space.writes || bytes > c.space.bytes || refused.Load() == 0 {
				t.Errorf("%d writes of %d bytes wait", n, bytes)
			}
			close(gate)
			all.Wait()
			if applied.Load() == 0 {
				t.Error("none was applied")
			}
			await(t, "nothing is left", s.commits.idle)
		})
	}
}

// A write that comes just behind a large batch waits for company, but not for the end of
// a batch that hangs.
func TestNoWriteWaitsBesideAnIdleConnection(t *testing.T) {
	server := pgtest.Shared(t)
	w := newWire(t, server)
	s := mustOpen(t, w.url(server.Database(t)), &Options{Migrate: true, NoNotices: true, MaxConns: 2, AcquireTimeout: 5 * time.Second})
	t.Cleanup(func() { mustClose(t, s) })
	first, second := make(chan struct{}), make(chan struct{})
	n := 0
	w.set(func(x *exchange) {
		if x.writes() {
			if n++; n == 1 {
				x.gate = first
			} else if n == 2 {
				x.gate = second
			}
		}
	})
	var all sync.WaitGroup
	all.Go(func() { put(t, s, numbered("first", 1), semel.Revision{}) })
	await(t, "a connection is in use", func() bool { return s.commits.onItsWay() == 1 })
	const large = 100
	s.commits.look(func() { s.commits.workers = 1 }) // so that they come together
	for i := range large {
		all.Go(func() { put(t, s, numbered(fmt.Sprint(i), 1), semel.Revision{}) })
	}
	await(t, "they wait", func() bool { n, _ := s.commits.held(); return n == large })
	close(first)
	await(t, "the large batch is on its way", func() bool { return s.commits.onItsWay() == large })
	s.commits.look(func() {
		s.commits.workers = 2
		s.commits.lastTake = time.Now().Add(20 * time.Millisecond) // as if it had been taken only now
	})
	put(t, s, numbered("another", 1), semel.Revision{})
	if n := s.commits.onItsWay(); n < large {
		t.Errorf("%d writes are on their way: the large batch does not hang, so nothing is proved", n)
	}
	close(second)
	all.Wait()
}
