package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/redistest"
)

// dueEntries counts the entries of all due indexes.
func dueEntries(t testing.TB, srv *redistest.Server, s *Store) (n int) {
	t.Helper()
	for i := range s.keys.shards {
		n += number(srv.Do("ZCARD", s.keys.shards[i].due))
	}
	return n
}

// wantDue checks how many records are due by a time.
func wantDue(t *testing.T, s *Store, until semel.Instant, want int) []semel.Record {
	t.Helper()
	recs, err := s.Due(t.Context(), until, 1000)
	if err != nil || len(recs) != want {
		t.Fatalf("%d records are due, want %d: %v", len(recs), want, err)
	}
	return recs
}

const testLease, testWindow = time.Minute, time.Hour

// leased stores n claims with a lease, created at an instant.
func leased(t *testing.T, s *Store, created semel.Instant, name string, n int) []semel.Record {
	t.Helper()
	recs := make([]semel.Record, n)
	for i := range recs {
		recs[i] = semel.Record{
			ID: semel.ID{Operation: "o", Key: fmt.Sprint(name, i)}, Revision: newRevision(), State: semel.Processing,
			CreatedAt: created.Add(time.Duration(i) * time.Microsecond), NextAt: created.Add(testLease),
		}
		mustApply(t, s, recs[i], semel.Revision{})
	}
	return recs
}

// complete stores the outcome of a record.
func complete(t *testing.T, s *Store, rec semel.Record) semel.Record {
	t.Helper()
	done := rec
	done.Revision, done.State, done.NextAt = newRevision(), semel.Completed, rec.CreatedAt.Add(testWindow)
	mustApply(t, s, done, rec.Revision)
	return done
}

func mustApply(t *testing.T, s *Store, rec semel.Record, expect semel.Revision) {
	t.Helper()
	if _, applied, err := s.Apply(t.Context(), semel.Write{Record: rec, Expect: expect}); err != nil || !applied {
		t.Fatal(applied, err)
	}
}

func TestACallThatEndsSoonIsIndexedOnce(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	const n = 300
	recs := leased(t, s, start, "k", n)
	for i := range n - 1 { // the last one's holder is gone
		recs[i] = complete(t, s, recs[i])
	}
	if got := dueEntries(t, srv, s); got != 0 {
		t.Fatalf("the writes made %d due entries", got)
	}
	wantDue(t, s, start.Add(indexDelay-time.Second), 0)
	if got := dueEntries(t, srv, s); got != 0 {
		t.Fatalf("%d entries were made before their time", got)
	}
	wantDue(t, s, start.Add(indexDelay+time.Second), 0)
	if got := dueEntries(t, srv, s); got != n {
		t.Fatalf("%d entries were made, want %d", got, n)
	}
	if rec := wantDue(t, s, start.Add(testLease), 1)[0]; rec.ID != recs[n-1].ID {
		t.Fatalf("due is %q", rec.ID.Key)
	}
	complete(t, s, recs[n-1])
	wantDue(t, s, start.Add(testLease), 0)
	wantDue(t, s, start.Add(testWindow+time.Second), n)
}

// A record that is due earlier than it was is found at once, whether it has an entry
// or is still to be taken in.
func TestARecordThatIsDueEarlierIsFound(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, until := range []time.Duration{0, indexDelay, testLease - time.Second} {
		t.Run(until.String(), func(t *testing.T) {
			rec := leased(t, s, start, t.Name(), 1)[0]
			wantDue(t, s, start.Add(until), 0)
			sooner := rec
			sooner.Revision, sooner.NextAt = newRevision(), start.Add(time.Second)
			mustApply(t, s, sooner, rec.Revision)
			wantDue(t, s, start.Add(time.Second), 1)
			sooner.NextAt = 0
			rec, sooner.Revision = sooner, newRevision()
			mustApply(t, s, sooner, rec.Revision)
			wantDue(t, s, start.Add(testWindow), 0)
		})
	}
}

// A failover may lose what one process has indexed and believes to be there.
func TestWhatAFailoverLostIsIndexedAgain(t *testing.T) {
	srv := redistest.Start(t, "")
	s, other := mustOpen(t, srv.URL(), nil), mustOpen(t, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	const n = 100
	leased(t, s, start, "k", n)
	wantDue(t, s, start.Add(testLease-time.Second), 0)
	for i := range s.keys.shards {
		srv.Do("DEL", s.keys.shards[i].due, s.keys.shards[i].indexed)
	}
	wantDue(t, s, start.Add(testLease), n)
	wantDue(t, other, start.Add(testLease), n)
	leased(t, s, start.Add(time.Second), "later", n)
	wantDue(t, s, start.Add(2*testLease), 2*n) // the other one is behind
	leased(t, s, start.Add(2*time.Second), "last", n)
	wantDue(t, other, start.Add(2*testLease), 3*n)
}

// A place does not tell when a record was stored whose claim came late.
func TestAClaimThatWasOvertakenIsIndexedAtOnce(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	const n = 300 // several in each shard
	leased(t, s, start.Add(testWindow), "later", n)
	leased(t, s, start, "earlier", n)
	wantDue(t, s, start.Add(testLease), n)
}

// A server that is full refuses what makes it fuller. What makes room must go on.
func TestAFullServerCanBePurged(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction")
	s := mustOpen(t, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	old := complete(t, s, leased(t, s, start, "old", 1)[0])
	wantDue(t, s, start.Add(testLease), 0)
	leased(t, s, start.Add(testLease), "new", 1)
	srv.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := s.Due(t.Context(), start.Add(testLease+indexDelay), 10); err == nil {
		t.Fatal("the full server indexes more, so nothing is proved")
	}
	if got := wantDue(t, s, start.Add(testWindow), 1)[0].ID; got != old.ID {
		t.Fatalf("due is %q", got.Key)
	}
	if n, err := s.Purge(t.Context(), []semel.Ref{{ID: old.ID, Revision: old.Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	wantDue(t, s, start.Add(2*testLease), 1)
}

// BenchmarkIndex is what Due costs for each record that it takes in: what the
// claim and its outcome have not paid.
func BenchmarkIndex(b *testing.B) {
	srv := redistest.Start(b, "always")
	s := mustOpen(b, srv.URL(), nil)
	start := semel.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	work := make(chan int)
	done := make(chan error, 64)
	for range 64 {
		go func() {
			var failed error
			for i := range work {
				rec := semel.Record{
					ID: semel.ID{Operation: "o", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Completed,
					CreatedAt: start.Add(time.Duration(i)), NextAt: start.Add(testWindow), Result: semel.Result{Data: make([]byte, 1024)},
				}
				if _, _, err := s.Apply(b.Context(), semel.Write{Record: rec}); err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for i := range b.N {
		work <- i
	}
	close(work)
	for range 64 {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	if at := dueEntries(b, srv, s); at > b.N/10 {
		b.Fatalf("%d of %d records were indexed at once", at, b.N)
	}
	b.ResetTimer()
	for {
		if _, err := s.Due(b.Context(), start.Add(testWindow/2), 1); err != nil {
			b.Fatal(err)
		}
		if n := dueEntries(b, srv, s); n == b.N {
			return
		}
	}
}
