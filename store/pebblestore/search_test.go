package pebblestore

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/thorough"
	"github.com/semelhq/semel/store"
)

// putMany stores a version of n records, by several callers at once.
func putMany(t *testing.T, s *Store, n int) {
	t.Helper()
	var wg sync.WaitGroup
	const callers = 64
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(testRecord(testID(fmt.Sprint(i)), 1, semel.Processing))}); !ok || err != nil {
					t.Errorf("Apply gives %v, %v", ok, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSearchLooksAtABoundedNumberOfRecords(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	const records = searchBatch + 5
	putMany(t, s, records)
	q := store.Query{Operation: "no such operation", Limit: 10}
	calls := 1
	for ; ; calls++ {
		page, err := s.Search(t.Context(), q)
		if err != nil || len(page.Records) > 0 {
			t.Fatal(len(page.Records), err)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if calls != 2 {
		t.Errorf("a search through %d records that selects none took %d calls, want 2", records, calls)
	}
}

func TestSearchSkipsDamagedRecords(t *testing.T) {
	var log bytes.Buffer
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	putMany(t, s, 20)
	var keys [][]byte
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{recordPrefix}, UpperBound: []byte{recordPrefix + 1}})
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	spoil := func(keys [][]byte) {
		for _, key := range keys {
			if err := s.db.Set(key, []byte("not a record"), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := func() (found, bad int) {
		q := store.Query{Limit: 3}
		for {
			page, err := s.Search(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.Records) + len(page.Unreadable); n > q.Limit {
				t.Errorf("a page of %d has %d records, readable or not", q.Limit, n)
			}
			for _, err := range page.Unreadable {
				if !strings.Contains(err.Error(), "record number") {
					t.Errorf("the error does not name the record: %v", err)
				}
			}
			found, bad = found+len(page.Records), bad+len(page.Unreadable)
			if q.Cursor = page.Next; q.Cursor == "" {
				return found, bad
			}
		}
	}
	spoil(keys[5:7])
	t.Run("the others are found, and the damaged ones are named and logged", func(t *testing.T) {
		if found, bad := all(); found != 18 || bad != 2 {
			t.Errorf("of 20 records %d are found and %d can't be read", found, bad)
		}
		if n := strings.Count(log.String(), "a record cannot be read"); n != 2 {
			t.Errorf("%d records are logged as damaged, want 2:\n%s", n, &log)
		}
	})
	spoil(keys)
	t.Run("and where there are no others", func(t *testing.T) {
		if found, bad := all(); found != 0 || bad != 20 {
			t.Errorf("of 20 damaged records %d are found and %d can't be read", found, bad)
		}
	})
}

// TestSearchedRecordsSurviveAPowerCut holds what Search listed against what is
// there when the power is cut at that moment, while writers go on.
func TestSearchedRecordsSurviveAPowerCut(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, "store", &Options{FS: fs})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			var expect store.Revision
			for v := int64(1); ; v++ {
				select {
				case <-stop:
					return
				default:
				}
				rec := testRecord(testID(fmt.Sprint(w)), v, semel.Processing)
				if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect}); !ok || err != nil {
					t.Errorf("Apply gives %v, %v", ok, err)
					return
				}
				expect = rec.Revision
			}
		})
	}
	listed := 0
	rounds := max(thorough.Scaled(100), 8)
	for round := range rounds {
		page, err := s.Search(t.Context(), store.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(uint64(round), 1))
		after := mustOpen(t, "store", &Options{FS: fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * (round % 2), RNG: rng})})
		for _, rec := range page.Records {
			listed++
			got, err := after.Get(t.Context(), rec.ID)
			if err != nil || got.Fence < rec.Fence {
				t.Errorf("the version with fence %d was listed; after the power cut there is %d, %v", rec.Fence, got.Fence, err)
			}
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if listed < 4*rounds {
		t.Fatalf("%d records were listed, so nothing is proved", listed)
	}
}
