package pgstore

import (
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestSilence(t *testing.T) {
	t.Run("a statement that the server works on is left alone, however long it takes", func(t *testing.T) {
		s, database := open(t, Options{silence: 5 * time.Millisecond, LockTimeout: time.Minute})
		rec := put(t, s, numbered("k", 1), semel.Revision{})
		release := hold(t, database, rec.ID)
		told := make(chan error)
		go func() {
			_, applied, err := s.Apply(t.Context(), semel.Write{Record: numbered("k", 2), Expect: rec.Revision})
			if err == nil && !applied {
				t.Error("the write was not applied")
			}
			told <- err
		}()
		await(t, "the server was asked often", func() bool {
			s.silence.mu.Lock()
			defer s.silence.mu.Unlock()
			for _, q := range s.silence.busy {
				if q.asked > 5 {
					return true
				}
			}
			return false
		})
		release()
		if err := <-told; err != nil {
			t.Errorf("the write was given up: %v", err)
		}
	})
	t.Run("a connection that is not in use is not looked at", func(t *testing.T) {
		s, _ := open(t, Options{})
		put(t, s, numbered("k", 1), semel.Revision{})
		await(t, "no connection counts as busy", func() bool {
			s.silence.mu.Lock()
			defer s.silence.mu.Unlock()
			return len(s.silence.busy) == 0
		})
	})
}
