package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// chain writes versions of a record, each with an entry of its own, and sends each
// until it knows what came of it. It returns how many calls failed.
func chain(t *testing.T, s *Store, key string, versions int, progress func()) (failed int) {
	expect := store.Revision{}
	for v := range versions {
		rec := numbered(key, byte(v+1))
		w := store.Write{Record: new(rec), Expect: expect, Evidence: leaves(fmt.Sprint(key, " ", v, " a"), fmt.Sprint(key, " ", v, " b"))}
		for t.Context().Err() == nil {
			cur, applied, err := s.Apply(t.Context(), w)
			if err == nil && !applied && cur.Revision != rec.Revision {
				t.Errorf("version %d of %s is refused by revision %v", v, key, cur.Revision)
				return failed
			}
			if err == nil {
				break
			}
			failed++
		}
		expect = rec.Revision
		progress()
	}
	return failed
}

// checkChains holds the log against what was written.
func checkChains(t *testing.T, log []string, keys, versions int) {
	t.Helper()
	next := map[string]int{}
	for i, text := range log {
		key, rest, _ := strings.Cut(text, " ")
		n := next[key]
		next[key]++
		if want := fmt.Sprint(n/2, " ", string(rune('a'+n%2))); rest != want {
			t.Fatalf("entry %d of the log, of %s, is %q, want %q", i, key, rest, want)
		}
	}
	for k := range keys {
		if n := next[fmt.Sprint("k", k)]; n != 2*versions {
			t.Errorf("key %d has %d entries, want %d", k, n, 2*versions)
		}
	}
}

// TestFaultsEvidence has two processes write and number one log, while sessions are
// terminated. One of them is behind a pooler.
func TestFaultsEvidence(t *testing.T) {
	t.Parallel()
	const keys, versions, rounds = 16, 40, 12
	a, database := open(t, Options{})
	server := pgtest.Shared(t)
	b := mustOpen(t, server.Pooler(t, 8).URL(database), &Options{ListenURL: server.URL(database)})
	t.Cleanup(func() { mustClose(t, b) })
	stores := []*Store{a, b}
	var mu sync.Mutex
	grew := sync.NewCond(&mu)
	written, failed, misread, ended := 0, 0, 0, 0
	// share is how much is written between two rounds of terminating. Writers don't
	// get further ahead, however slow that is.
	const share = keys * versions / (rounds + 1)
	var writers, readers sync.WaitGroup
	for k := range keys {
		writers.Go(func() {
			n := chain(t, stores[k%2], fmt.Sprint("k", k), versions, func() {
				mu.Lock()
				defer mu.Unlock()
				written++
				grew.Broadcast()
				for written >= (ended+2)*share && ended < rounds {
					grew.Wait()
				}
			})
			mu.Lock()
			defer mu.Unlock()
			failed += n
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	logs := make([][]string, 4)
	for r := range logs {
		readers.Go(func() {
			for done := false; !done; {
				done = ctx.Err() != nil // one more after the last write
				list, err := stores[r%2].ReadEvidence(t.Context(), uint64(len(logs[r])), 1+len(logs[r])%100)
				if err != nil || len(list) > 0 {
					done = false
				}
				if err != nil {
					mu.Lock()
					misread++
					mu.Unlock()
				}
				for _, en := range list {
					logs[r] = append(logs[r], string(en.Leaf))
				}
			}
		})
	}
	terminated := 0
	for n := range rounds {
		mu.Lock()
		for written < (n+1)*share {
			grew.Wait()
		}
		mu.Unlock()
		var sessions int
		err := server.Conn(t, database).QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, database).Scan(&sessions)
		if err != nil {
			t.Error(err)
		}
		terminated += sessions
		mu.Lock()
		ended++
		grew.Broadcast()
		mu.Unlock()
	}
	writers.Wait()
	stop()
	readers.Wait()
	log := readLog(t, a)
	checkChains(t, log, keys, versions)
	for r := range logs {
		if !slices.Equal(logs[r], log) {
			t.Errorf("reader %d has read another log, of %d entries in the place of %d", r, len(logs[r]), len(log))
		}
	}
	t.Logf("fired: %d sessions terminated, %d writes and %d reads failed", terminated, failed, misread)
	if terminated == 0 || failed == 0 {
		t.Error("no fault fired, so nothing is proved")
	}
}
