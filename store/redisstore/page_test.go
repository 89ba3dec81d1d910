package redisstore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// dueInPages reads all that is due in pages of a size, and what can't be read.
func dueInPages(t *testing.T, s *Store, until store.Instant, limit int) (recs []semel.Record, bad []error) {
	t.Helper()
	seen := map[string]bool{}
	for q := (store.DueQuery{Until: until, Limit: limit}); ; {
		page, err := s.Due(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		recs, bad = append(recs, page.Records...), append(bad, page.Unreadable...)
		if q.After = page.Next; q.After == "" {
			return recs, bad
		}
		if seen[q.After] {
			t.Fatalf("pages of %d come back to %q", limit, q.After)
		}
		seen[q.After] = true
	}
}

// inOrder checks that records are those that were wanted, each once, as they are due.
func inOrder(t *testing.T, got, want []semel.Record) {
	t.Helper()
	count := map[store.Revision]int{}
	for i, rec := range got {
		count[rec.Revision]++
		if i > 0 && micros(rec.NextAt) < micros(got[i-1].NextAt) {
			t.Errorf("%s is due before the one before it", rec.ID.Key)
		}
	}
	for _, rec := range want {
		if count[rec.Revision] != 1 {
			t.Errorf("%s is found %d times", rec.ID.Key, count[rec.Revision])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d records are found, want %d", len(got), len(want))
	}
}

// servers are the two kinds.
var servers = map[string]func(t *testing.T) (url string){
	"one server": func(t *testing.T) string { return redistest.Start(t, "").URL() },
	"a Cluster":  func(t *testing.T) string { return redistest.StartCluster(t, "", redistest.Patient...).URL() },
}

// An entry that is too early is where its record is not, and moves to where it is before
// a page goes past it, also where the record is due all the same.
func TestPagesHaveRecordsWhereTheyAreDue(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, start(t), nil)
			r := rand.New(rand.NewPCG(1, 2))
			const n = 200
			at := mustNow(t, s).Add(-time.Hour)
			for _, limit := range []int{1, 7, n - 1, n, n + 1} {
				var want []semel.Record
				for i := range n {
					rec := leased(t, s, at, fmt.Sprint(limit, ".", i, "."), 1)[0]
					// Its entry is at once where the lease ends, and stays there.
					later := rec
					later.Revision, later.NextAt = newRevision(), at.Add(testLease+time.Duration(r.IntN(30))*time.Microsecond)
					if i%10 == 0 {
						later.NextAt = 0 // and some are never due
					}
					mustApply(t, s, later, rec.Revision)
					if later.NextAt != 0 {
						want = append(want, later)
					}
				}
				got, bad := dueInPages(t, s, at.Add(testWindow), limit)
				if len(bad) > 0 {
					t.Error(bad)
				}
				inOrder(t, got, want)
				for _, rec := range want {
					if n, err := s.Purge(t.Context(), []store.Ref{{ID: rec.ID, Revision: rec.Revision}}); n != 1 || err != nil {
						t.Fatal(n, err)
					}
				}
			}
		})
	}
}

// However many are due at the same microsecond, pages go through them.
func TestPagesOfManyThatAreDueAtOnce(t *testing.T) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, start(t), nil)
			at := mustNow(t, s).Add(-time.Hour)
			const callers, each = 32, 2048 / 32
			var mu sync.Mutex
			var want []semel.Record
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for i := range each {
						rec := semel.Record{ID: semel.ID{Operation: "o", Key: fmt.Sprint(c, ".", i)}, Revision: newRevision(), State: semel.Processing, CreatedAt: at, NextAt: at}
						if _, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec)}); err != nil || !applied {
							t.Error(applied, err)
						}
						mu.Lock()
						want = append(want, rec)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			const few = 50 // of which fewer are read at a time than a shard has
			for _, limit := range []int{few, callers*each - 1} {
				got, bad := dueInPages(t, s, at, limit)
				if len(bad) > 0 {
					t.Error(bad)
				}
				inOrder(t, got, want)
			}
		})
	}
}

// damaged are ways in which what is stored can be no record that this program can read,
// and what is said about it.
var damaged = map[string]struct {
	damage func(srv *redistest.Server, key string)
	is     error
	says   string
}{
	"a byte is wrong": {func(srv *redistest.Server, key string) { srv.Do("SETRANGE", key, "60", "\xff\xfe") }, codec.ErrCorrupt, ""},
	"a newer program": {func(srv *redistest.Server, key string) {
		value := []byte(srv.Do("GET", key))
		body := value[headLen : len(value)-crc32.Size]
		body[0] = codec.Version + 1
		binary.LittleEndian.PutUint32(value[len(value)-crc32.Size:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		srv.Do("SET", key, string(value))
	}, codec.ErrNewer, ""},
	"a list":               {func(srv *redistest.Server, key string) { srv.Do("DEL", key); srv.Do("LPUSH", key, "x") }, nil, "WRONGTYPE"},
	"a head of no digits":  {func(srv *redistest.Server, key string) { srv.Do("SETRANGE", key, "3", "x") }, codec.ErrCorrupt, "head"},
	"another's head":       {func(srv *redistest.Server, key string) { srv.Do("SETRANGE", key, "0", "0000000000000007") }, codec.ErrCorrupt, "head"},
	"a text that is short": {func(srv *redistest.Server, key string) { srv.Do("SET", key, "5") }, codec.ErrCorrupt, ""},
}

// A record that can't be read is told of, by its digest and with the reason, and keeps no
// other from being found, listed, moved or purged, however pages end beside it.
func TestRecordsThatCannotBeReadKeepNoOtherFromBeingFound(t *testing.T) {
	srv := redistest.Start(t, "")
	for name, d := range damaged {
		for _, corrected := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " corrected before ", corrected), func(t *testing.T) {
				s := mustOpen(t, srv.URL(), &Options{Prefix: fresh()})
				start := mustNow(t, s)
				recs := leased(t, s, start, "k", 40)
				until := start.Add(2 * testLease)
				if corrected {
					wantDue(t, s, until, len(recs))
				}
				bad := map[string]bool{}
				var sound []semel.Record
				for i, rec := range recs {
					if i%4 == 0 {
						d.damage(srv, keyOf(s, rec))
						digest := rec.ID.Digest()
						bad[hex.EncodeToString(digest[:])] = true
						continue
					}
					if i%4 == 1 { // its entry is too early
						next := rec
						next.Revision, next.NextAt = newRevision(), rec.NextAt.Add(time.Second)
						mustApply(t, s, next, rec.Revision)
						rec = next
					}
					sound = append(sound, rec)
				}
				told := func(errs []error) {
					t.Helper()
					count := map[string]int{}
					for _, err := range errs {
						_, text, _ := strings.Cut(err.Error(), "the record ")
						digest, _, _ := strings.Cut(text, ":")
						count[digest]++
						if !bad[digest] || d.is != nil && !errors.Is(err, d.is) || !strings.Contains(err.Error(), d.says) {
							t.Errorf("it says %v", err)
						}
					}
					for digest := range bad {
						if count[digest] != 1 {
							t.Errorf("the record %s is told of %d times", digest, count[digest])
						}
					}
				}
				before := s.link.client()
				for _, limit := range []int{1, 3, 1000} {
					got, errs := dueInPages(t, s, until, limit)
					inOrder(t, got, sound)
					told(errs)
				}
				for _, limit := range []int{1, 3, 1000} {
					var listed []semel.Record
					var errs []error
					for q := (store.Query{Limit: limit}); ; {
						page, err := s.Search(t.Context(), q)
						if err != nil {
							t.Fatal(err)
						}
						listed, errs = append(listed, page.Records...), append(errs, page.Unreadable...)
						if q.Cursor = page.Next; q.Cursor == "" {
							break
						}
					}
					if len(listed) != len(sound) {
						t.Errorf("%d are listed, want %d", len(listed), len(sound))
					}
					told(errs)
				}
				var refs []store.Ref
				for _, rec := range append(slices.Clone(sound), recs[0]) {
					refs = append(refs, store.Ref{ID: rec.ID, Revision: rec.Revision})
				}
				n, err := s.Purge(t.Context(), refs)
				if err != nil || n < len(sound) || n > len(refs) {
					t.Errorf("%d of %d are purged, %v", n, len(sound), err)
				}
				if s.link.client() != before {
					t.Error("the connections were closed")
				}
			})
		}
	}
}

// An entry that names no record is told of too.
func TestForeignEntriesKeepNothingFromBeingFound(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	at := mustNow(t, s).Add(-time.Hour)
	recs := leased(t, s, at, "k", 10)
	for _, member := range []string{"", "x", strings.Repeat("\xff", digestLen+1)} {
		for _, score := range []int64{0, micros(recs[4].NextAt)} {
			srv.Do("ZADD", s.keys.shards[0].due, fmt.Sprint(score), fmt.Sprint(member, score))
		}
	}
	for _, limit := range []int{1, 3, 100} {
		got, bad := dueInPages(t, s, at.Add(testLease), limit)
		inOrder(t, got, recs)
		if len(bad) < 6 || !strings.Contains(bad[0].Error(), "this program did not add") {
			t.Errorf("told are %v", bad)
		}
	}
}

// What is purged leaves no entry behind, and what is stored anew has its own.
func TestAPurgedRecordLeavesNoEntry(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	start := mustNow(t, s)
	again := leased(t, s, start.Add(time.Second), "again", 1)[0]
	other := leased(t, s, start.Add(2*time.Second), "other", 1)[0]
	wantDue(t, s, start.Add(time.Hour), 2)
	for _, created := range []time.Duration{3 * time.Second, 0} { // later than the other, and earlier
		if n, err := s.Purge(t.Context(), []store.Ref{{ID: again.ID, Revision: again.Revision}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if left := entriesLeft(srv, s); left != "1 1" {
			t.Fatalf("after the purge the entries are %s", left)
		}
		again = leased(t, s, start.Add(created), "again", 1)[0]
		want := []string{again.ID.Key, other.ID.Key}
		if created == 0 {
			slices.Reverse(want)
		}
		if keys := listed(t, s, 1); !slices.Equal(keys, want) {
			t.Errorf("listed are %v, want %v", keys, want)
		}
		wantDue(t, s, start.Add(time.Hour), 2)
	}
}
