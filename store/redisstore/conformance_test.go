package redisstore

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest"
)

// TestMain lets six tests run at a time, unless the command line says how many. Those that
// need a Cluster are parallel: mostly they wait, for it to form and for replicas to take over.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestContractOnOneServer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness("redisstore on one server", redistest.Start(t, "always").URL()))
}

func TestContractOnACluster(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness("redisstore on a Cluster", redistest.StartCluster(t, "always", redistest.Patient...).URL()))
}

func BenchmarkEngine(b *testing.B) {
	url := redistest.Start(b, "always").URL()
	storetest.Bench(b, func(b *testing.B) semel.Store { return mustOpen(b, url, &Options{Prefix: fresh()}) })
}

// prefixes counts what fresh has given out.
var prefixes atomic.Int64

// fresh is a prefix under which nothing is stored yet.
func fresh() string { return fmt.Sprint("test-", prefixes.Add(1)) }

// harness gives each body the keys under a prefix of its own.
func harness(name, url string) storetest.Harness {
	return storetest.Harness{Name: name, Parallel: true, Run: func(t *testing.T, body func(*testing.T, storetest.Env)) {
		opts := &Options{Prefix: fresh()}
		// The body may go on with the old Store while it is opened again.
		var current atomic.Pointer[Store]
		var passed, leapt atomic.Int64
		look := func(s *Store) *Store {
			s.readTime = func(ctx context.Context, c rueidis.Client) (store.Instant, error) {
				at, err := readTime(ctx, c)
				return at.Add(time.Duration(leapt.Load())), err
			}
			if leapt.Load() != 0 { // it has begun by the true clock
				s.clock.Forget()
			}
			return s
		}
		current.Store(look(mustOpen(t, url, opts)))
		body(t, storetest.Env{
			Store: current.Load(),
			Advance: func(d time.Duration) {
				passed.Add(int64(d))
				current.Load().clock.Advance(d)
			},
			Leap: func(by time.Duration) {
				leapt.Add(int64(by))
				if err := reread(current.Load()); err != nil {
					t.Error(err)
				}
			},
			Reopen: func() semel.Store {
				if err := current.Load().Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				s := look(mustOpen(t, url, opts))
				s.clock.Advance(time.Duration(passed.Load()))
				current.Store(s)
				return s
			},
		})
	}}
}

func mustOpen(tb testing.TB, url string, opts *Options) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return s
}

// mustNow is the store's time.
func mustNow(tb testing.TB, s *Store) store.Instant {
	tb.Helper()
	now, err := s.Now(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return now
}
