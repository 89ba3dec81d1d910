package semel

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/semelhq/semel/store"
)

// Quotas bound how much callers may store. They refuse only deliveries that would begin
// a new call, with [Throttled]: duplicates are still answered, a call that may run again
// does, and an outcome is always recorded.
//
// A quota is a token bucket: a caller may use all of it at once, and within Window it
// refills evenly. Anything recorded beyond it is a debt, to be refilled first. Each engine
// keeps its quotas in bounded memory: n engines on one store allow n times as much, a restart
// resets them, and with some ten thousand callers at once the ones who have used least may be
// forgotten.
type Quotas struct {
	// Window is how long a used-up quota takes to refill. Defaults to 24 hours; up to
	// ten years.
	Window time.Duration
	// PrincipalRecords and PrincipalBytes are the quotas of each principal of a tenant, or
	// for unverified callers of Call.BoundTo. TenantRecords and TenantBytes are the quotas
	// of each tenant. Zero doesn't limit.
	//
	// Records limit new calls. An aborted attempt gives its call back: it proved to be
	// nothing. If the call runs again, it counts again. Bytes limit what callers and handlers
	// put into records: keys, attributes, results, messages, the records of effects and
	// failures, and what the evidence log gets about all this and about deliveries that are
	// refused. Bytes are counted when they are written, so concurrent calls may exceed the
	// quota together, and those of an aborted call stay counted, because they stay stored.
	PrincipalRecords, PrincipalBytes, TenantRecords, TenantBytes int64
	// UnverifiedHolds is how many calls of one unverified caller may be held within Window:
	// one that has more begins no new call. Settling a call gives it back. Zero doesn't limit.
	//
	// Aborted calls of an unverified caller don't count either, but each leaves a tombstone
	// for a minute, and the caller may leave PrincipalRecords of them in a minute.
	UnverifiedHolds int64
	// Account returns the tenant and principal that a record counts for, if they aren't
	// its own. ctx is that of the delivery or of whoever else writes the record. It must
	// not change or keep the record, and is called by many goroutines at once. Optional.
	Account func(ctx context.Context, rec *Record) (tenant, principal string)
}

// Defaults of [Quotas].
const DefaultQuotaWindow = 24 * time.Hour

// Limit is a limit that throttles deliveries.
type Limit string

// The limits.
const (
	LimitDuplicates       Limit = "duplicates"        // Operation.PerRecord or PerPrincipal
	LimitPrincipalRecords Limit = "principal_records" // Quotas.PrincipalRecords
	LimitPrincipalBytes   Limit = "principal_bytes"   // Quotas.PrincipalBytes
	LimitTenantRecords    Limit = "tenant_records"    // Quotas.TenantRecords
	LimitTenantBytes      Limit = "tenant_bytes"      // Quotas.TenantBytes
	LimitUnverifiedHolds  Limit = "unverified_holds"  // Quotas.UnverifiedHolds
	LimitAbortedCalls     Limit = "aborted_calls"     // Quotas.PrincipalRecords in a minute
)

// message says, for people, why a delivery was throttled.
func (l Limit) message() string {
	switch l {
	case LimitPrincipalRecords:
		return "the caller has begun as many new calls as its quota allows"
	case LimitPrincipalBytes:
		return "the caller has had as many bytes stored as its quota allows"
	case LimitTenantRecords:
		return "the tenant has begun as many new calls as its quota allows"
	case LimitTenantBytes:
		return "the tenant has had as many bytes stored as its quota allows"
	case LimitUnverifiedHolds:
		return "the caller, whom nobody has verified, has as many held calls as its quota allows"
	case LimitAbortedCalls:
		return "the caller, whom nobody has verified, has begun as many calls in the last minute that came to nothing as its quota allows"
	}
	return "too many duplicates"
}

// quotas are [Quotas] with their counts.
type quotas struct {
	Quotas
	set   []quota // the quotas that are set
	table throttle
}

type quota struct {
	limit  Limit
	most   int64
	window time.Duration
	tenant bool // counts all principals of a tenant together
	// used returns the part of a write that counts here.
	used func(u usage) int64
	// unverified: it bounds only callers whom nobody has verified.
	unverified bool
}

func (q *quotas) init(opts Quotas) error {
	q.Quotas = opts
	q.Window = cmp.Or(q.Window, DefaultQuotaWindow)
	if q.Window < 0 || q.Window > maxRefill {
		return errors.New("semel: Quotas.Window may not be negative, or longer than ten years")
	}
	records, bytes := func(u usage) int64 { return u.records }, func(u usage) int64 { return u.bytes }
	for _, one := range []quota{
		{limit: LimitPrincipalRecords, most: opts.PrincipalRecords, used: records},
		{limit: LimitPrincipalBytes, most: opts.PrincipalBytes, used: bytes},
		{limit: LimitTenantRecords, most: opts.TenantRecords, tenant: true, used: records},
		{limit: LimitTenantBytes, most: opts.TenantBytes, tenant: true, used: bytes},
		{limit: LimitUnverifiedHolds, most: opts.UnverifiedHolds, unverified: true, used: func(u usage) int64 { return u.holds }},
		{limit: LimitAbortedCalls, most: opts.PrincipalRecords, window: tombstoneLife, unverified: true, used: func(u usage) int64 { return u.tombstones }},
	} {
		one.window = cmp.Or(one.window, q.Window)
		if one.most < 0 {
			return errors.New("semel: quotas may not be negative")
		}
		if one.most > 0 {
			q.set = append(q.set, one)
		}
	}
	return nil
}

// bucket names the bucket that counts a quota for a record.
func (q *quotas) bucket(ctx context.Context, one *quota, rec *Record) bucketName {
	tenant, principal := rec.ID.Tenant, cmp.Or(rec.Principal, rec.BoundTo)
	if q.Account != nil {
		tenant, principal = q.Account(ctx, rec)
	}
	if one.tenant {
		principal = ""
	}
	return bucketName{kind: string(one.limit), id: ID{Tenant: tenant, Principal: principal}}
}

// price is the time in which a quota refills by n.
func (one *quota) price(n int64) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(one.window))
	if hi >= uint64(one.most) {
		return maxRefill
	}
	d, _ := bits.Div64(hi, lo, uint64(one.most))
	return time.Duration(min(d, uint64(maxRefill)))
}

// usage is how much of the quotas a write uses. Negative records go back to the quota.
type usage struct {
	records, bytes, holds, tombstones int64
}

func (u usage) plus(v usage) usage {
	return usage{u.records + v.records, u.bytes + v.bytes, u.holds + v.holds, u.tombstones + v.tombstones}
}

// usageOf is how much of the quotas it uses to replace prev by next.
func (q *quotas) usageOf(prev, next *Record) usage {
	switch {
	case len(q.set) == 0, next.Mark != nil:
		return usage{}
	case prev.Origin != next.Origin: // a new call
		return usage{records: counted(next), bytes: payload(next), holds: heldUnverified(next)}
	}
	u := usage{records: counted(next) - counted(prev), bytes: max(0, payload(next)-payload(prev)), holds: heldUnverified(next) - heldUnverified(prev)}
	if isTombstone(next) && !isTombstone(prev) {
		u.tombstones = 1
	}
	return u
}

// heldUnverified is 1 for a held call of a caller whom nobody has verified.
func heldUnverified(rec *Record) int64 {
	if rec.Held && rec.BoundTo != "" {
		return 1
	}
	return 0
}

// counted is how many calls the record counts for: none once its attempt has proved to be
// nothing. One that waits for its confirmation is something.
func counted(rec *Record) int64 {
	if rec.Disposition == DispositionAborted && (rec.Confirmation == nil || rec.Confirmation.ConfirmedAt != 0) {
		return 0
	}
	return 1
}

// charge counts a write that was made, and gives back whatever the write proves to be nothing.
func (q *quotas) charge(ctx context.Context, rec *Record, u usage) {
	for i := range q.set {
		one := &q.set[i]
		switch n := one.used(u); {
		case n > 0:
			q.table.spend(q.bucket(ctx, one, rec), one.price(n), rec.UpdatedAt)
		case n < 0:
			q.table.giveBack(q.bucket(ctx, one, rec), one.price(-n))
		}
	}
}

// wait is how long the caller of claim must wait before it may begin a new call, and for
// which limit. It is zero if claim is a further attempt of its call.
func (q *quotas) wait(ctx context.Context, prev, claim *Record) (delay time.Duration, by Limit) {
	if len(q.set) == 0 || prev.Origin == claim.Origin {
		return 0, ""
	}
	for i := range q.set {
		one := &q.set[i]
		if one.unverified && claim.BoundTo == "" {
			continue
		}
		if d := q.table.wait(q.bucket(ctx, one, claim), one.price(1), one.window, claim.UpdatedAt); d > delay {
			delay, by = d, one.limit
		}
	}
	return delay, by
}

// overQuota is [quotas.wait]; it is zero for the engine's own calls.
func (e *Engine) overQuota(ctx context.Context, prev, claim *Record) (time.Duration, Limit) {
	if isOwn(ctx) {
		return 0, ""
	}
	return e.quotas.wait(ctx, prev, claim)
}

// payload is how many bytes of the record came from callers and handlers.
func payload(r *Record) int64 {
	n := len(r.ID.Key) + len(r.Payload) + len(r.HeldReason) + len(r.Result.Data) + size(r.Failure)
	for i := range r.Effects {
		ef := &r.Effects[i]
		n += len(ef.Name) + len(ef.Result.Data) + size(ef.Failure)
	}
	for i := range r.Earlier {
		n += size(r.Earlier[i].Failure)
	}
	for name, value := range r.Attributes {
		n += len(name) + len(value)
	}
	for i := range r.Outbox {
		n += len(r.Outbox[i].Payload)
	}
	return int64(n)
}

func size(f *store.Failure) int {
	if f == nil {
		return 0
	}
	return len(f.Code) + len(f.Message)
}

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

// entryOverhead is roughly how many bytes an entry of the evidence log takes in a store
// besides its text: its index entries and its part of the tree.
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
