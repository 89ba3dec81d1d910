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

	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// TestCallersThatLeave has callers come and go while commits wait for a standby that is
// away, and looks whether anything of them stays.
func TestCallersThatLeave(t *testing.T) {
	const callers = 10_000
	server := pgtest.Start(t, nil)
	database := server.Database(t)
	s := mustOpen(t, server.URL(database), &Options{Migrate: true, batch: 16, AcquireTimeout: time.Minute})
	t.Cleanup(func() { mustClose(t, s) })
	first := put(t, s, numbered("k", 1), store.Revision{})
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
			_, _, _ = s.Apply(t.Context(), store.Write{Record: new(numbered(fmt.Sprint("stuck", n), 1))})
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
			_, applied, err := s.Apply(ctx, store.Write{Record: new(rec)})
			if applied || err == nil {
				t.Errorf("a commit does not wait for the standby: applied %v, %v", applied, err)
			}
			if told.Add(1); !errors.Is(err, store.ErrNotApplied) {
				unknown.Add(1)
			}
		})
	}
	all.Wait()
	gets, _ := s.readers.Len()
	if queued(s)+gets != 0 {
		t.Errorf("%d writes and %d Gets wait for nobody", queued(s), gets)
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
		_, _, err := s.Apply(t.Context(), store.Write{Record: new(numbered("afterwards", 1))})
		return err == nil
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	s, _ := open(t, Options{})
	s.writers.Room = &gather.Room{MaxItems: 0, MaxBytes: 1}
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(numbered("k", 1))}); applied || !errors.Is(err, ErrBusy) {
		t.Errorf("where there is no room: applied %v, %v", applied, err)
	}
}
