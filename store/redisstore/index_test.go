package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	recs, err := allDue(t.Context(), s, until, 1000)
	if err != nil || len(recs) != want {
		t.Fatalf("%d records are due, want %d: %v", len(recs), want, err)
	}
	return recs
}

// allDue reads all that is due by a time in pages. What can't be read is an error.
func allDue(ctx context.Context, s *Store, until semel.Instant, limit int) (recs []semel.Record, err error) {
	for q := (semel.DueQuery{Until: until, Limit: limit}); ; {
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
	start := s.clock.now()
	const n = 300
	recs := leased(t, s, start, "k", n)
	for i := range n - 1 { // the last one's holder is gone
		recs[i] = complete(t, s, recs[i])
	}
	if got := dueEntries(t, srv, s); got != 0 {
		t.Fatalf("the writes made %d due entries", got)
	}
	wantDue(t, s, start.Add(indexDelay-time.Millisecond), 0)
	if got := dueEntries(t, srv, s); got != 0 {
		t.Fatalf("%d entries were made before their time", got)
	}
	wantDue(t, s, s.clock.now().Add(indexDelay+time.Second), 0) // its clock may be behind the server's
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

// However few are asked for, those whose entries are too early don't hide them for long.
func TestManyThatAreTooEarlyHideNobody(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := s.clock.now()
	recs := leased(t, s, start, "k", 3*indexRounds)
	slices.SortFunc(recs, func(a, b semel.Record) int { // as those are that are due at the same time
		one, other := a.ID.Digest(), b.ID.Digest()
		return bytes.Compare(one[:], other[:])
	})
	wantDue(t, s, s.clock.now().Add(indexDelay+time.Second), 0)
	for _, rec := range recs[:len(recs)-1] {
		complete(t, s, rec)
	}
	due, err := s.Due(t.Context(), semel.DueQuery{Until: start.Add(testLease + time.Second), Limit: 1})
	if err != nil || len(due.Records) != 1 || due.Records[0].ID != recs[len(recs)-1].ID {
		t.Fatalf("due are %v, %v", due, err)
	}
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

// What one process has taken in another finds, and what comes later both do.
func TestAnyProcessTakesIn(t *testing.T) {
	srv := redistest.Start(t, "")
	s, other := mustOpen(t, srv.URL(), nil), mustOpen(t, srv.URL(), nil)
	start := s.clock.now()
	const n = 100
	leased(t, s, start, "k", n)
	wantDue(t, s, start.Add(testLease-time.Second), 0)
	wantDue(t, other, start.Add(testLease), n)
	leased(t, other, start.Add(time.Second), "later", n)
	var both sync.WaitGroup
	for _, st := range []*Store{s, other} {
		both.Go(func() {
			if recs, err := allDue(t.Context(), st, start.Add(2*testLease), 1000); err != nil || len(recs) != 2*n {
				t.Errorf("%d are due, %v", len(recs), err)
			}
		})
	}
	both.Wait()
	if left := entriesLeft(srv, &s.keys.shards[0]); left != "200 200 0" {
		t.Errorf("the entries are %s", left)
	}
}

// listed are the keys of all records in the order of the list, read by pages.
func listed(t *testing.T, s *Store, limit int) (keys []string) {
	t.Helper()
	for q := (semel.Query{Limit: limit}); ; {
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

// What was purged and stored anew, before it was taken in for the first time, has the
// place of what is there now.
func TestARecordThatIsStoredAnewHasANewPlace(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := s.clock.now()
	again := leased(t, s, start, "again", 1)[0]
	leased(t, s, start.Add(time.Second), "other", 1)
	if n, err := s.Purge(t.Context(), []semel.Ref{{ID: again.ID, Revision: again.Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	leased(t, s, start.Add(2*time.Second), "again", 1)
	for range 2 {
		if keys := listed(t, s, 1); fmt.Sprint(keys) != "[again0 other0]" {
			t.Errorf("listed are %v", keys)
		}
		wantDue(t, s, s.clock.now().Add(2*indexDelay), 0)
	}
	if left := entriesLeft(srv, &s.keys.shards[0]); left != "2 2 0" {
		t.Errorf("the entries are %s", left)
	}
}

// A claim that comes late can't wait for as long as one that comes at once.
func TestAClaimThatIsDueSoonIsIndexedAtOnce(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	late := s.clock.now().Add(indexDelay - testLease)
	leased(t, s, late, "late", 10)
	if got := dueEntries(t, srv, s); got != 10 {
		t.Errorf("%d have entries", got)
	}
	wantDue(t, s, late.Add(testLease), 10)
}

// When the clock of a server is set back, the names of entries stand still.
func TestEntriesOfTheFutureAreTakenIn(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := s.clock.now()
	sh := &s.keys.shards[0]
	ahead := strconv.FormatInt(millis(start.Add(time.Hour)), 10)
	srv.Do("XADD", sh.new, ahead+"-5000", "", strings.Repeat("-", digestLen)+strings.Repeat("1", placeLen)) // of nothing
	leased(t, s, start, "k", 20)
	c := s.link.client()
	if came, err := c.Do(t.Context(), c.B().Xrange().Key(sh.new).Start(ahead+"-5001").End("+").Build()).AsXRange(); len(came) != 20 {
		t.Fatalf("the entries are %v, %v", came, err)
	}
	wantDue(t, s, start.Add(testLease+time.Second), 20)
	if left := entriesLeft(srv, sh); left != "20 20 0" {
		t.Errorf("the entries are %s", left)
	}
}

// What has the same place is listed once, whatever the size of the pages.
func TestManyOfOnePlaceAreListed(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	const n = 3 * readBatch // more of them in the index than one step reads
	for i := range n {
		mustApply(t, s, semel.Record{ID: semel.ID{Operation: "o", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: 1e18}, semel.Revision{})
		if i == n/2 {
			wantDue(t, s, s.clock.now().Add(time.Hour), 0)
		}
	}
	if left := entriesLeft(srv, &s.keys.shards[0]); left != "0 751 749" {
		t.Fatalf("the entries are %s", left)
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

// A search does not read a stream that nobody has taken in for long.
func TestASearchTakesInALongStream(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	for i := range searchBatch {
		rec := semel.Record{ID: semel.ID{Operation: "o", Key: fmt.Sprint(i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: semel.Instant(1e18 - 1e6*i)}
		mustApply(t, s, rec, semel.Revision{})
	}
	page, err := s.Search(t.Context(), semel.Query{Limit: 3})
	if err != nil || len(page.Records) != 3 || page.Records[2].ID.Key != "2" {
		t.Errorf("the newest are %v, %v", page.Records, err)
	}
	if left := entriesLeft(srv, &s.keys.shards[0]); left != "0 5000 0" {
		t.Errorf("the entries are %s", left)
	}
}

// A server that is full refuses what makes it fuller. What makes room must go on.
func TestAFullServerCanBePurged(t *testing.T) {
	srv := redistest.Start(t, "", "maxmemory-policy", "noeviction")
	s := mustOpen(t, srv.URL(), nil)
	start := s.clock.now()
	old := complete(t, s, leased(t, s, start, "old", 1)[0])
	wantDue(t, s, start.Add(testLease), 0)
	leased(t, s, start.Add(testLease), "new", 1)
	srv.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := allDue(t.Context(), s, start.Add(testLease+indexDelay), 10); err == nil {
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
					CreatedAt: start.Add(time.Duration(i) * 20 * time.Microsecond), NextAt: start.Add(testWindow + time.Duration(i)*20*time.Microsecond), Result: semel.Result{Data: make([]byte, 1024)},
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
	used := serverTime(b, srv)
	b.ResetTimer()
	for dueEntries(b, srv, s) < b.N {
		if _, err := s.Due(b.Context(), semel.DueQuery{Until: start.Add(testWindow / 2), Limit: 1}); err != nil {
			b.Fatal(err)
		}
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
