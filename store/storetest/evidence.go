package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// entry returns an entry about an identity, which you recognize by its text.
func entry(id semel.ID, text string) store.Entry {
	return store.Entry{Leaf: []byte("leaf of " + text), Opening: []byte("opening of " + text), Subject: subject(id)}
}

func subject(id semel.ID) store.Subject {
	d := id.Digest()
	return store.Subject(d[:])
}

// evidenceOf returns the store's evidence log.
func evidenceOf(s semel.Store) store.EvidenceLog {
	return s.Extras().Evidence
}

// read reads the log from a number to its end.
func read(t *testing.T, s semel.Store, from uint64) []store.Entry {
	t.Helper()
	list, err := readAll(t.Context(), s, from)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// readAll is read in pages of various sizes.
func readAll(ctx context.Context, s semel.Store, from uint64) (all []store.Entry, err error) {
	for size := 1; ; size = size*3%1009 + 1 {
		list, err := evidenceOf(s).ReadEvidence(ctx, from, size)
		if err != nil {
			return nil, fmt.Errorf("ReadEvidence: %w", err)
		}
		if len(list) > size {
			return nil, fmt.Errorf("ReadEvidence gives %d entries, more than %d", len(list), size)
		}
		if len(list) == 0 {
			return all, nil
		}
		all = append(all, list...)
		from += uint64(len(list))
	}
}

// sameEntries compares entries. A nil opening differs from an empty one.
func sameEntries(t *testing.T, got []store.Entry, want ...store.Entry) {
	t.Helper()
	if err := differEntries(got, want); err != nil {
		t.Fatal(err)
	}
}

func differEntries(got, want []store.Entry) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			return fmt.Errorf("entry %d of %d is one too many: %s", i, len(got), briefEntry(got[i]))
		case i >= len(got):
			return fmt.Errorf("entry %d of %d is missing: %s", i, len(want), briefEntry(want[i]))
		case !equalEntries(got[i], want[i]):
			return fmt.Errorf("entry %d is %s, want %s", i, briefEntry(got[i]), briefEntry(want[i]))
		}
	}
	return nil
}

func equalEntries(a, b store.Entry) bool {
	return bytes.Equal(a.Leaf, b.Leaf) && bytes.Equal(a.Opening, b.Opening) && (a.Opening == nil) == (b.Opening == nil) && a.Subject == b.Subject
}

func briefEntry(en store.Entry) string {
	return fmt.Sprintf("{%.60q, %.60q, subject %x}", en.Leaf, en.Opening, en.Subject[:4])
}

// putWith applies a write with evidence, which must succeed.
func putWith(t *testing.T, s semel.Store, rec semel.Record, expect store.Revision, evidence ...store.Entry) semel.Record {
	t.Helper()
	_, applied, err := s.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect, Evidence: evidence})
	if err != nil || !applied {
		t.Fatalf("Apply with evidence: applied %v, error %v", applied, err)
	}
	return rec
}

// appended appends entries without a record.
func appended(t *testing.T, s semel.Store, entries []store.Entry) {
	t.Helper()
	if err := evidenceOf(s).AppendEvidence(t.Context(), entries); err != nil {
		t.Fatalf("AppendEvidence of %d entries: %v", len(entries), err)
	}
}

// logged writes n entries, some with records and some without, and returns the last record.
func logged(t *testing.T, s semel.Store, n int) (last semel.Record) {
	t.Helper()
	for i := 0; i < n; i += 5 {
		id := key(fmt.Sprint("filled ", i%45))
		old, err := s.Get(t.Context(), id)
		if err != nil && !errors.Is(err, semel.ErrNotFound) {
			t.Fatalf("Get: %v", err)
		}
		last = putWith(t, s, claimed(id, int64(i)+1), revisionOf(old), entry(id, fmt.Sprint(i)), entry(id, fmt.Sprint(i+1)), entry(id, strings.Repeat("long ", i)))
		appended(t, s, []store.Entry{entry(id, "a replay"), {Leaf: []byte{byte(i)}}})
	}
	return last
}

// bulk returns n entries about a subject of their own.
func bulk(n int) []store.Entry {
	list := make([]store.Entry, n)
	for i := range list {
		list[i] = entry(key("bulk"), fmt.Sprint("bulk ", i))
	}
	return list
}

func finds(t *testing.T, s semel.Store, subject store.Subject, from uint64, limit int, want []uint64) {
	t.Helper()
	got, err := evidenceOf(s).FindEvidence(t.Context(), subject, from, limit)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("FindEvidence from %d on, at most %d, gives %v, error %v, want %v", from, limit, got, err, want)
	}
}
