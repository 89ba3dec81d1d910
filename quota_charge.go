package semel

import (
	"context"

	"github.com/semelhq/semel/store"
)

// charger returns a function that counts bytes which somebody keeps because of a delivery,
// beside its record, against the quotas of bytes of whoever rec counts for. It reports false,
// and counts nothing, if they are over one of these quotas. It is nil if none is set.
func (q *quotas) charger(ctx context.Context, rec *Record) func(bytes int64, at store.Instant) bool {
	type account struct {
		quota *quota
		name  bucketName
	}
	var of []account
	for i := range q.set {
		if one := &q.set[i]; one.used(usage{bytes: 1}) > 0 {
			of = append(of, account{one, q.bucket(ctx, one, rec)})
		}
	}
	if of == nil {
		return nil
	}
	return func(bytes int64, at store.Instant) bool {
		for _, a := range of {
			if q.table.wait(a.name, a.quota.price(bytes), a.quota.window, at) > 0 {
				return false
			}
		}
		for _, a := range of {
			q.table.spend(a.name, a.quota.price(bytes), at)
		}
		return true
	}
}

// sentBy is a record that counts for the account of whoever sent a call.
func sentBy(call *Call, id ID) *Record {
	return &Record{ID: id, Principal: call.Principal, BoundTo: call.BoundTo}
}

// entryOverhead is about what an entry of the evidence log takes in a store besides its text,
// in bytes: what it is found by, and its part of the tree.
const entryOverhead = 256

// withEvidence adds what the entries about a write take to what the write uses.
func (q *quotas) withEvidence(u usage, entries []store.Entry) usage {
	for i := range entries {
		if len(q.set) > 0 {
			u.bytes += int64(len(entries[i].Leaf)+len(entries[i].Opening)) + entryOverhead
		}
	}
	return u
}

// payer charges whoever sent a delivery for an entry that is written about it. It is nil if there
// are no quotas of bytes, and for the engine's own calls.
func (q *quotas) payer(ctx context.Context, op *Operation, call *Call) Payer {
	if len(q.set) == 0 || isOwn(ctx) {
		return nil
	}
	charge := q.charger(ctx, sentBy(call, call.ID(op.Share)))
	if charge == nil {
		return nil
	}
	return func(bytes int, at store.Instant) bool { return charge(int64(bytes)+entryOverhead, at) }
}
