package redisstore

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/redistest"
	"github.com/semelhq/semel/store"
)

// attributed is a record with an attribute of its own, and one that others have.
func attributed(i int) semel.Record {
	rec := small(fmt.Sprint("k", i))
	rec.Attributes = store.Attributes{"order": fmt.Sprint(i), "customer": fmt.Sprint(i % 10)}
	return rec
}

// inIndex counts the entries of attributes.
func inIndex(srv *redistest.Server, s *Store) (n int) {
	for i := range s.keys.shards {
		n += number(srv.Do("ZCARD", s.keys.shards[i].attributes))
	}
	return n
}

var getCalls = regexp.MustCompile(`cmdstat_get:calls=(\d+)`)

// found searches, and returns how many records the server was asked for.
func found(t *testing.T, srv *redistest.Server, s *Store, q store.Query, want int) (reads int) {
	t.Helper()
	calls := func() int {
		if m := getCalls.FindStringSubmatch(srv.Do("INFO", "commandstats")); m != nil {
			return number(m[1])
		}
		return 0
	}
	before, n := calls(), 0
	for q.Limit = 100; ; {
		page, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Records)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if n != want {
		t.Errorf("%+v finds %d records, want %d", q, n, want)
	}
	return calls() - before
}

// Nodes of the version before write, and purge, records without entries. Searches look at each
// record until Migrate has made them; then they look at those with the attribute.
func TestAnIndexThatIsMadeLater(t *testing.T) {
	srv := redistest.Start(t, "")
	srv.Do("SET", "semel:format", firstFormat)
	s := mustOpen(t, srv.URL(), nil)
	const n = 300
	for i := range n {
		mustApply(t, s, attributed(i), store.Revision{})
	}
	for i := range s.keys.shards { // as that version leaves them
		srv.Do("DEL", s.keys.shards[i].attributes)
	}
	one, shared := store.Query{Attributes: store.Attributes{"order": "7"}}, store.Query{Attributes: store.Attributes{"customer": "3"}}
	if reads := found(t, srv, s, one, 1); reads < n {
		t.Errorf("a search without an index reads %d of %d records", reads, n)
	}
	rec := attributed(n)
	mustApply(t, s, rec, store.Revision{})
	if _, key := s.keys.find(rec.ID); srv.Do("DEL", key) != "1" {
		t.Fatal("no record to remove behind the store")
	}
	for range 2 {
		made, err := Migrate(t.Context(), srv.URL(), nil)
		if err != nil || !made && srv.Do("GET", "semel:format") != formatVersion {
			t.Fatal(made, err)
		}
	}
	if got := inIndex(srv, s); got != 2*n {
		t.Errorf("there are %d entries for %d records of 2 attributes", got, n)
	}
	if reads := found(t, srv, s, one, 1); reads > 1 {
		t.Errorf("a search by the index reads %d records", reads)
	}
	if reads := found(t, srv, s, shared, n/10); reads > n/10 {
		t.Errorf("a search by the index reads %d records", reads)
	}
}

// What somebody else has removed, or stored anew, is listed as it is, and its entries go.
func TestEntriesOfRecordsThatAreGone(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	rec := attributed(1)
	mustApply(t, s, rec, store.Revision{})
	q := store.Query{Attributes: rec.Attributes}
	sh, key := s.keys.find(rec.ID)
	srv.Do("DEL", key)
	srv.Do("ZREM", sh.created, digestOf(key))
	rec.CreatedAt, rec.Revision = rec.CreatedAt.Add(1e9), newRevision()
	mustApply(t, s, rec, store.Revision{})
	found(t, srv, s, q, 1)
	if got := inIndex(srv, s); got != 2+1 { // the search was by one of the two
		t.Errorf("%d entries are left", got)
	}
	if n, err := s.Purge(t.Context(), []store.Ref{rec.Ref()}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	found(t, srv, s, store.Query{Attributes: store.Attributes{"order": "1"}}, 0)
	found(t, srv, s, store.Query{Attributes: store.Attributes{"customer": "1"}}, 0)
	if got := inIndex(srv, s); got != 0 {
		t.Errorf("%d entries are left of what was purged", got)
	}
}

// A write without attributes takes to the server what it took before there was an index, and one
// with attributes takes their terms only where they change; each is a part of the same run.
func TestWhatAttributesCost(t *testing.T) {
	s := mustOpen(t, redistest.Start(t, "").URL(), nil)
	size := func(w store.Write) (keys, args, bytes int) {
		made, err := s.newWrite(&w)
		if err != nil {
			t.Fatal(err)
		}
		cmd := writeCommand(s.link.client().B(), []*write{made}, "token", false)
		words := cmd.Commands()[2:]
		for _, text := range words {
			bytes += len(text)
		}
		keys = number(words[0])
		return keys, len(words) - 1 - keys, bytes - len(made.value)
	}
	plain, rec := small("k"), attributed(1)
	keys, args, bytes := size(store.Write{Record: &plain})
	if keys != 3 || args != 5 {
		t.Errorf("a claim without attributes has %d keys and %d arguments", keys, args)
	}
	_, _, with := size(store.Write{Record: &rec})
	if more := with - bytes; more > 2*16+64 {
		t.Errorf("two attributes take %d bytes beside the record", more)
	}
	if keys, args, same := size(store.Write{Record: &rec, Expect: rec.Revision, Was: rec.Attributes}); keys != 2 || args != 5 {
		t.Errorf("an update with the same attributes has %d keys, %d arguments, %d bytes", keys, args, same)
	}
}

// Entries change with the attributes of their record, and go with it.
func TestEntriesFollowARecord(t *testing.T) {
	srv := redistest.Start(t, "")
	s := mustOpen(t, srv.URL(), nil)
	rec := attributed(1)
	mustApply(t, s, rec, store.Revision{})
	change := func(attributes store.Attributes, entries int) {
		t.Helper()
		next := rec
		next.Revision, next.Attributes = newRevision(), attributes
		if _, ok, err := s.Apply(t.Context(), store.Write{Record: &next, Expect: rec.Revision, Was: rec.Attributes}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if rec = next; inIndex(srv, s) != entries {
			t.Errorf("the index has %d entries, want %d", inIndex(srv, s), entries)
		}
	}
	change(store.Attributes{"order": "1", "customer": "2", "cart": "3"}, 3)
	change(store.Attributes{"order": "other"}, 1)
	change(nil, 0)
	change(store.Attributes{"order": "again", "cart": "2"}, 2)
	if n, err := s.Purge(t.Context(), []store.Ref{rec.Ref()}); n != 1 || err != nil || inIndex(srv, s) != 0 {
		t.Errorf("after the purge the index has %d entries: %d, %v", inIndex(srv, s), n, err)
	}
}
