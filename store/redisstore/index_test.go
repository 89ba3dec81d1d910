package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// wantDue checks how many records are due by a time.
func wantDue(t *testing.T, s *Store, until store.Instant, want int) []semel.Record {
	t.Helper()
	recs, err := allDue(t.Context(), s, until, 1000)
	if err != nil || len(recs) != want {
		t.Fatalf("%d records are due, want %d: %v", len(recs), want, err)
	}
	return recs
}

// allDue reads all that is due by a time in pages. What can't be read is an error.
func allDue(ctx context.Context, s *Store, until store.Instant, limit int) (recs []semel.Record, err error) {
	for q := (store.DueQuery{Until: until, Limit: limit}); ; {
		page, err := s.Due(ctx, q)
		if err = errors.Join(append(page.Unreadable, err)...); err != nil {
			return recs, err
		}
		recs = append(recs, page.Records...)
		if q.After = page.Next; q.After == "" {
			return recs, nil
		}
	}
}

const testLease, testWindow = time.Minute, time.Hour

// leased stores n claims with a lease, created at an instant.
func leased(t *testing.T, s *Store, created store.Instant, name string, n int) []semel.Record {
	t.Helper()
	recs := make([]semel.Record, n)
	for i := range recs {
		recs[i] = semel.Record{
			ID: semel.ID{Operation: "o", Key: fmt.Sprint(name, i)}, Revision: newRevision(), State: semel.Processing,
			CreatedAt: created.Add(time.Duration(i) * time.Microsecond), NextAt: created.Add(testLease),
		}
		mustApply(t, s, recs[i], store.Revision{})
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

func mustApply(t *testing.T, s *Store, rec semel.Record, expect store.Revision) {
	t.Helper()
	if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect}); err != nil || !applied {
		t.Fatal(applied, err)
	}
}

// A write that makes a record due later leaves its entry alone, and Due moves it.
func TestAnEntryThatIsTooEarlyIsCorrected(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := mustNow(t, s)
	const n = 300
	recs := leased(t, s, start, "k", n)
	for i := range n - 1 { // the last one's holder is gone
		recs[i] = complete(t, s, recs[i])
	}
	early := func() (n int) {
		for i := range s.keys.shards {
			n += number(srv.Do("ZCOUNT", s.keys.shards[i].due, "-inf", fmt.Sprint(micros(start.Add(testLease)))))
		}
		return n
	}
	if got := early(); got != n {
		t.Fatalf("%d entries are where the leases end, want %d", got, n)
	}
	wantDue(t, s, start.Add(testLease-time.Millisecond), 0)
	if got := early(); got != n {
		t.Fatalf("%d entries are left before their time, want %d", got, n)
	}
	read := spent(srv, func() {
		if due, err := allDue(t.Context(), s, start.Add(testLease), 16); err != nil || len(due) != 1 || due[0].ID != recs[n-1].ID {
			t.Fatalf("due is %v, %v", due, err)
		}
	})
	// All of them are due in the same microsecond, so most that a round trip reads are beyond a
	// gap. It moves them too, those of a shard in one run of a script.
	if c := read.commands; c["zadd"] > n+10 || c["evalsha"]+c["eval"] > 6*shardCount || c["zrange"] > 6*shardCount {
		t.Errorf("to move %d entries took %v", n, c)
	}
	if got := early(); got != 1 {
		t.Fatalf("%d entries are left where leases end, want that of the one who is gone", got)
	}
	complete(t, s, recs[n-1])
	wantDue(t, s, start.Add(testLease), 0)
	wantDue(t, s, start.Add(testWindow+time.Second), n)
}

// However few are asked for, those whose entries are too early don't hide them for long.
func TestManyThatAreTooEarlyHideNobody(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := mustNow(t, s)
	recs := leased(t, s, start, "k", 3*maxCorrections)
	slices.SortFunc(recs, func(a, b semel.Record) int { // as those are that are due at the same time
		one, other := a.ID.Digest(), b.ID.Digest()
		return bytes.Compare(one[:], other[:])
	})
	for _, rec := range recs[:len(recs)-1] {
		complete(t, s, rec)
	}
	due, err := s.Due(t.Context(), store.DueQuery{Until: start.Add(testLease + time.Second), Limit: 1})
	if err != nil || len(due.Records) != 1 || due.Records[0].ID != recs[len(recs)-1].ID {
		t.Fatalf("due are %v, %v", due, err)
	}
}

// A record that is due earlier than it was is found at once.
func TestARecordThatIsDueEarlierIsFound(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := store.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, until := range []time.Duration{0, testLease - time.Second} {
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

// A record that is stored again after the server has evicted it, or somebody deleted it, is
// found where it is now, and not where it was.
func TestARecordThatIsStoredAnewIsFoundInItsPlace(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	later := store.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	first := later.Add(-testWindow)
	rec := leased(t, s, later, "k", 1)[0]
	between := leased(t, s, later.Add(-testWindow/2), "other", 1)[0]
	srv.Do("DEL", keyOf(s, rec))
	again := rec
	again.Revision, again.CreatedAt, again.NextAt = newRevision(), first, first.Add(testLease)
	mustApply(t, s, again, store.Revision{})
	if due := wantDue(t, s, first.Add(testLease), 1); due[0].ID != rec.ID {
		t.Errorf("due is %q", due[0].ID.Key)
	}
	page, err := s.Search(t.Context(), store.Query{Limit: 10})
	if err != nil || len(page.Records) != 2 || page.Records[0].ID != between.ID || page.Records[1].ID != rec.ID {
		t.Errorf("listed are %+v, %v", page.Records, err)
	}
}

// Any number of processes read and correct the index at once.
func TestProcessesCorrectTheIndexTogether(t *testing.T) {
	srv := redistest.Start(t, "")
	s, other := mustOpen(t, srv.URL(), nil), mustOpen(t, srv.URL(), nil)
	start := mustNow(t, s)
	const n = 100
	for _, rec := range leased(t, s, start, "ended", n) {
		complete(t, s, rec)
	}
	leased(t, other, start.Add(time.Second), "left", n)
	var both sync.WaitGroup
	for _, st := range []*Store{s, other} {
		both.Go(func() {
			if recs, err := allDue(t.Context(), st, start.Add(2*testLease), 7); err != nil || len(recs) != n {
				t.Errorf("%d are due, %v", len(recs), err)
			}
		})
	}
	both.Wait()
	if left := entriesLeft(srv, s); left != "200 200" {
		t.Errorf("the entries are %s", left)
	}
}

// listed are the keys of all records in the order of the list, read by pages.
func listed(t *testing.T, s *Store, limit int) (keys []string) {
	t.Helper()
	for q := (store.Query{Limit: limit}); ; {
		page, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			keys = append(keys, rec.ID.Key)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return keys
		}
	}
}

// What was created at the same microsecond is listed once, whatever the size of the pages.
func TestManyOfOneInstantAreListed(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	const n = 3 * store.DefaultSearchLimit // more of them than one step reads
	for i := range n {
		mustApply(t, s, semel.Record{ID: semel.ID{Operation: "o", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: 1e18}, store.Revision{})
	}
	seen := map[string]bool{}
	for _, key := range listed(t, s, 3) {
		if seen[key] {
			t.Errorf("%s is listed again", key)
		}
		seen[key] = true
	}
	if len(seen) != n {
		t.Errorf("%d are listed", len(seen))
	}
}

// A server that is full refuses what makes it fuller. What makes room must go on, also
// where entries are too early.
func TestAFullServerCanBePurged(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction")
	s := mustOpen(t, srv.URL(), nil)
	start := mustNow(t, s)
	old := complete(t, s, leased(t, s, start, "old", 1)[0])
	leased(t, s, start.Add(testLease), "new", 1)
	srv.Do("CONFIG", "SET", "maxmemory", "1")
	_, applied, err := s.Apply(t.Context(), store.Write{Record: new(small("full"))})
	if applied || !errors.Is(err, store.ErrNotApplied) {
		t.Fatalf("the server is not full: %v, so nothing is proved", err)
	}
	wantDue(t, s, start.Add(testLease), 0)
	if got := wantDue(t, s, start.Add(testWindow), 2)[1].ID; got != old.ID {
		t.Fatalf("due is %q", got.Key)
	}
	if n, err := s.Purge(t.Context(), []store.Ref{{ID: old.ID, Revision: old.Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	srv.Do("CONFIG", "SET", "maxmemory", "0")
	wantDue(t, s, start.Add(2*testLease), 1)
}

// BenchmarkCorrect is what Due costs for each record whose entry it moves: what the
// outcome has not paid.
func BenchmarkCorrect(b *testing.B) {
	srv := redistest.Start(b, "always")
	s := mustOpen(b, srv.URL(), nil)
	start := store.InstantOf(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	var callers sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		callers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				rec := semel.Record{
					ID: semel.ID{Operation: "o", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing,
					CreatedAt: start, NextAt: start.Add(testLease),
				}
				done := rec
				done.Revision, done.State, done.NextAt, done.Result.Data = newRevision(), semel.Completed, start.Add(testWindow), make([]byte, 1024)
				for _, w := range []store.Write{{Record: new(rec)}, {Record: new(done), Expect: rec.Revision}} {
					if _, applied, err := s.Apply(b.Context(), w); err != nil || !applied {
						b.Error(applied, err)
					}
				}
			}
		})
	}
	callers.Wait()
	used := serverTime(b, srv)
	b.ResetTimer()
	if recs, err := allDue(b.Context(), s, start.Add(testLease), 256); err != nil || len(recs) > 0 {
		b.Fatal(len(recs), err)
	}
	b.ReportMetric(float64((serverTime(b, srv)-used).Nanoseconds())/float64(b.N), "server-ns/op")
}

// serverTime is how long a server's processor has been busy with it.
func serverTime(b *testing.B, srv *redistest.Server) (sum time.Duration) {
	b.Helper()
	info := infoFields(srv.Do("INFO", "cpu"))
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		d, err := time.ParseDuration(info[name] + "s")
		if err != nil {
			b.Fatal(err)
		}
		sum += d
	}
	return sum
}
