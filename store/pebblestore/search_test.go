package pebblestore

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/internal/rig/thorough"
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
	ctx := paging.With(t.Context(), paging.Bytes, time.Hour) // however busy the machine is
	for ; ; calls++ {
		page, err := s.Search(ctx, q)
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

// Once a search for what is in flight or held has been through the store, others read nothing
// else: they end in one call, however much there is.
func TestSearchForWhatRuns(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: fs})
	const records = searchBatch + 500
	putMany(t, s, records)
	change := func(n int, expect int64, state semel.State, held bool) {
		t.Helper()
		rec := testRecord(testID(fmt.Sprint(n)), expect+1, state)
		rec.Held = held
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: &rec, Expect: testRecord(testID(fmt.Sprint(n)), expect, semel.Processing).Revision}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	search := func(q store.Query, wantCalls int) (keys []string) {
		t.Helper()
		q.Limit = store.MaxSearchLimit
		for calls := 1; ; calls++ {
			page, err := s.Search(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range page.Records {
				keys = append(keys, page.Records[i].ID.Key)
			}
			if q.Cursor = page.Next; q.Cursor != "" {
				continue
			}
			if calls != wantCalls {
				t.Errorf("it took %d calls, want %d", calls, wantCalls)
			}
			slices.Sort(keys)
			return keys
		}
	}
	var work sync.WaitGroup
	for c := range 64 {
		work.Go(func() {
			for n := 3 + c; n < records; n += 64 {
				change(n, 1, semel.Completed, false)
			}
		})
	}
	work.Wait()
	change(1, 1, semel.Processing, true)
	want := fmt.Sprint([]string{"0", "1", "2"})
	for range 2 {
		if got := search(store.Query{State: semel.Processing}, 1); fmt.Sprint(got) != want {
			t.Errorf("found %v, want %v", got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: fs})
	defer func() { s.Close() }()
	change(2, 1, semel.Failed, false)
	change(7, 2, semel.Processing, false) // another attempt
	if got := search(store.Query{State: semel.Processing}, 2); fmt.Sprint(got) != "[0 1 7]" {
		t.Errorf("after another start there are %v", got)
	}
	if got := search(store.Query{Held: true}, 1); fmt.Sprint(got) != "[1]" {
		t.Errorf("held are %v", got)
	}
	change(0, 1, semel.Completed, false)
	if got := search(store.Query{State: semel.Processing}, 1); fmt.Sprint(got) != "[1 7]" {
		t.Errorf("in the end there are %v", got)
	}
	if n, err := s.Purge(t.Context(), []store.Ref{{ID: testID("1"), Revision: testRecord(testID("1"), 2, semel.Processing).Revision}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := search(store.Query{State: semel.Processing}, 1); fmt.Sprint(got) != "[7]" {
		t.Errorf("after a purge there are %v", got)
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
		first := testRecord(testID(fmt.Sprint(w)), 1, semel.Processing)
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(first)}); !ok || err != nil {
			t.Fatalf("Apply gives %v, %v", ok, err)
		}
		wg.Go(func() {
			expect := first.Revision
			for v := int64(2); ; v++ {
				select {
				case <-stop:
					return
				default:
				}
				rec := testRecord(first.ID, v, semel.Processing)
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

// What a search that begins below has not seen is found by the next one, in a store that was
// opened anew.
func TestASearchFromACursorLeavesNoGap(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, "store", &Options{FS: fs})
	const records = 20
	putMany(t, s, records)
	page, err := s.Search(t.Context(), store.Query{State: semel.Processing, Limit: records / 2})
	if err != nil || len(page.Records) != records/2 || page.Next == "" {
		t.Fatal(len(page.Records), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: fs})
	defer s.Close()
	below, err := s.Search(t.Context(), store.Query{State: semel.Processing, Limit: records, Cursor: page.Next})
	if err != nil || len(below.Records) != records/2 {
		t.Fatal(len(below.Records), err)
	}
	for range 2 {
		all, err := s.Search(t.Context(), store.Query{State: semel.Processing, Limit: records})
		if err != nil || len(all.Records) != records {
			t.Errorf("%d of %d records are found, %v", len(all.Records), records, err)
		}
	}
}

// A record that is purged while a search comes to it is gone, and not damaged.
func TestASearchPassesOverWhatIsPurgedMeanwhile(t *testing.T) {
	running := store.Query{State: semel.Processing}
	search := func(t *testing.T, s *Store, q store.Query, want int) {
		t.Helper()
		page, err := s.Search(t.Context(), q)
		if err != nil || len(page.Records) != want || len(page.Unreadable) > 0 {
			t.Errorf("found %d records, want %d; unreadable: %v, %v", len(page.Records), want, page.Unreadable, err)
		}
	}
	purge := func(t *testing.T, s *Store, key string) {
		t.Helper()
		ref := store.Ref{ID: testID(key), Revision: testRecord(testID(key), 1, semel.Processing).Revision}
		if n, err := s.Purge(t.Context(), []store.Ref{ref}); n != 1 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
	}
	t.Run("before it is read", func(t *testing.T) {
		s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
		defer s.Close()
		putMany(t, s, 10)
		search(t, s, running, 10)
		known, _ := s.processing.before(noAddress)
		purge(t, s, "7")
		for _, at := range known { // as a search that began before has found them
			s.processing.saw(at, true)
		}
		search(t, s, running, 9)
		search(t, s, store.Query{}, 9)
	})
	t.Run("while its purge is being written", func(t *testing.T) {
		onStalledDisk(t, func(t *testing.T, s *Store, disk *stall, _ func()) {
			disk.open()
			putMany(t, s, 1)
			at, _ := s.processing.before(noAddress)
			value, err := readKey(s.db, recordKey(at[0])) // by an iterator that began before
			if value == nil || err != nil {
				t.Fatal(err)
			}
			disk.shut()
			var work sync.WaitGroup
			work.Go(func() { purge(t, s, "0") })
			synctest.Wait()
			work.Go(func() {
				l := lookup{store: s, query: &running}
				runs, err := l.look(t.Context(), at[0], value, nil)
				if runs || err != nil || len(l.page.Records)+len(l.page.Unreadable) > 0 {
					t.Errorf("found %+v, runs: %v, %v", l.page, runs, err)
				}
			})
			synctest.Wait()
			disk.open()
			work.Wait()
		})
	})
}
