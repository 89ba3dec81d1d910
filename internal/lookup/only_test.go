package lookup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/verdict"
	"github.com/semelhq/semel/store"
)

// pages lists a call on each page, the newest first.
type pages []*store.Record

func (p pages) Judged(_ context.Context, q store.Query) (store.Page, []*verdict.Verdict, error) {
	rec := p[len(q.Cursor)]
	next := q.Cursor + "+"
	if len(next) == len(p) {
		next = ""
	}
	v := verdict.Of(&verdict.Facts{Record: rec, Now: epoch.Add(1), Epoch: restore(rec)})
	return store.Page{Records: []store.Record{*rec}, Next: next}, []*verdict.Verdict{&v}, nil
}

// restore is when the store of the tests was restored; that of the tenant new never was.
func restore(rec *store.Record) store.Instant {
	if rec.ID.Tenant == "new" {
		return 0
	}
	return epoch.Add(5e6)
}

func TestOnly(t *testing.T) {
	n := 9
	made := func(key string, change func(rec *store.Record)) *store.Record {
		n--
		rec := call(store.ID{Tenant: "acme", Operation: "pay", Key: key}, n)
		rec.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte(key))
		change(rec)
		return rec
	}
	same := func(rec *store.Record) { rec.Fingerprint = store.FingerprintOf(store.SchemeRaw, []byte("42 EUR")) }
	all := pages{
		made("plain", func(rec *store.Record) { rec.Holder = "node-2-17/AEP5" }),
		made("again", func(rec *store.Record) { same(rec); rec.Holder = "node-25" }),
		made("refused", func(rec *store.Record) {
			same(rec)
			rec.State, rec.Disposition = store.Failed, store.DispositionRejected
		}),
		made("held", func(rec *store.Record) { rec.State, rec.Disposition, rec.Held = store.Processing, 0, true }),
		made("first", same),
		made("other", func(rec *store.Record) { same(rec); rec.ID.Operation = "mail" }),
		made("parked", func(rec *store.Record) { rec.Outbox = []store.Message{{Name: "m", State: store.MessageParked}} }),
		made("taken over", func(rec *store.Record) {
			rec.Attempt, rec.Earlier = 2, []store.AttemptRecord{{Number: 1, Holder: "node-2", Disposition: store.DispositionAbandoned}}
		}),
		made("third", same),
	}
	list := func(o *Only) (keys []string, err error) {
		_, err = EachJudged(t.Context(), o, store.Query{}, 0, nil, func(rec *store.Record, v *verdict.Verdict) error {
			if v == nil {
				t.Errorf("%s has no verdict", rec.ID.Key)
			}
			keys = append(keys, rec.ID.Key)
			return nil
		})
		return keys, err
	}
	for want, o := range map[string]*Only{
		"held parked":                  {List: Stuck},
		"again first taken over third": {List: Repeated},
		"plain again refused held":     {List: Restored},
		"plain taken over":             {Node: "node-2"},
		"taken over":                   {Node: "node-2", List: Repeated},
		"":                             {Node: "node-20"},
	} {
		o.Lister = all
		if got, err := list(o); err != nil || strings.Join(got, " ") != want {
			t.Errorf("only %s of node %q: %q, %v", o.List, o.Node, got, err)
		}
	}
	fresh := made("fresh", func(rec *store.Record) { rec.ID.Tenant = "new" })
	if _, err := list(&Only{Lister: pages{fresh}, List: Restored}); !errors.Is(err, errNeverRestored) {
		t.Error("a store that was never restored has calls from after that", err)
	}
	if got, err := list(&Only{Lister: Judging(unjudgedPages{fresh})}); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
}

type unjudgedPages []*store.Record

func (p unjudgedPages) Search(context.Context, store.Query) (store.Page, error) {
	return store.Page{Records: []store.Record{*p[0]}}, nil
}
