package redisstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// bounded is a context as the engine's are.
type bounded struct{ context.Context }

func (bounded) NeverCancelled() {}

// A caller who is alone sends their write, and leaves at the deadline. Its result is unknown
// then.
func TestACallerWhoIsAlone(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	apply := func(key string, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, _, err := s.Apply(bounded{ctx}, store.Write{Record: new(small(key))})
		return err
	}
	if err := apply("first", time.Minute); err != nil {
		t.Fatal(err)
	}
	srv.Pause()
	err := apply("late", 50*time.Millisecond)
	srv.Resume()
	if err == nil || errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a write that was not answered: %v, want an unknown result", err)
	}
	if err := apply("last", time.Minute); err != nil {
		t.Error(err)
	}
}

// Of duplicates that come while the server works, one is sent, and answers the others.
func TestDuplicatesShareAnAnswer(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	mustApply(t, s, small("warm"), store.Revision{})
	before := s.sends.Load()
	srv.Pause()
	const callers = 20
	var all sync.WaitGroup
	made := make(chan store.Revision, callers)
	found := make(chan store.Revision, callers)
	claim := func() {
		rec := small("hot")
		cur, applied, err := s.Apply(t.Context(), store.Write{Record: &rec})
		switch {
		case err != nil:
			t.Error(err)
		case applied:
			made <- cur.Revision
		default:
			found <- cur.Revision
		}
	}
	q := s.queues[0]
	waits := func(want int) {
		servertest.Eventually(t, "they wait", func() error {
			if waiting, _ := q.Len(); waiting != want || s.sends.Load() == before {
				return errors.New("not yet")
			}
			return nil
		})
	}
	all.Go(claim)
	waits(0)
	for range callers - 1 {
		all.Go(claim)
	}
	waits(callers - 1)
	srv.Resume()
	all.Wait()
	if len(made) != 1 || len(found) != callers-1 {
		t.Fatalf("%d claims were made, and %d met another", len(made), len(found))
	}
	for winner := <-made; len(found) > 0; {
		if got := <-found; got != winner {
			t.Errorf("a duplicate got the revision %v, want %v", got, winner)
		}
	}
	if runs := s.sends.Load() - before; runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}
