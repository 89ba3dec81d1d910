package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

const (
	ruleSearch     = "Search lists the records that the query selects, the newest first, to the microsecond. A page has at most Limit of them; it may have fewer, even none, while Next says that there is more to look at."
	ruleListedOnce = "A record that exists during the whole of a search through all pages is listed exactly once, and so is one that changes meanwhile."
	ruleCursor     = "Cursor continues after an earlier page: its Next, with the same Query. A cursor that the store did not make is CodeInvalidCall."
)

// maxPages bounds the pages of a search through a few records, however short they are.
const maxPages = 10_000

// search reads all pages. Between two pages it calls between, unless that is nil.
func search(t *testing.T, s semel.Store, q store.Query, between func()) []semel.Record {
	t.Helper()
	var all []semel.Record
	for range maxPages {
		page, err := s.Extras().Search.Search(t.Context(), q)
		if err != nil {
			t.Fatalf("Search: %v", err)
		}
		if len(page.Records) > q.Limit {
			t.Fatalf("a page has %d records, more than its limit of %d", len(page.Records), q.Limit)
		}
		all = append(all, page.Records...)
		if page.Next == "" {
			return all
		}
		if page.Next == q.Cursor {
			t.Fatalf("the page after %q has the same cursor: the search would not end", q.Cursor)
		}
		q.Cursor = page.Next
		if between != nil {
			between()
		}
	}
	t.Fatalf("after %d pages the search has not ended", maxPages)
	return nil
}

// fill stores n records, each created a second after the one before.
func fill(t *testing.T, s semel.Store, prefix string, n int) []semel.Record {
	t.Helper()
	recs := make([]semel.Record, n)
	for i := range recs {
		recs[i] = put(t, s, next(claimed(key(fmt.Sprint(prefix, i)), 1), func(r *semel.Record) {
			r.CreatedAt = epoch.Add(time.Duration(i) * time.Second)
		}), store.Revision{})
	}
	return recs
}

// sameList compares records and their order.
func sameList(t *testing.T, got, want []semel.Record) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i].ID != want[i].ID {
			t.Fatalf("place %d of the list has the record of %q, want that of %q", i, got[i].ID.Key, want[i].ID.Key)
		}
		same(t, "a listed record", &got[i], want[i])
	}
	if len(got) != len(want) {
		t.Fatalf("%d records are listed, want %d", len(got), len(want))
	}
}

var searchCases = []testCase{
	{"Search lists whole records, the newest first", ruleSearch + " " + ruleExact, func(t *testing.T, env Env) {
		sameList(t, search(t, env.Store, store.Query{Limit: 10}, nil), nil)
		recs := fill(t, env.Store, "k", 20)
		recs[7] = put(t, env.Store, next(recs[7], rich), recs[7].Revision)
		slices.Reverse(recs)
		sameList(t, search(t, env.Store, store.Query{Limit: 100}, nil), recs)
		sameList(t, search(t, env.Store, store.Query{Limit: 100}, nil), recs) // asking changes nothing
	}},
	{"every member of a query selects, and all must apply",
		ruleSearch + " Tenant selects one tenant, which may be the empty one; nil all.", searchFilters},
	{"pages of any size list every record once, in one order", ruleSearch + " " + ruleListedOnce, func(t *testing.T, env Env) {
		recs := fill(t, env.Store, "k", 120)
		slices.Reverse(recs)
		for _, limit := range []int{1, 7, 60, 119, 120, 121, store.MaxSearchLimit} {
			sameList(t, search(t, env.Store, store.Query{Limit: limit}, nil), recs)
		}
		odd := slices.DeleteFunc(slices.Clone(recs), func(r semel.Record) bool { return !strings.HasSuffix(r.ID.Key, "7") })
		put(t, env.Store, claimed(semel.ID{Operation: "other", Key: "k"}, 1), store.Revision{})
		q := store.Query{Operation: "operation", After: odd[len(odd)-1].CreatedAt, Limit: 5}
		sameList(t, search(t, env.Store, q, nil), recs[:len(recs)-7])
	}},
	{"a search lists what exists throughout exactly once, while records come, change and go", ruleListedOnce, searchWhileChanging},
	{"Search follows every change, and lists expired records until they are purged",
		"Expired records that were not purged yet are listed too. " + ruleSearch, func(t *testing.T, env Env) {
			is := func(q store.Query, want ...semel.Record) {
				t.Helper()
				q.Limit = 10
				sameList(t, search(t, env.Store, q, nil), want)
			}
			old := put(t, env.Store, claimed(key("old"), 1), store.Revision{})
			rec := put(t, env.Store, next(claimed(key("k"), 1), func(r *semel.Record) { r.CreatedAt = epoch.Add(time.Microsecond) }), store.Revision{})
			is(store.Query{State: semel.Processing}, rec, old)
			now := now(t, env.Store)
			rec = put(t, env.Store, next(rec, func(r *semel.Record) {
				r.State, r.Disposition, r.EndedAt = semel.Completed, semel.DispositionCompleted, now
				r.ExpiresAt, r.NextAt = now.Add(time.Second), now.Add(time.Second)
			}), rec.Revision)
			is(store.Query{State: semel.Processing}, old)
			is(store.Query{State: semel.Completed}, rec)
			env.Advance(time.Minute)
			is(store.Query{}, rec, old)
			if canPurge.has(env.Store) {
				purge(t, env.Store, 1, ref(rec))
				is(store.Query{}, old)
				rec = put(t, env.Store, next(rec, func(*semel.Record) {}), store.Revision{})
				is(store.Query{}, rec, old)
			}
		}},
	{"Search lists the same when the store was opened again", ruleSearch + " " + ruleDurable, func(t *testing.T, env Env) {
		recs := fill(t, env.Store, "k", 30)
		recs[3] = put(t, env.Store, next(recs[3], func(r *semel.Record) { r.CreatedAt = epoch.Add(time.Hour) }), recs[3].Revision)
		before := search(t, env.Store, store.Query{Limit: 7}, nil)
		sameSet(t, before, recs)
		env.reopen()
		s := env.Store
		sameList(t, search(t, s, store.Query{Limit: 7}, nil), before)
		young := put(t, s, next(claimed(key("young"), 1), func(r *semel.Record) { r.CreatedAt = epoch.Add(2 * time.Hour) }), store.Revision{})
		sameList(t, search(t, s, store.Query{Limit: 7}, nil), append([]semel.Record{young}, before...))
	}},
	{"a cursor that the store did not make is refused", ruleCursor, func(t *testing.T, env Env) {
		fill(t, env.Store, "k", 3)
		s := env.Store.Extras().Search
		for _, cursor := range []string{" ", "\x00", "?", "-1", "x", "é", "0x10", "1e3", "%", "' OR 1=1 --", strings.Repeat("9", 100), strings.Repeat("A", 5000)} {
			page, err := s.Search(t.Context(), store.Query{Cursor: cursor, Limit: 1})
			if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
				t.Errorf("the cursor %.20q gives %d records and %v, want code %s", cursor, len(page.Records), err, semel.CodeInvalidCall)
			}
		}
	}},
}

// searchWhileChanging reads pages while other records come and go and the rest change, some of
// them like an expired call that is claimed again, which makes it the newest. The changes
// between two pages are the same in every run; the goroutines' aren't.
func searchWhileChanging(t *testing.T, env Env) {
	const stays, limit = 90, 4
	kept := fill(t, env.Store, "stays", stays)
	gone := fill(t, env.Store, "goes", stays)
	young := epoch.Add(24 * time.Hour)
	n := 0
	change := func() {
		rec := &kept[(n*37)%stays]
		*rec = put(t, env.Store, next(*rec, func(r *semel.Record) {
			r.UpdatedAt = young.Add(time.Duration(n) * time.Second)
			if n%2 == 0 {
				r.CreatedAt, r.Fence, r.Origin = r.UpdatedAt, r.Fence+1, r.Fence+1
			}
		}), rec.Revision)
		put(t, env.Store, next(claimed(key(fmt.Sprint("comes", n)), 1), func(r *semel.Record) {
			r.CreatedAt = young.Add(time.Duration(n) * time.Second)
		}), store.Revision{})
		if canPurge.has(env.Store) && n < len(gone) {
			purge(t, env.Store, 1, ref(gone[(n*53)%len(gone)]))
		}
		n++
	}
	for round := range 3 {
		stop := keepBusy(t, env.Store, fmt.Sprint("busy", round))
		got := search(t, env.Store, store.Query{Limit: limit}, change)
		stop()
		listed := map[semel.ID]int{}
		for _, rec := range got {
			if listed[rec.ID]++; listed[rec.ID] > 1 {
				t.Errorf("the record of %q is listed %d times", rec.ID.Key, listed[rec.ID])
			}
		}
		for _, rec := range kept {
			if listed[rec.ID] != 1 {
				t.Errorf("the record of %q exists throughout and is listed %d times", rec.ID.Key, listed[rec.ID])
			}
		}
		if t.Failed() {
			return
		}
	}
	if n < stays/limit {
		t.Fatalf("records changed between %d pages only, so nothing is proved", n)
	}
}

// keepBusy changes a few records of its own, as often as it can, until you stop it.
func keepBusy(t *testing.T, st semel.Store, name string) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rec := claimed(key(fmt.Sprint(name, w)), 1)
			var expect store.Revision
			for {
				select {
				case <-over:
					return
				default:
				}
				_, applied, err := st.Apply(t.Context(), store.Write{Record: new(rec), Expect: expect})
				if !applied || err != nil {
					t.Errorf("Apply: applied %v, %v", applied, err)
					return
				}
				expect = rec.Revision
				rec = next(rec, func(r *semel.Record) { r.Attempt++ })
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
	}
}
