package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// load is callers that claim and complete new calls until they are stopped, and
// what they were told. A write whose result is unknown is sent again, as the engine
// does it, until it is known.
type load struct {
	s       *Store
	stop    context.CancelFunc
	callers sync.WaitGroup
	acks    atomic.Int64
	unknown atomic.Int64

	mu   sync.Mutex
	told map[semel.ID][]store.Revision // acknowledged, in order
}

// keys counts the keys of all loads.
var keys atomic.Int64

// startLoad begins with so many callers. Accept, if any, chooses identities.
func startLoad(t *testing.T, s *Store, callers int, accept func(semel.ID) bool) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{s: s, stop: cancel, told: map[semel.ID][]store.Revision{}}
	for range callers {
		l.callers.Go(func() {
			for ctx.Err() == nil {
				id := semel.ID{Tenant: "t", Operation: "load", Key: fmt.Sprint(keys.Add(1))}
				if accept != nil && !accept(id) {
					continue
				}
				now, err := s.Now(ctx)
				if err != nil {
					return
				}
				rec := semel.Record{ID: id, Revision: newRevision(), State: semel.Processing, CreatedAt: now, NextAt: now.Add(time.Minute), Fence: 1}
				if !l.write(ctx, store.Write{Record: new(rec)}) {
					continue
				}
				done := rec
				done.Revision, done.State, done.NextAt, done.Result.Data = newRevision(), semel.Completed, now.Add(time.Hour), []byte("done")
				l.write(ctx, store.Write{Record: new(done), Expect: rec.Revision})
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.callers.Wait()
}

// write reports whether a caller was told that the write is stored.
func (l *load) write(ctx context.Context, w store.Write) bool {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		cur, applied, err := l.s.Apply(call, w)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				l.unknown.Add(1)
			}
			pause, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			<-pause.Done()
			cancel()
			continue
		}
		if !applied && (cur == nil || cur.Revision != w.Record.Revision) {
			return false // what it followed was lost
		}
		l.mu.Lock()
		l.told[w.Record.ID] = append(l.told[w.Record.ID], w.Record.Revision)
		l.mu.Unlock()
		l.acks.Add(1)
		return true
	}
	return false
}

// more waits for so many further acknowledgements.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	until := l.acks.Load() + n
	servertest.Eventually(t, fmt.Sprintf("%d writes are acknowledged", n), func() error {
		if got := l.acks.Load(); got < until {
			return fmt.Errorf("%d are missing", until-got)
		}
		return nil
	})
}

// lost ends the load and counts the identities whose last acknowledged version is
// not stored, nor one that follows it.
func (l *load) lost(t *testing.T) int {
	t.Helper()
	l.end()
	n := 0
	for id, told := range l.told {
		rec, err := l.s.Get(t.Context(), id)
		switch {
		case errors.Is(err, semel.ErrNotFound):
			n++
		case err != nil:
			t.Fatal(err)
		case rec.Revision == told[len(told)-1]:
		case len(told) == 1 && rec.State == semel.Completed: // its completion was not answered
		default:
			n++
		}
	}
	return n
}

func newRevision() (r store.Revision) {
	rand.Read(r[:])
	return r
}
