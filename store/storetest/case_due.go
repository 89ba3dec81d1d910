package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

const (
	ruleDue   = "Due returns a page of the records whose NextAt is set and not after q.Until, the earliest first, to the second. A record that is due by the same NextAt while all pages are read is in exactly one of them."
	rulePurge = "Purge deletes each record whose stored revision equals the given one and returns how many it deleted. A record that was changed since is left alone. Purging again is harmless."
	ruleWatch = "Watch returns a channel that receives at least once after the record changes, from the moment Watch has returned. It is a hint: it may also receive without cause."
)

// duePage reads one page.
func duePage(t *testing.T, s store.DueIndex, q store.DueQuery) store.DuePage {
	t.Helper()
	page, err := s.Due(t.Context(), q)
	if err != nil {
		t.Fatalf("Due: %v", err)
	}
	if len(page.Records) > q.Limit {
		t.Fatalf("Due returned %d records, more than the limit of %d", len(page.Records), q.Limit)
	}
	if len(page.Unreadable) > 0 {
		t.Fatalf("Due finds records that can't be read: %v", page.Unreadable)
	}
	return page
}

// due reads the first limit due records, in as many pages as it takes.
func due(t *testing.T, s store.DueIndex, until store.Instant, limit int) (recs []semel.Record) {
	t.Helper()
	after := ""
	for len(recs) < limit {
		page := duePage(t, s, store.DueQuery{Until: until, After: after, Limit: limit - len(recs)})
		recs = append(recs, page.Records...)
		if after = page.Next; after == "" {
			break
		}
	}
	return recs
}

// sameSet compares records without regard to their order.
func sameSet(t *testing.T, got, want []semel.Record) {
	t.Helper()
	byID := map[semel.ID]semel.Record{}
	for _, rec := range got {
		if _, twice := byID[rec.ID]; twice {
			t.Fatalf("the record of %q is listed twice", rec.ID.Key)
		}
		byID[rec.ID] = rec
	}
	for _, rec := range want {
		found, ok := byID[rec.ID]
		if !ok {
			t.Fatalf("the record of %q is missing; %d are listed, want %d", rec.ID.Key, len(got), len(want))
		}
		same(t, "a listed record", &found, rec)
		delete(byID, rec.ID)
	}
	for id, rec := range byID {
		t.Fatalf("the record of %q is listed, with NextAt %v, and should not be", id.Key, rec.NextAt)
	}
}

// at returns a record that is due at a time.
func at(id semel.ID, nextAt store.Instant) semel.Record {
	return next(claimed(id, 1), func(r *semel.Record) { r.NextAt = nextAt })
}

var dueCases = []testCase{
	{"Due returns exactly the records whose time has come, and returns them whole", ruleDue + " " + ruleExact, func(t *testing.T, env Env) {
		s := env.Store.Extras().Due
		sameSet(t, due(t, s, epoch, 10), nil)
		var want []semel.Record
		for i, c := range []struct {
			at   store.Instant
			want bool
		}{
			{0, false},
			{epoch.Add(-1000 * time.Hour), true},
			{epoch.Add(-time.Nanosecond), true},
			{epoch, true},
			{epoch.Add(time.Nanosecond), false},
			{epoch.Add(time.Microsecond), false},
			{epoch.Add(time.Second), false},
			{epoch.Add(1000 * time.Hour), false},
		} {
			id := semel.ID{Tenant: "é", Operation: "o", Key: fmt.Sprint("k\n", i)}
			rec := put(t, env.Store, next(at(id, c.at), rich), store.Revision{})
			if c.want {
				want = append(want, rec)
			}
		}
		sameSet(t, due(t, s, epoch, 100), want)
		sameSet(t, due(t, s, epoch, 100), want) // asking changes nothing
		sameSet(t, due(t, s, epoch.Add(-2000*time.Hour), 100), nil)
	}},
	{"Due follows every change of a record", ruleDue, func(t *testing.T, env Env) {
		s := env.Store.Extras().Due
		rec := put(t, env.Store, at(key("k"), epoch.Add(time.Hour)), store.Revision{})
		move := func(to store.Instant) {
			t.Helper()
			rec = put(t, env.Store, next(rec, func(r *semel.Record) { r.NextAt = to }), rec.Revision)
		}
		is := func(want ...semel.Record) {
			t.Helper()
			sameSet(t, due(t, s, epoch, 10), want)
		}
		is()
		move(epoch.Add(-time.Hour)) // earlier
		is(rec)
		move(epoch.Add(-time.Hour)) // the same time, another version
		is(rec)
		move(epoch.Add(-30 * time.Minute)) // later, still due
		is(rec)
		move(epoch.Add(time.Minute)) // later
		is()
		move(epoch.Add(-time.Hour)) // back to where it was before
		is(rec)
		move(0) // never
		is()
		move(epoch)
		is(rec)
		refused(t, env.Store, store.Write{Record: new(at(key("k"), epoch.Add(time.Hour)))}, rec)
		is(rec)
	}},
	{"Due gives all that is due in pages, the earliest first", ruleDue, func(t *testing.T, env Env) {
		s := env.Store.Extras().Due
		const records = 60
		r := rand.New(rand.NewPCG(3, 4))
		var want []semel.Record
		for i := range records {
			// Many have the same instant, so that pages end in between.
			want = append(want, put(t, env.Store, at(key(fmt.Sprint(i)), epoch.Add(-time.Duration(r.IntN(4))*time.Second)), store.Revision{}))
		}
		for _, limit := range []int{1, 7, records - 1, records, records + 1} {
			var got []semel.Record
			pages := 0
			for after := ""; ; pages++ {
				if pages > 4*records {
					t.Fatalf("%d pages of %d have not come to an end", pages, limit)
				}
				page := duePage(t, s, store.DueQuery{Until: epoch, After: after, Limit: limit})
				got = append(got, page.Records...)
				if after = page.Next; after == "" {
					break
				}
			}
			sameSet(t, got, want)
			for i := 1; i < len(got); i++ {
				if early, late := got[i-1].NextAt, got[i].NextAt; int64(early)/int64(time.Second) > int64(late)/int64(time.Second) {
					t.Fatalf("with pages of %d, a record due at %v comes before one due at %v", limit, early, late)
				}
			}
		}
	}},
	{"Due goes on after a page although what was in it has moved", ruleDue, func(t *testing.T, env Env) {
		s := env.Store.Extras().Due
		var want []semel.Record
		for i := range 20 {
			rec := put(t, env.Store, at(key(fmt.Sprint(i)), epoch.Add(time.Duration(i-20)*time.Second)), store.Revision{})
			if i >= 10 {
				want = append(want, rec)
			}
		}
		first := duePage(t, s, store.DueQuery{Until: epoch, Limit: 10})
		for len(first.Records) < 10 && first.Next != "" {
			more := duePage(t, s, store.DueQuery{Until: epoch, After: first.Next, Limit: 10 - len(first.Records)})
			first.Records, first.Next = append(first.Records, more.Records...), more.Next
		}
		for i, rec := range first.Records {
			to := epoch.Add(time.Hour)
			if i%2 == 0 {
				to = 0
			}
			put(t, env.Store, next(rec, func(r *semel.Record) { r.NextAt = to }), rec.Revision)
		}
		var got []semel.Record
		for after := first.Next; after != ""; {
			page := duePage(t, s, store.DueQuery{Until: epoch, After: after, Limit: 3})
			got, after = append(got, page.Records...), page.Next
		}
		sameSet(t, got, want)
	}},
	{"Due refuses a place to continue from that it did not make", ruleDue + " An After that the store did not make is CodeInvalidCall.", func(t *testing.T, env Env) {
		_, err := env.Store.Extras().Due.Due(t.Context(), store.DueQuery{Until: epoch, After: "somewhere", Limit: 10})
		if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Fatalf("the error is %v, want %s", err, semel.CodeInvalidCall)
		}
	}},
}
