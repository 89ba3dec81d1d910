package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// behind is a server behind a network that can fail, and a store that reaches it there.
func behind(t *testing.T, opts *Options) (*redistest.Server, *faultnet.Net, *Store) {
	t.Helper()
	srv := redistest.Start(t, "")
	n, err := faultnet.Listen(func() (net.Conn, error) { return net.Dial("tcp", srv.Addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return srv, n, mustOpen(t, "redis://"+n.Addr(), opts)
}

// tryWrite makes a new write within a limit.
func tryWrite(t *testing.T, s *Store, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	rec := small(fmt.Sprint("write ", keys.Add(1)))
	_, _, err := s.Apply(ctx, store.Write{Record: new(rec)})
	return err
}

// A failover during which nobody can be reached for a moment, as where an address moves from
// one machine to another, is over when there is a master again.
func TestAFailoverDuringWhichNobodyAnswers(t *testing.T) {
	for why, meddle := range map[string]func(s *Store, srv *redistest.Server){
		"the server is a replica": func(_ *Store, srv *redistest.Server) { srv.Do("REPLICAOF", "127.0.0.1", "1") },
		"answers are mixed up": func(s *Store, _ *redistest.Server) {
			s.link.replaceAfter(errCrossedReply, s.link.client())
			s.link.mu.Lock()
			defer s.link.mu.Unlock()
			s.link.old.Wait() // until then a write could still go over the old connection
		},
	} {
		t.Run(why, func(t *testing.T) {
			srv, _, s := behind(t, &Options{Timeout: time.Second})
			if err := tryWrite(t, s, patient); err != nil {
				t.Fatal(err)
			}
			// Whoever connects is refused, and who is connected stays so.
			dial := s.link.option.DialCtxFn
			refused := 0
			s.link.mu.Lock()
			s.link.option.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				refused++
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			s.link.mu.Unlock()
			meddle(s, srv)
			servertest.Eventually(t, "it was tried to connect, more than once", func() error {
				if err := tryWrite(t, s, time.Second); err == nil {
					t.Error("it was written")
				}
				s.link.mu.Lock()
				defer s.link.mu.Unlock()
				if refused < 2 {
					return errNotYet
				}
				return nil
			})
			s.link.mu.Lock()
			s.link.option.DialCtxFn = dial
			s.link.mu.Unlock()
			srv.Do("REPLICAOF", "NO", "ONE")
			servertest.Eventually(t, "it writes again", func() error { return tryWrite(t, s, time.Second) })
		})
	}
}

// silentFor is how long the network is silent in this test, and recovery how long each part of
// a store may then take to work again.
const silentFor, recovery = 3 * time.Second, 5 * time.Second

// TestThreeSilentSeconds has nothing come from the servers for three seconds, with the limits
// that are the default, and then wants everything to work again. Where the machine is too busy
// for that, it looks again.
func TestThreeSilentSeconds(t *testing.T) {
	for kind, start := range map[string]func(t *testing.T) (s *Store, set func(faultnet.Fault), fired func() int){
		"one server": func(t *testing.T) (*Store, func(faultnet.Fault), func() int) {
			_, n, s := behind(t, nil)
			return s, n.Set, n.Fired
		},
		"a Cluster": func(t *testing.T) (*Store, func(faultnet.Fault), func() int) {
			c := redistest.StartPartitionedCluster(t, "")
			set := func(f faultnet.Fault) {
				for i := range c.Nodes {
					c.Fail(i, f)
				}
			}
			return mustOpen(t, c.URL(), nil), set, func() (n int) {
				for i := range c.Nodes {
					n += c.Fired(i)
				}
				return n
			}
		},
	} {
		for _, fault := range []faultnet.Fault{faultnet.Hole, faultnet.HalfOpen} {
			t.Run(fmt.Sprintf("%s, %s", kind, fault), func(t *testing.T) {
				t.Parallel()
				s, set, fired := start(t)
				t.Cleanup(func() { set(faultnet.Reset) }) // nothing hangs when it is closed
				var problems []string
				for range 3 {
					if problems = silence(t, s, set, fired, fault); len(problems) == 0 {
						return
					}
					t.Logf("not in time: %q", problems)
				}
				t.Errorf("%q", problems)
			})
		}
	}
}

// silence plays one round, and tells what didn't work again in time.
func silence(t *testing.T, s *Store, set func(faultnet.Fault), fired func() int, fault faultnet.Fault) (problems []string) {
	parts := map[string]func(ctx context.Context) error{
		"a read": func(ctx context.Context) error {
			if _, err := s.Get(ctx, small("nothing").ID); !errors.Is(err, semel.ErrNotFound) {
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
	for i := range 5 { // several shards
		parts[fmt.Sprint("a write ", i)] = func(ctx context.Context) error {
			rec := small(fmt.Sprint("write ", keys.Add(1)))
			_, _, err := s.Apply(ctx, store.Write{Record: new(rec)})
			return err
		}
	}
	// They are in use all the time, each by one caller who waits for at most a second.
	call := func(part func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := part(ctx)
		if err != nil {
			<-time.After(5 * time.Millisecond)
		}
		return err
	}
	silent, heal := context.WithCancel(t.Context())
	var healed time.Time // once silent has ended
	var mu sync.Mutex    // guards problems
	var callers sync.WaitGroup
	for name, part := range parts {
		callers.Go(func() {
			for silent.Err() == nil {
				_ = call(part)
			}
			tries := 1
			for ; call(part) != nil && time.Since(healed) < 2*recovery; tries++ {
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
	before := fired()
	set(fault)
	<-time.After(silentFor)
	set(faultnet.Healthy)
	healed = time.Now()
	heal()
	callers.Wait()
	if fired() == before {
		t.Error("no fault fired, so nothing is proved")
	}
	return problems
}
