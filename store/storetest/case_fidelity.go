package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

const (
	ruleExact = "What was written is returned as it was written: a store decides nothing and changes nothing."
	ruleID    = "At most one record exists for an identity, and no choice of members can imitate another."
	ruleAlias = "The caller may not change slices of w after the call, nor of the result. So a store may keep them, but it must not write to them either, and what it returned stays as it was."
)

var fieldCases = []testCase{
	{"every field comes back exactly as it was written", ruleExact, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-FIELD.1")
		rapid.Check(t, func(rt *rapid.T) {
			rec := next(drawRecord.Draw(rt, "record"), func(*semel.Record) {})
			// Identities may repeat between rounds.
			old, err := env.Store.Get(t.Context(), rec.ID)
			if err != nil && !errors.Is(err, semel.ErrNotFound) {
				rt.Fatalf("Get: %v", err)
			}
			cur, applied, err := env.Store.Apply(t.Context(), store.Write{Record: new(rec), Expect: revisionOf(old)})
			if err != nil || !applied {
				rt.Fatalf("Apply: applied %v, error %v", applied, err)
			}
			if d := difference(cur, rec); d != "" {
				rt.Fatalf("Apply returned a record that differs from what was written:\n%s", d)
			}
			got, err := env.Store.Get(t.Context(), rec.ID)
			if err != nil {
				rt.Fatalf("Get: %v", err)
			}
			if d := difference(got, rec); d != "" {
				rt.Fatalf("Get returned a record that differs from what was written:\n%s", d)
			}
			// A refused write returns the stored record, too.
			cur, applied, err = env.Store.Apply(t.Context(), store.Write{Record: new(next(rec, func(*semel.Record) {})), Expect: fresh()})
			if err != nil || applied {
				rt.Fatalf("Apply over a foreign revision: applied %v, error %v", applied, err)
			}
			if d := difference(cur, rec); d != "" {
				rt.Fatalf("a refused Apply returned a record that differs from what was written:\n%s", d)
			}
		})
	}},
}

var fidelityCases = []testCase{
	{"no result and an empty result are told apart", "Result.IsZero: Data == nil says that there is no result.", func(t *testing.T, env Env) {
		for i, res := range []semel.Result{{}, {Data: []byte{}}, {Tombstone: true}, {Data: []byte{}, Tombstone: true}, {Data: []byte{0}}} {
			rec := put(t, env.Store, next(claimed(key(fmt.Sprint(i)), 1), func(r *semel.Record) {
				r.Result = res
				r.Effects = []store.EffectRecord{{Name: "e", State: store.EffectConfirmed, Result: res}}
			}), store.Revision{})
			stored(t, env.Store, rec.ID, rec)
		}
	}},
	{"a large result is kept whole", ruleExact, func(t *testing.T, env Env) {
		clause.Proves(t, "IDS-IX.1")
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		rec := put(t, env.Store, next(claimed(key("k"), 1), func(r *semel.Record) { r.Result.Data = big }), store.Revision{})
		stored(t, env.Store, rec.ID, rec)
	}},
	{"a full ledger and a full history are kept whole", ruleExact, func(t *testing.T, env Env) {
		rec := next(claimed(key("k"), 1), func(r *semel.Record) {
			for i := range 1000 {
				r.Effects = append(r.Effects, store.EffectRecord{
					Name: fmt.Sprintf("effect/%d", i), Key: "key", State: store.EffectConfirmed, Fence: int64(i),
					Result: semel.Result{Data: bytes.Repeat([]byte("x"), 100)}, StartedAt: epoch, SettledAt: epoch.Add(1),
				})
			}
			for i := range store.MaxEarlier {
				r.Earlier = append(r.Earlier, store.AttemptRecord{
					Number: i + 1, Fence: int64(i), Holder: "h", Disposition: semel.DispositionFailed,
					Failure: &store.Failure{Code: "c", Message: "m"}, StartedAt: epoch, EndedAt: epoch.Add(time.Nanosecond),
				})
			}
		})
		put(t, env.Store, rec, store.Revision{})
		stored(t, env.Store, rec.ID, rec)
	}},
	{"identities that differ in one member, in case, or only in where members end never share a record", ruleID, func(t *testing.T, env Env) {
		clause.Proves(t, "CORE-ID.1", "IDS-XV.1")
		long := strings.Repeat("k", maxKey-1)
		ids := []semel.ID{
			{Tenant: "t", Principal: "p", Operation: "o", Key: "k"},
			{Tenant: "T", Principal: "p", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "P", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "p", Operation: "O", Key: "k"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "K"},
			{Tenant: "", Principal: "p", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "", Operation: "o", Key: "k"},
			{Tenant: "", Principal: "", Operation: "o", Key: "k"},
			{Tenant: "", Principal: "t", Operation: "o", Key: "k"},
			{Tenant: "p", Principal: "t", Operation: "o", Key: "k"},
			// The same text in total, split differently.
			{Tenant: "tp", Principal: "", Operation: "o", Key: "k"},
			{Tenant: "", Principal: "tp", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "po", Operation: "k", Key: "x"},
			{Tenant: "t", Principal: "p", Operation: "ok", Key: "x"},
			// Separators inside members.
			{Tenant: "t:p", Principal: "", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "p:o", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "p", Operation: "o:o", Key: "k"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "o:k"},
			{Tenant: "t/p", Principal: "", Operation: "o", Key: "k"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "/k"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "\x01k"},
			{Tenant: "t\x01", Principal: "p", Operation: "o", Key: "k"},
			// Texts that only look the same.
			{Tenant: "t", Principal: "p", Operation: "o", Key: "k "},
			{Tenant: "t", Principal: "p", Operation: "o", Key: " k"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "\u00e9"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "e\u0301"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: "%6b"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: long + "a"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: long + "b"},
			{Tenant: "t", Principal: "p", Operation: "o", Key: long},
		}
		recs := make([]semel.Record, len(ids))
		for i, id := range ids {
			stored(t, env.Store, id, semel.Record{})
			recs[i] = put(t, env.Store, claimed(id, int64(i+1)), store.Revision{})
		}
		for i, id := range ids {
			stored(t, env.Store, id, recs[i])
			recs[i] = put(t, env.Store, next(recs[i], func(r *semel.Record) { r.Attempt = 2 }), recs[i].Revision)
		}
		for i, id := range ids {
			stored(t, env.Store, id, recs[i])
		}
	}},
	{"the store writes neither to what it was given nor to what it has returned", ruleAlias, func(t *testing.T, env Env) {
		data := append(make([]byte, 0, 64), "the result"...)
		spare := data[len(data):cap(data)]
		for i := range spare {
			spare[i] = 0xee
		}
		rec := next(claimed(key("k"), 1), func(r *semel.Record) {
			r.Result.Data = data
			r.Effects = append(make([]store.EffectRecord, 0, 4), store.EffectRecord{Name: "e", Result: semel.Result{Data: data[:3]}})
			r.Earlier = append(make([]store.AttemptRecord, 0, 4), store.AttemptRecord{Number: 1, Failure: &store.Failure{Message: "m"}})
		})
		keep := rec
		keep.Result.Data = bytes.Clone(data)
		keep.Effects = []store.EffectRecord{{Name: "e", Result: semel.Result{Data: []byte("the")}}}
		keep.Earlier = []store.AttemptRecord{{Number: 1, Failure: &store.Failure{Message: "m"}}}

		applied, _, err := env.Store.Apply(t.Context(), store.Write{Record: &rec})
		if err != nil {
			t.Fatal(err)
		}
		got, err := env.Store.Get(t.Context(), rec.ID)
		if err != nil {
			t.Fatal(err)
		}
		shown, _, err := env.Store.Apply(t.Context(), store.Write{Record: new(claimed(rec.ID, 2))})
		if err != nil {
			t.Fatal(err)
		}
		// Write to this record and to others many times, so that a store that reuses
		// buffers does so.
		last := rec
		for i := range 200 {
			last = put(t, env.Store, next(last, func(r *semel.Record) {
				r.Result.Data = bytes.Repeat([]byte{byte(i)}, len(data))
			}), last.Revision)
			put(t, env.Store, next(claimed(key(fmt.Sprint("other", i)), 1), func(r *semel.Record) {
				r.Result.Data = bytes.Repeat([]byte{byte(i)}, len(data))
			}), store.Revision{})
			stored(t, env.Store, last.ID, last)
		}
		same(t, "the record that was given to Apply, afterwards,", &rec, keep)
		same(t, "the record that Apply returned, afterwards,", applied, keep)
		same(t, "the record that Get returned, afterwards,", got, keep)
		same(t, "the record that a refused Apply returned, afterwards,", shown, keep)
		if !slices.Equal(spare, bytes.Repeat([]byte{0xee}, len(spare))) {
			t.Fatal("the store wrote behind the end of the data that it was given")
		}
	}},
}
