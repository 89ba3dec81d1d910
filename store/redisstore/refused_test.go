package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/internal/rig/servertest"
	"github.com/semelhq/semel/store"
)

// wantRefused checks that a server refuses writes for good and says so: small ones and
// large ones, claims and updates, alone and in a run.
func wantRefused(t *testing.T, s *Store, there semel.Record, word string) (refused []semel.ID) {
	t.Helper()
	next := small("next")
	next.ID, next.Revision = there.ID, newRevision()
	try := func(writes ...store.Write) {
		t.Helper()
		for i, w := range sendAll(t, s, writes...) {
			if w.made || w.there != "" || !errors.Is(w.err, store.ErrNotApplied) || !strings.Contains(w.err.Error(), word) {
				t.Errorf("%s: write %d of %d: made %v, there %d bytes, %v", word, i, len(writes), w.made, len(w.there), w.err)
			}
		}
		for _, w := range writes {
			if w.Expect.IsZero() {
				refused = append(refused, w.Record.ID)
			}
		}
	}
	try(store.Write{Record: new(small(word))})
	try(store.Write{Record: new(large(word+" large", 1e18))})
	try(store.Write{Record: new(small(word + " 1"))}, store.Write{Record: new(next), Expect: there.Revision}, store.Write{Record: new(small(word + " 2"))})
	try(store.Write{Record: new(large(word+" 3", 1e18))}, store.Write{Record: new(small(word + " 4"))})
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(small(word + " 5"))}); applied || !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("%s: Apply: %v, %v", word, applied, err)
	}
	if err := s.CheckWrites(t.Context()); err == nil {
		t.Errorf("%s: it says that it takes writes", word)
	}
	return append(refused, small(word+" 5").ID)
}

// wantNoneOf checks that what was refused is not there, and that the server works.
func wantNoneOf(t *testing.T, s *Store, there semel.Record, refused []semel.ID) {
	t.Helper()
	for _, id := range refused {
		if rec, err := s.Get(t.Context(), id); !errors.Is(err, semel.ErrNotFound) {
			t.Errorf("%s was refused and is there: %v, %v", id.Key, rec.Revision, err)
		}
	}
	if rec, err := s.Get(t.Context(), there.ID); err != nil || rec.Revision != there.Revision {
		t.Errorf("what was there is %v, %v", rec.Revision, err)
	}
	mustApply(t, s, small(fmt.Sprint("afterwards", newRevision())), store.Revision{})
	if err := s.CheckWrites(t.Context()); err != nil {
		t.Errorf("it takes writes, and says %v", err)
	}
}

// What a server refuses, as a whole or one write of a run, was not made and never will be.
func TestWhatAServerRefusesIsDefinite(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction", "busy-reply-threshold", "1")
	for name, c := range map[string]struct{ refuse, accept []string }{
		"OOM":        {[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}},
		"NOREPLICAS": {[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":   {[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
			there := small("there")
			mustApply(t, s, there, store.Revision{})
			srv.Do(c.refuse...)
			refused := wantRefused(t, s, there, name)
			srv.Do(c.accept...)
			wantNoneOf(t, s, there, refused)
		})
	}
	t.Run("MASTERDOWN", func(t *testing.T) {
		s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
		srv.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
		srv.Do("REPLICAOF", "127.0.0.1", "1")
		batch := sendAll(t, s, store.Write{Record: new(small("x"))})
		srv.Do("REPLICAOF", "NO", "ONE")
		if err := batch[0].err; !errors.Is(err, store.ErrNotApplied) {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("NOPERM", func(t *testing.T) {
		srv.Do("ACL", "SETUSER", "reader", "on", ">pass", "~*", "&*", "+@all")
		s := mustOpen(t, "redis://reader:pass@"+srv.Addr, &Options{Prefix: fresh()})
		srv.Do("ACL", "SETUSER", "reader", "-evalsha")
		for _, rec := range []semel.Record{small("x"), large("large", 1e18)} {
			if _, _, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); !errors.Is(err, store.ErrNotApplied) {
				t.Errorf("%s: it ends with %v", rec.ID.Key, err)
			}
		}
	})
	t.Run("BUSY", func(t *testing.T) {
		s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
		mustApply(t, s, small("before"), store.Revision{})
		wait := beside(t, srv, "EVAL", "while true do end", "0")
		refused := refusedOnce(t, s, "BUSY ")
		srv.Do("SCRIPT", "KILL")
		wait()
		wantNoneOf(t, s, claim(t, s, "y"), refused)
	})
}

// A server that refuses a part of what a question needs fails all of it: half an answer
// would say that nothing else is due, or stored.
func TestQuestionsThatAServerRefusesFail(t *testing.T) {
	srv := redistest.Start(t, "")
	for forbidden, calls := range map[string][]string{
		"get": {"Get", "Due", "Search"}, "zrange": {"Due", "Search"}, "evalsha": {"Due", "Purge"},
	} {
		t.Run(forbidden, func(t *testing.T) {
			prefix := fresh()
			rec := claim(t, mustOpen(t, srv.URL(), &Options{Prefix: prefix}), "k")
			srv.Do("ACL", "SETUSER", forbidden, "on", ">pass", "~*", "&*", "+@all")
			s := mustOpen(t, "redis://"+forbidden+":pass@"+srv.Addr, &Options{Prefix: prefix})
			srv.Do("ACL", "SETUSER", forbidden, "-"+forbidden)
			errs := map[string]error{}
			_, errs["Get"] = s.Get(t.Context(), rec.ID)
			_, errs["Due"] = s.Due(t.Context(), store.DueQuery{Until: rec.NextAt, Limit: 10})
			_, errs["Search"] = s.Search(t.Context(), store.Query{})
			_, errs["Purge"] = s.Purge(t.Context(), []store.Ref{{ID: rec.ID, Revision: newRevision()}})
			for call, err := range errs {
				if want := slices.Contains(calls, call); want != (err != nil) || want && answerWord(err) != "NOPERM" {
					t.Errorf("%s ends with %v, want an error %v", call, err, want)
				}
			}
		})
	}
}

// refusedOnce waits until a write is refused by an error, and returns which.
func refusedOnce(t *testing.T, s *Store, word string) (refused []semel.ID) {
	t.Helper()
	servertest.Eventually(t, "the server refuses", func() error {
		rec := small(fmt.Sprint(newRevision()))
		_, _, err := s.Apply(t.Context(), store.Write{Record: new(rec)})
		if !errors.Is(err, store.ErrNotApplied) || !strings.Contains(err.Error(), word) {
			return fmt.Errorf("it ends with %w", err)
		}
		refused = []semel.ID{rec.ID}
		return nil
	})
	return refused
}

// beside runs a command on a connection of its own; wait returns when it was answered.
func beside(t *testing.T, srv *redistest.Server, args ...string) (wait func()) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{srv.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		ConnWriteTimeout: time.Minute, Dialer: net.Dialer{Timeout: time.Minute, KeepAlive: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = c.Do(context.Background(), c.B().Arbitrary(args...).Build()) })
	return func() {
		done.Wait()
		c.Close()
	}
}

func TestAServerThatLoadsItsDataRefusesForGood(t *testing.T) {
	srv := redistest.Start(t, "", "loading-process-events-interval-bytes", "1024")
	s := mustOpen(t, srv.URL(), nil)
	for i := range 50 {
		mustApply(t, s, large(fmt.Sprint(i), 1e18), store.Revision{})
	}
	srv.Do("CONFIG", "SET", "key-load-delay", "100000")
	wait := beside(t, srv, "DEBUG", "RELOAD")
	refused := refusedOnce(t, s, "LOADING ")
	srv.Do("CONFIG", "SET", "key-load-delay", "0")
	wait()
	wantNoneOf(t, s, claim(t, s, "y"), refused)
}

// Where nobody listens nothing was sent. What was on its way when the server ended is
// unknown.
func TestAServerThatIsDownGotNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*Store, *redistest.Server){
		"one server": func(t *testing.T) (*Store, *redistest.Server) {
			srv := redistest.Start(t, "always")
			return mustOpen(t, srv.URL(), nil), srv
		},
		"a Cluster": func(t *testing.T) (*Store, *redistest.Server) {
			c := redistest.StartCluster(t, "always")
			s := mustOpen(t, c.URL(), nil)
			c.Nodes[3].Kill() // or it takes over
			return s, c.Nodes[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, srv := start(t)
			owned := func(semel.ID) bool { return true }
			if s.link.cluster {
				owned = servedBy(t, s, srv)
			}
			there := record(func(rec semel.Record) bool { return owned(rec.ID) })
			mustApply(t, s, there, store.Revision{})
			srv.Kill()
			refused := map[semel.ID]bool{}
			servertest.Eventually(t, "nothing is sent", func() error {
				ids := map[semel.ID]bool{}
				var writes []store.Write
				for n := 0; len(writes) < 3; n++ {
					rec := large(fmt.Sprint(newRevision()), 1e18)
					if n%2 == 0 {
						rec.Result.Data = nil
					}
					if owned(rec.ID) {
						writes, ids[rec.ID] = append(writes, store.Write{Record: new(rec)}), true
					}
				}
				for i := range writes { // alone, each in its shard
					if w := sendAll(t, s, writes[i])[0]; !errors.Is(w.err, store.ErrNotApplied) {
						return fmt.Errorf("a write alone ends with %w", w.err)
					}
				}
				if !s.link.cluster {
					for _, w := range sendAll(t, s, writes...) {
						if !errors.Is(w.err, store.ErrNotApplied) {
							return fmt.Errorf("a write of a run ends with %w", w.err)
						}
					}
				}
				refused = ids
				return nil
			})
			srv.Restart()
			servertest.Eventually(t, "the server is back", func() error {
				_, err := s.Get(t.Context(), there.ID)
				return err
			})
			for id := range refused {
				if _, err := s.Get(t.Context(), id); !errors.Is(err, semel.ErrNotFound) {
					t.Errorf("%s was not sent and is there: %v", id.Key, err)
				}
			}
		})
	}
}

// record is one that accept chooses.
func record(accept func(semel.Record) bool) semel.Record {
	for {
		if rec := small(fmt.Sprint(newRevision())); accept(rec) {
			return rec
		}
	}
}

// An error from within a script proves nothing, whatever it says.
func TestErrorsThatProveNothing(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction")
	s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
	srv.Do("CONFIG", "SET", "maxmemory", "1")
	c := s.link.client()
	err := c.Do(t.Context(), c.B().Eval().Script("redis.call('SET', KEYS[1], 'x')").Numkeys(1).Key("k").Build()).Error()
	if err == nil || !strings.HasPrefix(err.Error(), "OOM ") || neverRan(err) {
		t.Errorf("within a script: %v, proves %v", err, neverRan(err))
	}
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	for _, err := range []error{nil, errors.New("OOM "), context.DeadlineExceeded, rueidis.ErrClosing, &net.OpError{Op: "read", Err: errors.New("reset")}} {
		if neverRan(err) {
			t.Errorf("%v proves something", err)
		}
	}
}

// A Cluster that does not serve all slots refuses what it gets.
func TestAClusterThatIsDownRefusesForGood(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "")
	s := mustOpen(t, c.URL(), nil)
	owned := servedBy(t, s, c.Nodes[0])
	for _, i := range []int{5, 2} {
		c.Nodes[i].Kill()
	}
	servertest.Eventually(t, "the Cluster is down", func() error {
		rec := record(func(rec semel.Record) bool { return owned(rec.ID) })
		_, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec)})
		if err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN ") {
			return fmt.Errorf("applied %v, %w", applied, err)
		}
		if !errors.Is(err, store.ErrNotApplied) {
			t.Fatalf("it ends with %v", err)
		}
		return nil
	})
}
