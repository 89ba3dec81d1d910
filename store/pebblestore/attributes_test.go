package pebblestore

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// attributed is a record with an attribute of its own, and one that others have.
func attributed(i int) semel.Record {
	rec := testRecord(testID(fmt.Sprint(i)), 1, semel.Completed)
	rec.Attributes = store.Attributes{"order": fmt.Sprint(i), "customer": fmt.Sprint(i % 10)}
	return rec
}

func putAttributed(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: new(attributed(i))}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// inIndex counts the entries of attributes.
func inIndex(t *testing.T, s *Store) (n int) {
	t.Helper()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{attributePrefix}, UpperBound: []byte{attributePrefix + 1}})
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// A store that an earlier program has written in, without entries, is searched in full, and has all
// entries and no others after a while.
func TestTheIndexAfterAnEarlierProgram(t *testing.T) {
	fs := vfs.NewMem()
	const n = 700 // more than two chunks
	one := store.Query{Attributes: store.Attributes{"order": "7"}, Limit: 10}
	finds := func(s *Store, q store.Query, want int) {
		t.Helper()
		page, err := s.Search(t.Context(), q)
		if err != nil || len(page.Records) != want {
			t.Fatalf("%+v finds %d records, want %d: %v", q, len(page.Records), want, err)
		}
	}
	s := mustOpen(t, "store", &Options{FS: fs})
	putAttributed(t, s, 0, n/2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = mustOpen(t, "store", &Options{FS: fs})
	if low := s.attributes.low.Load(); low != 0 {
		t.Fatalf("the index begins at %d although this program has written all", low)
	}
	s.attributes.older = true
	putAttributed(t, s, n/2, n)
	old := attributed(3)
	if k, err := s.Purge(t.Context(), []store.Ref{old.Ref()}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Whoever only looks makes no entries, and finds everything.
	s = mustOpen(t, "store", &Options{FS: fs, ReadOnly: true})
	finds(s, one, 1)
	finds(s, store.Query{Attributes: store.Attributes{"order": fmt.Sprint(n - 1)}}, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = mustOpen(t, "store", &Options{FS: fs})
	for s.attributes.low.Load() > 0 {
		finds(s, one, 1)
		finds(s, store.Query{Attributes: store.Attributes{"customer": "3"}, Limit: 1000}, n/10-1)
	}
	finds(s, one, 1)
	if got := inIndex(t, s); got != 2*(n-1) {
		t.Errorf("the index has %d entries for %d records of 2 attributes", got, n-1)
	}
	putAttributed(t, s, n, n+1) // and its batch says that the index is whole
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "store", &Options{FS: fs})
	defer s.Close()
	if low := s.attributes.low.Load(); low != 0 {
		t.Errorf("the index begins at %d after it was made", low)
	}
}

// A search for an attribute decodes only records that have it: the others here can't be decoded.
func TestASearchForAnAttributeReadsNothingElse(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	const n = 50
	putAttributed(t, s, 0, n)
	for at := range address(n) {
		if at != 7 {
			if err := s.db.Set(recordKey(at), []byte("damaged"), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, q := range []store.Query{
		{Attributes: store.Attributes{"order": "7"}},
		{Any: [][]store.Query{{{Attributes: store.Attributes{"order": "7"}}, {Attributes: store.Attributes{"command_id": "7"}}}}},
	} {
		page, err := s.Search(t.Context(), q)
		if err != nil || len(page.Records) != 1 || len(page.Unreadable) > 0 {
			t.Errorf("%+v finds %d records and %d damaged ones: %v", q, len(page.Records), len(page.Unreadable), err)
		}
	}
}

// A record without attributes adds no key to a batch, one with two adds two, and a change that
// leaves them alone none.
func TestWhatAttributesCost(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	batch := func(o *op) (keys uint32, bytes int) {
		b := s.db.NewBatch()
		defer b.Close()
		putAll([]*op{o}, b, &meta{end: 1}, &s.attributes, nil)
		return b.Count(), b.Len()
	}
	of := func(rec semel.Record, was store.Attributes) *op {
		return &op{digest: rec.ID.Digest(), at: noAddress, rec: &rec, was: never, due: never, creates: was == nil, attributes: was}
	}
	rec := attributed(1)
	plain := rec
	plain.Attributes = nil
	keys, _ := batch(of(plain, nil))
	with, _ := batch(of(rec, nil))
	same, _ := batch(of(rec, rec.Attributes))
	if with != keys+2 || same != keys-1 { // it has its place in the index already
		t.Errorf("a claim without attributes has %d keys, one with two %d, and a change %d", keys, with, same)
	}
	if n := testing.AllocsPerRun(100, func() { s.attributes.putEntries(nil, of(plain, nil)) }); n > 1 { // the op
		t.Errorf("a record without attributes costs %v allocations", n)
	}
}

// A record that has no entries yet gets all of them with its next change; others change with its
// attributes, and go with it.
func TestEntriesFollowARecord(t *testing.T) {
	s := mustOpen(t, "store", &Options{FS: vfs.NewMem()})
	defer s.Close()
	s.attributes.older = true
	putAttributed(t, s, 0, 1)
	s.attributes.older = false
	s.attributes.low.Store(1) // as after an earlier program, before anything was made
	rec := attributed(0)
	change := func(version int64, attributes store.Attributes, entries int) {
		t.Helper()
		next := testRecord(rec.ID, version, semel.Completed)
		next.Attributes = attributes
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: &next, Expect: rec.Revision, Was: rec.Attributes}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if rec = next; inIndex(t, s) != entries {
			t.Errorf("the index has %d entries, want %d", inIndex(t, s), entries)
		}
	}
	change(2, rec.Attributes, 2)
	change(3, store.Attributes{"order": "other"}, 1)
	change(4, nil, 0)
	change(5, store.Attributes{"order": "again", "cart": "2", "user": "u"}, 3)
	if n, err := s.Purge(t.Context(), []store.Ref{rec.Ref()}); n != 1 || err != nil || inIndex(t, s) != 0 {
		t.Errorf("after the purge the index has %d entries: %d, %v", inIndex(t, s), n, err)
	}
}
