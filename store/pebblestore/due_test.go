package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/thorough"
	"github.com/semelhq/semel/store"
)

// dueAt is a version of a record that is due at a time.
func dueAt(key string, version int64, at store.Instant) semel.Record {
	rec := testRecord(testID(key), version, semel.Processing)
	rec.NextAt = at
	return rec
}

func apply(t *testing.T, s *Store, rec semel.Record, expect store.Revision) {
	t.Helper()
	if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect}); !ok || err != nil {
		t.Fatalf("Apply gives %v, %v", ok, err)
	}
}

// dueKeys are the keys of all that is due, in pages of a limit.
func dueKeys(t *testing.T, s *Store, limit int) (keys []string, unreadable []error) {
	t.Helper()
	q := store.DueQuery{Until: farFuture, Limit: limit}
	for {
		page, err := s.Due(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.Records) + len(page.Unreadable); n > limit {
			t.Fatalf("a page of %d has %d records, readable or not", limit, n)
		}
		for _, rec := range page.Records {
			keys = append(keys, rec.ID.Key)
		}
		unreadable = append(unreadable, page.Unreadable...)
		if q.After = page.Next; q.After == "" {
			return keys, unreadable
		}
	}
}

// One scan at a time moves the mark, to the first place that it found or that was logged
// since it began.
func TestTheMarkOfTheDueIndex(t *testing.T) {
	m := &dueMark{low: 3}
	from, moves := m.begin()
	if from != 3 || !moves {
		t.Errorf("a scan begins at %d and may move the mark: %v", from, moves)
	}
	if from, moves := m.begin(); from != 3 || moves {
		t.Errorf("a second one begins at %d and may move the mark: %v", from, moves)
	}
	m.logged(7)
	m.end(9)
	if from, moves := m.begin(); from != 7 || !moves {
		t.Errorf("the next begins at %d and may move the mark: %v", from, moves)
	}
	m.end(9)
	if from, _ := m.begin(); from != 9 {
		t.Errorf("the one after that begins at %d", from)
	}
}

// leaving is a context that ends after it was looked at once.
type leaving struct {
	context.Context
	looks int
}

func (l *leaving) Err() error {
	if l.looks++; l.looks > 1 {
		return context.Canceled
	}
	return nil
}

// A page that was broken off is no page without records.
func TestDueSaysThatItsCallerHasGone(t *testing.T) {
	onStalledDisk(t, func(t *testing.T, s *Store, _ *stall, _ func()) {
		writer := begin(t, func(ctx context.Context, c *caught) {
			c.rec, c.ok, c.err = valued(s.Apply(ctx, store.Write{Record: new(dueAt("k", 1, testEpoch))}))
		})
		defer func() { <-writer.done }()
		reader := begin(t, func(ctx context.Context, c *caught) {
			page, err := s.Due(ctx, store.DueQuery{Until: farFuture, Limit: 10})
			if c.err = err; len(page.Records) > 0 {
				c.rec = page.Records[0]
			}
		})
		if err := reader.giveUp(); !errors.Is(err, context.Canceled) || !reader.rec.Revision.IsZero() {
			t.Errorf("while a record is being written Due gives version %d, %v", reader.rec.Fence, err)
		}
		if page, err := s.Due(&leaving{Context: t.Context()}, store.DueQuery{Until: farFuture, Limit: 10}); !errors.Is(err, context.Canceled) {
			t.Errorf("when its caller goes while it reads, Due gives %d records, %v", len(page.Records), err)
		}
		_ = writer.giveUp()
	})
}

func TestDueNamesRecordsThatCannotBeReadAndGoesOn(t *testing.T) {
	var log bytes.Buffer
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	const records = 20
	for i := range records {
		apply(t, s, dueAt(fmt.Sprint(i), 1, testEpoch.Add(time.Duration(i)*time.Second)), store.Revision{})
	}
	for _, spoiled := range []struct {
		at   address
		what func(key []byte) error
	}{
		{0, func(key []byte) error { return s.db.Set(key, []byte("not a record"), pebble.Sync) }},
		{1, func(key []byte) error { return s.db.Delete(key, pebble.Sync) }},
		{10, func(key []byte) error { return s.db.Set(key, nil, pebble.Sync) }},
		{records - 1, func(key []byte) error { return s.db.Set(key, []byte{1}, pebble.Sync) }},
	} {
		if err := spoiled.what(recordKey(spoiled.at)); err != nil {
			t.Fatal(err)
		}
	}
	for limit := 1; limit <= records+1; limit++ {
		log.Reset()
		keys, unreadable := dueKeys(t, s, limit)
		if len(keys) != records-4 || keys[0] != "2" || keys[len(keys)-1] != "18" {
			t.Errorf("in pages of %d these are due: %v", limit, keys)
		}
		if len(unreadable) != 4 || !strings.Contains(unreadable[1].Error(), "record number 1: it is in the due index and not stored") {
			t.Errorf("in pages of %d these can't be read: %v", limit, unreadable)
		}
		if n := strings.Count(log.String(), "a due record cannot be read"); n != 4 {
			t.Errorf("in pages of %d %d records are logged as damaged", limit, n)
		}
	}
}

func TestDueTakesOnlyItsOwnCursors(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	apply(t, s, dueAt("a", 1, testEpoch), store.Revision{})
	for _, cursor := range []string{
		"x", ".", "1", "1.", ".1", "1.2.3", "01.2", "1.02", "+1.2", "-1.2", "1.2 ", "1.18446744073709551615", "18446744073709551616.1", "1,2",
	} {
		for _, limit := range []int{0, 10} {
			page, err := s.Due(t.Context(), store.DueQuery{Until: farFuture, After: cursor, Limit: limit})
			if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
				t.Errorf("the cursor %q gives %v, %v", cursor, page, err)
			}
		}
	}
}

// A record that is written again, and stays due at the same time, is in exactly one
// page: whoever puts records in order by what is due rests on it.
func TestARecordThatIsBeingChangedIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk stall
		s := mustOpen(t, "store", &Options{FS: disk.fs(vfs.NewMem())})
		defer s.Close()
		recs := map[string]semel.Record{}
		for i, key := range []string{"before", "stays", "moves", "ends", "purged", "after"} {
			recs[key] = dueAt(key, 1, testEpoch.Add(time.Duration(i)*time.Second))
			apply(t, s, recs[key], store.Revision{})
		}
		disk.shut()
		var work sync.WaitGroup
		change := func(key string, at store.Instant) {
			work.Go(func() { apply(t, s, dueAt(key, 2, at), recs[key].Revision) })
		}
		change("stays", recs["stays"].NextAt)
		change("moves", recs["after"].NextAt.Add(time.Hour))
		change("ends", 0)
		work.Go(func() {
			if n, err := s.Purge(t.Context(), []store.Ref{{ID: recs["purged"].ID, Revision: recs["purged"].Revision}}); n != 1 || err != nil {
				t.Errorf("Purge gives %d, %v", n, err)
			}
		})
		synctest.Wait()
		var page store.DuePage
		work.Go(func() {
			var err error
			if page, err = s.Due(t.Context(), store.DueQuery{Until: recs["after"].NextAt, Limit: 10}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		disk.open()
		work.Wait()
		var got []string
		for _, rec := range page.Records {
			got = append(got, fmt.Sprint(rec.ID.Key, " ", rec.Fence))
		}
		if want := "before 1, stays 2, after 1"; strings.Join(got, ", ") != want {
			t.Errorf("due are %v, want %s", got, want)
		}
	})
}

// The same for many, while callers write all of them again and again.
func TestRecordsThatStayDueAreInOnePageEach(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	const records, writers = 64, 8
	stop := make(chan struct{})
	var work sync.WaitGroup
	for w := range writers {
		var mine []semel.Record
		for i := w; i < records; i += writers {
			rec := dueAt(fmt.Sprint(i), 1, testEpoch.Add(time.Duration(i%5)*time.Second))
			apply(t, s, rec, store.Revision{})
			mine = append(mine, rec)
		}
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				old := &mine[i%len(mine)]
				next := dueAt(old.ID.Key, old.Fence+1, old.NextAt)
				if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(next), Expect: old.Revision}); !ok || err != nil {
					t.Errorf("Apply gives %v, %v", ok, err)
					return
				}
				*old = next
			}
		})
	}
	for round := range thorough.Scaled(400) {
		times := map[string]int{}
		keys, _ := dueKeys(t, s, 1+round%(records+5))
		for _, key := range keys {
			times[key]++
		}
		for i := range records {
			if n := times[fmt.Sprint(i)]; n != 1 {
				t.Fatalf("in round %d record %d is in %d pages", round, i, n)
			}
		}
	}
	close(stop)
	work.Wait()
}

// What is logged while a page is read may be due before all that the reader sees. The
// mark from which later pages are read must not go past it.
func TestTheDueMarkKnowsWhatWasLoggedDuringAScan(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	apply(t, s, dueAt("late", 1, testEpoch.Add(time.Hour)), store.Revision{})
	if _, moves := s.due.begin(); !moves {
		t.Fatal("another scan is under way")
	}
	apply(t, s, dueAt("early", 1, testEpoch), store.Revision{})
	s.due.end(sortable(testEpoch.Add(time.Hour)))
	if keys, _ := dueKeys(t, s, 10); fmt.Sprint(keys) != "[early late]" {
		t.Errorf("due are %v", keys)
	}
}
