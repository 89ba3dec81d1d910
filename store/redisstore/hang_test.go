package redisstore

import (
	"context"
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
