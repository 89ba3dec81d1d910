package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// bounded is a context as the engine's are.
type bounded struct{ context.Context }

func (bounded) NeverCancelled() {}

// A caller who is alone sends their write, and leaves at the deadline. Its result is unknown
// then.
func TestACallerWhoIsAlone(t *testing.T) {
	server := pgtest.Shared(t)
	w, database := newWire(t, server), server.Database(t)
	s := mustOpen(t, w.url(database), &Options{Migrate: true, noNotices: true})
	t.Cleanup(func() { mustClose(t, s) })
	apply := func(key string, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, applied, err := s.Apply(bounded{ctx}, store.Write{Record: new(numbered(key, 1))})
		if applied != (err == nil) {
			t.Errorf("%s: applied %v, %v", key, applied, err)
		}
		return err
	}
	noError(t, apply("first", time.Minute))
	gate := make(chan struct{})
	w.set(func(x *exchange) {
		if x.writes() {
			x.gate = gate
		}
	})
	if err := apply("late", 50*time.Millisecond); err == nil || errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a write that was not answered: %v, want an unknown result", err)
	}
	close(gate)
	w.set(nil)
	noError(t, apply("by a worker", time.Minute))
}
