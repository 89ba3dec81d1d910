package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/engine/callctx"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// silentFor is how long the network is silent in these tests, and recovery how long each part
// of a store may then take to work again. Where nothing bounds it, that takes two minutes.
const silentFor, recovery = 3 * time.Second, 5 * time.Second

// TestThreeSilentSeconds has nothing come from the server for three seconds, by a URL that says
// nothing of limits, and then wants everything to work again.
func TestThreeSilentSeconds(t *testing.T) {
	for _, fault := range []faultnet.Fault{faultnet.Hole, faultnet.HalfOpen} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			database := server.Database(t)
			n := newNetwork(t, server)
			s, err := Open(t.Context(), n.url(database), &Options{Migrate: true})
			noError(t, err)
			t.Cleanup(func() { mustClose(t, s) })
			t.Cleanup(func() { n.Set(faultnet.Reset) }) // nothing hangs when it is closed
			other := mustOpen(t, server.URL(database), nil)
			t.Cleanup(func() { mustClose(t, other) })
			await(t, "both listen", func() bool { return listeners(t, database) == 2 })

			var problems []string
			for range 3 {
				if problems = silence(t, s, other, n, fault, database); len(problems) == 0 {
					return
				}
				t.Logf("not in time: %q", problems)
			}
			t.Errorf("%q", problems)
		})
	}
}

// holeWrites counts the writes of all rounds.
var holeWrites atomic.Int64

// silence plays one round, and tells what didn't work again in time.
func silence(t *testing.T, s, other *Store, n *network, fault faultnet.Fault, database string) (problems []string) {
	parts := map[string]func(ctx context.Context) error{
		"a write": func(ctx context.Context) error {
			_, _, err := s.Apply(ctx, store.Write{Record: new(numbered(fmt.Sprint("k", holeWrites.Add(1)), 1))})
			return err
		},
		"a read": func(ctx context.Context) error {
			if _, err := s.Get(ctx, numbered("k", 1).ID); !errors.Is(err, semel.ErrNotFound) {
				return err
			}
			return nil
		},
		"the clock": s.clock.Read,
		"a sweep": func(ctx context.Context) error {
			_, err := s.Due(ctx, store.DueQuery{Limit: 1})
			return err
		},
	}
	// They are in use all the time, each by one caller who waits for at most a second.
	silent, heal := context.WithCancel(t.Context())
	var healed time.Time // once silent has ended
	var mu sync.Mutex    // guards problems
	var callers sync.WaitGroup
	for name, part := range parts {
		callers.Go(func() {
			call := func(limit time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				err := part(ctx)
				if err != nil {
					callctx.Pause(t.Context(), 5*time.Millisecond)
				}
				return err
			}
			for silent.Err() == nil {
				_ = call(time.Second)
			}
			tries := 1
			for ; call(time.Second) != nil && time.Since(healed) < 2*recovery; tries++ {
			}
			if took := time.Since(healed); took > recovery {
				mu.Lock()
				problems = append(problems, fmt.Sprintf("%s works again %v after the network does, want %v", name, took, recovery))
				mu.Unlock()
			} else {
				t.Logf("%s works again after %v and %d tries", name, took.Round(time.Millisecond), tries)
			}
		})
	}
	before := n.Fired()
	n.Set(fault)
	callctx.Pause(t.Context(), silentFor)
	n.Set(faultnet.Healthy)
	healed = time.Now()
	heal()
	if n.Fired() == before {
		t.Error("no fault fired, so nothing is proved")
	}
	// What others do is heard again, and at first whoever watches looks.
	rec := numbered(fmt.Sprint("heard", holeWrites.Add(1)), 1)
	changed, stop := s.Watch(t.Context(), rec.ID)
	defer stop()
	put(t, other, rec, store.Revision{})
	select {
	case <-changed:
	case <-time.After(2 * recovery):
	}
	woken := time.Since(healed)
	callers.Wait()
	if woken > recovery {
		problems = append(problems, fmt.Sprintf("whoever watches is woken %v after the network works again, want %v", woken, recovery))
	}
	await(t, "both listen", func() bool { return listeners(t, database) == 2 })
	drain(changed)
	next := numbered(rec.ID.Key, 2)
	put(t, other, next, rec.Revision)
	select {
	case <-changed:
	case <-time.After(recovery):
		problems = append(problems, "a notice of another is not heard")
	}
	return problems
}
