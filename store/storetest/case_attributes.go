package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

const rulePages = "A page of Search or Due ends early where its results are large, at some 16 MiB, or where it takes long. Its Next goes on behind what was looked at."

var attributeCases = []testCase{
	{"a search for attributes finds what looking at each record finds, while they come, change and go", ruleSearch + " " + ruleListedOnce, searchAttributes},
	{"pages of large records end early, and go on", rulePages, func(t *testing.T, env Env) {
		records, size := largeRecords(t)
		var all []semel.Record
		for i, rec := range fill(t, env.Store, "large", records) {
			was := rec
			all = append(all, put(t, env.Store, next(rec, func(r *semel.Record) {
				r.Result.Data, r.Attributes = make([]byte, size), store.Attributes{"size": "large", "order": strconv.Itoa(i)}
			}), was.Revision))
		}
		slices.Reverse(all)
		pagesOf(t, env, t.Context(), all, store.Attributes{"size": "large"}, func(bytes int) bool { return bytes <= 18<<20 }, 2)
		sameSet(t, search(t, env.Store, store.Query{Attributes: store.Attributes{"order": "1"}, Limit: 10}, nil), all[records-2:records-1])
	}},
	{"pages that have no time end early, and go on", rulePages, func(t *testing.T, env Env) {
		all := fill(t, env.Store, "k", 30)
		slices.Reverse(all)
		pagesOf(t, env, paging.With(t.Context(), paging.Bytes, 0), all, nil, func(int) bool { return true }, 1)
	}},
}

// largeRecords is how many records together exceed a page, and the size of their results. For a run
// by hand there may be more, of 200 KB: SEMEL_LARGE_RECORDS=6000 go test -run Contract -v ./store/...
func largeRecords(t *testing.T) (records, size int) {
	text := os.Getenv("SEMEL_LARGE_RECORDS")
	if text == "" {
		return 24, 1 << 20
	}
	records, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return records, 200_000
}

// pagesOf reads all records in at least so many pages, and calls fits with the bytes of each.
// They all have the shared attributes, if there are any.
func pagesOf(t *testing.T, env Env, ctx context.Context, all []semel.Record, shared store.Attributes, fits func(bytes int) bool, least int) {
	t.Helper()
	check := func(what string, read func(after string) (recs []semel.Record, next string, err error)) {
		t.Helper()
		var got []semel.Record
		pages, began := 0, time.Now()
		for after := ""; pages == 0 || after != ""; pages++ {
			recs, next, err := read(after)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			bytes := 0
			for i := range recs {
				bytes += len(recs[i].Result.Data)
			}
			if !fits(bytes) {
				t.Errorf("a page of %s has %d records with results of %d bytes", what, len(recs), bytes)
			}
			if next != "" && next == after || pages > maxPages {
				t.Fatalf("%s doesn't get further", what)
			}
			got, after = append(got, recs...), next
		}
		if pages < least {
			t.Errorf("%s took %d pages, want at least %d", what, pages, least)
		}
		t.Logf("%s: %d records in %d pages, %v", what, len(got), pages, time.Since(began))
		sameSet(t, got, all)
	}
	queries := []store.Query{{}, {Operation: "operation"}, {State: semel.Processing}}
	if shared != nil {
		queries = append(queries, store.Query{Attributes: shared})
	}
	for _, q := range queries {
		q.Limit = store.MaxSearchLimit
		check(fmt.Sprintf("the search for %q %v %v", q.Operation, q.State, q.Attributes), func(after string) ([]semel.Record, string, error) {
			q.Cursor = after
			page, err := env.Store.Extras().Search.Search(ctx, q)
			return page.Records, page.Next, err
		})
	}
	if d := env.Store.Extras().Due; d != nil {
		check("what is due", func(after string) ([]semel.Record, string, error) {
			page, err := d.Due(ctx, store.DueQuery{Until: epoch.Add(time.Hour), After: after, Limit: store.MaxSearchLimit})
			return page.Records, page.Next, err
		})
	}
}

// searchAttributes changes records at random, which have attributes of their own and shared
// ones, and compares searches with [store.Query.Matches] on all of them.
func searchAttributes(t *testing.T, env Env) {
	const steps, most, seed = 400, 40, 7
	rng := rand.New(rand.NewPCG(seed, seed))
	stored := map[string]semel.Record{}
	attributes := func() store.Attributes {
		all := store.Attributes{}
		for _, name := range []string{"order", "customer", "cart"} {
			switch rng.IntN(4) {
			case 0:
			case 1:
				all[name] = strconv.Itoa(rng.IntN(1 << 30))
			default:
				all[name] = strconv.Itoa(rng.IntN(4))
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all
	}
	for step := range steps {
		name := fmt.Sprint("k", rng.IntN(most))
		rec, there := stored[name]
		switch {
		case !there:
			rec = claimed(semel.ID{Tenant: strconv.Itoa(rng.IntN(2)), Operation: "operation", Key: name}, 1)
			rec.CreatedAt, rec.Attributes = epoch.Add(time.Duration(step)*time.Second), attributes()
			stored[name] = put(t, env.Store, rec, store.Revision{})
		case rng.IntN(4) == 0 && canPurge.has(env.Store):
			purge(t, env.Store, 1, rec.Ref())
			delete(stored, name)
		default:
			changed := next(rec, func(r *semel.Record) { r.Attempt++ })
			if rng.IntN(2) == 0 {
				changed.Attributes = attributes()
			}
			_, applied, err := env.Store.Apply(t.Context(), store.Write{Record: &changed, Expect: rec.Revision, Was: rec.Attributes})
			if err != nil || !applied {
				t.Fatalf("step %d: applied %v, %v", step, applied, err)
			}
			stored[name] = changed
		}
		if step == steps/2 {
			env.reopen()
		}
		if step%20 == 0 {
			findAll(t, env, stored, rng)
		}
	}
	findAll(t, env, stored, rng)
}

// findAll compares searches for the attributes of some record, and for shared ones, with all
// stored records.
func findAll(t *testing.T, env Env, stored map[string]semel.Record, rng *rand.Rand) {
	t.Helper()
	one := func() store.Attributes { // of a record, whole, or a shared one
		for _, rec := range stored { // in random order; which one doesn't matter
			if len(rec.Attributes) > 0 && rng.IntN(2) == 0 {
				return rec.Attributes
			}
		}
		return store.Attributes{[]string{"order", "customer", "cart"}[rng.IntN(3)]: strconv.Itoa(rng.IntN(5))}
	}
	for _, q := range []store.Query{
		{Attributes: one()},
		{Attributes: store.Attributes{"order": strconv.Itoa(rng.IntN(5))}, Tenant: new("1")},
		{Attributes: store.Attributes{"customer": "1"}, AttributePrefixes: store.Attributes{"order": "1"}},
		{Any: [][]store.Query{{{Attributes: one()}, {Attributes: one()}, {Attributes: store.Attributes{"cart": "2"}, Tenant: new("0")}}}},
		{Any: [][]store.Query{{{Attributes: one()}, {Key: "k1"}}}, Not: []store.Query{{Attributes: store.Attributes{"order": "3"}}}},
	} {
		var want []semel.Record
		for _, rec := range stored {
			if q.Matches(&rec) {
				want = append(want, rec)
			}
		}
		for _, q.Limit = range []int{1, 3, 100} {
			got := search(t, env.Store, q, nil)
			if len(got) != len(want) {
				t.Errorf("the search %+v finds %d records, want %d", q, len(got), len(want))
			}
			sameSet(t, got, want)
		}
	}
}
