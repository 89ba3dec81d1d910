package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

var otherPayload = semel.FingerprintOf(semel.SchemeRaw, []byte("other"))

// filterRecords differ in the members that a query can ask for.
var filterRecords = []struct {
	keyName string
	change  func(*semel.Record)
}{
	{"plain", func(*semel.Record) {}},
	{"tenant", func(r *semel.Record) { r.ID.Tenant = "acme" }},
	{"tenant in capitals", func(r *semel.Record) { r.ID.Tenant = "ACME" }},
	{"empty tenant", func(r *semel.Record) { r.ID.Tenant = "" }},
	{"principal", func(r *semel.Record) { r.ID.Principal = "other"; r.Principal = "principal" }},
	{"operation", func(r *semel.Record) { r.ID.Operation = "operation@2" }},
	{"Plain", func(r *semel.Record) { r.ID.Operation = "operation@2" }},
	{"completed", func(r *semel.Record) { r.State, r.Disposition = semel.Completed, semel.DispositionCompleted }},
	{"failed", func(r *semel.Record) { r.State, r.Disposition = semel.Failed, semel.DispositionRejected }},
	{"held", func(r *semel.Record) { r.Held, r.HeldReason = true, "the holder went away" }},
	{"held too", func(r *semel.Record) { r.Held = true; r.ID.Tenant = "acme" }},
	{"held for a stranger", func(r *semel.Record) { r.Held, r.BoundTo = true, "credential:stranger" }},
	{"of a stranger", func(r *semel.Record) { r.BoundTo = "credential:stranger" }},
	{"another payload", func(r *semel.Record) {
		r.Fingerprint, r.Attributes = otherPayload, store.Attributes{"order": "1", "cart": "2"}
	}},
	{"another order", func(r *semel.Record) { r.Attributes = store.Attributes{"order": "2"} }},
	{"strange attributes", func(r *semel.Record) {
		r.Attributes = store.Attributes{"order": `99 it's\ a:*&|`, "käse=x": "v", "empty": "", "long": strings.Repeat("l", 1024)}
	}},
	{"young", func(r *semel.Record) { r.CreatedAt = epoch.Add(time.Hour) }},
	{"a moment older", func(r *semel.Record) { r.CreatedAt = epoch.Add(time.Hour - 1) }},
	{"a moment younger", func(r *semel.Record) { r.CreatedAt = epoch.Add(time.Hour + 1) }},
}

// filters look for one member each. All select some of filterRecords, and none selects all.
var filters = map[string]func(*store.Query){
	"tenant":    func(q *store.Query) { q.Tenant = new("acme") },
	"no tenant": func(q *store.Query) { q.Tenant = new("") },
	"principal": func(q *store.Query) { q.Principal = "principal" },
	"operation": func(q *store.Query) { q.Operation = "operation" },
	"key":       func(q *store.Query) { q.Key = "plain" },
	"digest": func(q *store.Query) {
		digest := store.Digest(claimed(key("plain"), 1).ID.Digest())
		q.Digest = digest.String()[:12]
	},
	"fingerprint": func(q *store.Query) { q.Fingerprint = otherPayload },
	"attribute":   func(q *store.Query) { q.Attributes = store.Attributes{"order": "1"} },
	"strange attribute": func(q *store.Query) {
		q.Attributes = store.Attributes{"order": `99 it's\ a:*&|`, "käse=x": "v", "empty": ""}
	},
	"attribute that begins so": func(q *store.Query) {
		q.AttributePrefixes = store.Attributes{"order": `99 it's\`, "empty": "", "long": "ll"}
	},
	"attribute of any value": func(q *store.Query) { q.AttributePrefixes = store.Attributes{"order": ""} },
	"tenants":                func(q *store.Query) { q.Any = [][]store.Query{{{Tenant: new("acme")}, {Tenant: new("")}}} },
	"one of each list": func(q *store.Query) {
		q.Any = append(q.Any, []store.Query{{Held: true}, {State: semel.Failed}}, []store.Query{{Tenant: new("acme")}, {Disposition: semel.DispositionRejected}})
	},
	"none of these": func(q *store.Query) {
		q.Not = append(q.Not, store.Query{Held: true}, store.Query{State: semel.Failed, Operation: "operation"})
	},
	"beginnings": func(q *store.Query) {
		q.KeyPrefix, q.OperationPrefix, q.PrincipalPrefix = "held", "oper", "princi"
	},
	"rejected":   func(q *store.Query) { q.Disposition = semel.DispositionRejected },
	"processing": func(q *store.Query) { q.State = semel.Processing },
	"completed":  func(q *store.Query) { q.State = semel.Completed },
	"failed":     func(q *store.Query) { q.State = semel.Failed },
	"held":       func(q *store.Query) { q.Held = true },
	"unverified": func(q *store.Query) { q.Unverified = true },
	"verified":   func(q *store.Query) { q.Not = append(q.Not, store.Query{Unverified: true}) },
	"after":      func(q *store.Query) { q.After = epoch.Add(time.Hour) },
	"before":     func(q *store.Query) { q.Before = epoch.Add(time.Hour) },
}

// searchFilters compares each member of a query, and each pair of them, with
// [store.Query.Matches] on a set of records that all differ.
func searchFilters(t *testing.T, env Env) {
	var all []semel.Record
	for i, r := range filterRecords {
		all = append(all, put(t, env.Store, next(claimed(key(r.keyName), int64(i+1)), r.change), store.Revision{}))
	}
	for one, set := range filters {
		for other, and := range filters {
			q := store.Query{Limit: 5}
			set(&q)
			and(&q)
			var want []semel.Record
			for _, rec := range all {
				if q.Matches(&rec) {
					want = append(want, rec)
				}
			}
			if one == other && (len(want) == 0 || len(want) == len(all)) {
				t.Fatalf("%s selects %d of %d records, so nothing is proved", one, len(want), len(all))
			}
			got := search(t, env.Store, q, nil)
			t.Logf("%s and %s: %d records", one, other, len(got))
			sameSet(t, got, want)
		}
	}
}
