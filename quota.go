package semel

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/engine/ratelimit"
	"github.com/semelhq/semel/store"
)

// Quotas bound how much callers may store. They refuse only deliveries that would begin a new
// call, with [Throttled]: duplicates are still answered, a call that may run again runs, and an
// outcome is always recorded.
//
// A quota is a token bucket: a caller may use all of it at once, and within Window it refills
// evenly. Anything recorded beyond it is a debt, to be refilled first. Each engine keeps its
// quotas in bounded memory: n engines on one store allow n times as much, a restart resets
// them, and with some ten thousand callers at once the ones who have used least may be
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

// quotas are [Quotas] with what callers have used.
type quotas struct {
	some    bool // whether any is set
	counts  ratelimit.Quotas
	account func(ctx context.Context, rec *Record) (tenant, principal string)
}

func (q *quotas) init(opts Quotas) error {
	window := cmp.Or(opts.Window, DefaultQuotaWindow)
	if window < 0 || window > ratelimit.MaxRefill {
		return errors.New("semel: Quotas.Window may not be negative, or longer than ten years")
	}
	q.account = opts.Account
	records, bytes := func(u ratelimit.Usage) int64 { return u.Records }, func(u ratelimit.Usage) int64 { return u.Bytes }
	holds, tombstones := func(u ratelimit.Usage) int64 { return u.Holds }, func(u ratelimit.Usage) int64 { return u.Tombstones }
	for _, one := range []ratelimit.Quota{
		{Limit: string(LimitPrincipalRecords), Most: opts.PrincipalRecords, Window: window, Used: records},
		{Limit: string(LimitPrincipalBytes), Most: opts.PrincipalBytes, Window: window, Used: bytes},
		{Limit: string(LimitTenantRecords), Most: opts.TenantRecords, Window: window, Tenant: true, Used: records},
		{Limit: string(LimitTenantBytes), Most: opts.TenantBytes, Window: window, Tenant: true, Used: bytes},
		{Limit: string(LimitUnverifiedHolds), Most: opts.UnverifiedHolds, Window: window, Unverified: true, Used: holds},
		{Limit: string(LimitAbortedCalls), Most: opts.PrincipalRecords, Window: tombstoneLife, Unverified: true, Used: tombstones},
	} {
		if one.Most < 0 {
			return errors.New("semel: quotas may not be negative")
		}
		if one.Most > 0 {
			q.some, q.counts.Set = true, append(q.counts.Set, one)
		}
	}
	return nil
}

// accountOf returns the account that a record counts for.
func (q *quotas) accountOf(ctx context.Context, rec *Record) ratelimit.Account {
	if q.account == nil {
		return ratelimit.Account{Tenant: rec.ID.Tenant, Principal: cmp.Or(rec.Principal, rec.BoundTo)}
	}
	tenant, principal := q.account(ctx, rec)
	return ratelimit.Account{Tenant: tenant, Principal: principal}
}

// usageOf returns how much of the quotas replacing prev with next uses.
func (q *quotas) usageOf(prev, next *Record) ratelimit.Usage {
	switch {
	case next.Mark != nil || isForSemel(next.ID):
		return ratelimit.Usage{}
	case prev.Origin != next.Origin: // a new call
		return ratelimit.Usage{Records: counted(next), Bytes: ratelimit.Bytes(next), Holds: heldUnverified(next)}
	}
	u := ratelimit.Usage{
		Records: counted(next) - counted(prev), Bytes: max(0, ratelimit.Bytes(next)-ratelimit.Bytes(prev)),
		Holds: heldUnverified(next) - heldUnverified(prev),
	}
	if isTombstone(next) && !isTombstone(prev) {
		u.Tombstones = 1
	}
	return u
}

// isForSemel reports whether a call is one of Semel's own, such as the delivery of a message: its
// principal can be no caller's. It takes nobody's quota. Otherwise whoever sends many messages would
// keep those of others from being delivered.
func isForSemel(id ID) bool {
	return strings.HasPrefix(id.Operation, reservedPrefix) && strings.HasPrefix(id.Principal, reservedPrefix)
}

// heldUnverified is 1 for a held call of a caller whom nobody has verified.
func heldUnverified(rec *Record) int64 {
	if rec.Held && rec.BoundTo != "" {
		return 1
	}
	return 0
}

// counted returns how many calls the record counts for: none once its attempt has proved that
// nothing happened. A call that waits for its confirmation counts.
func counted(rec *Record) int64 {
	if rec.Disposition == DispositionAborted && (rec.Confirmation == nil || rec.Confirmation.ConfirmedAt != 0) {
		return 0
	}
	return 1
}

// wait returns how long a caller has to wait before they may begin a call, and for which quota.
func (q *quotas) wait(ctx context.Context, claim *Record) (time.Duration, Limit) {
	delay, by := q.counts.Wait(q.accountOf(ctx, claim), claim.BoundTo == "", claim.UpdatedAt)
	return delay, Limit(by)
}

// charge counts a write, and gives back calls for which it proves that nothing happened.
func (q *quotas) charge(ctx context.Context, rec *Record, u ratelimit.Usage) {
	q.counts.Charge(q.accountOf(ctx, rec), u, rec.UpdatedAt)
}

// charger returns a function that counts bytes stored because of a delivery, outside its
// record, against the byte quotas of the call's sender. It reports false, and counts nothing,
// if they are over one of these quotas. It is nil if none is set.
func (q *quotas) charger(ctx context.Context, call *Call, id ID) func(bytes int64, at store.Instant) bool {
	if !q.counts.Counts(ratelimit.Usage{Bytes: 1}) {
		return nil
	}
	of := q.accountOf(ctx, &Record{ID: id, Principal: call.Principal, BoundTo: call.BoundTo})
	return func(bytes int64, at store.Instant) bool {
		return q.counts.Pay(of, ratelimit.Usage{Bytes: bytes}, at)
	}
}

// withEvidence adds what the entries about a write take to what the write uses.
func (q *quotas) withEvidence(u ratelimit.Usage, entries []store.Entry) ratelimit.Usage {
	for i := range entries {
		u.Bytes += int64(len(entries[i].Leaf)+len(entries[i].Opening)) + ratelimit.Overhead
	}
	return u
}

// payer charges whoever sent a delivery for an entry that is written about it. It is nil if there
// are no quotas of bytes, and for the engine's own calls.
func (q *quotas) payer(ctx context.Context, op *Operation, call *Call) Payer {
	if !q.some || isOwn(ctx) {
		return nil
	}
	charge := q.charger(ctx, call, call.ID(op.Share))
	if charge == nil {
		return nil
	}
	return func(bytes int, at store.Instant) bool { return charge(int64(bytes)+ratelimit.Overhead, at) }
}

// throttled takes one token of the record and one of the principal, and returns
// how long the caller has to wait if either has none.
func (d *delivery) throttled(id *ID) time.Duration {
	e, op, call, now := d.engine, d.op, &d.call, d.at.now
	var delay time.Duration
	if op.PerRecord.Burst > 0 {
		delay = e.throttle.Take(ratelimit.Rate(op.PerRecord), ratelimit.Name{Kind: "record", ID: *id}, now)
	}
	if op.PerPrincipal.Burst > 0 {
		who := cmp.Or(call.Principal, call.BoundTo)
		name := ratelimit.Name{Kind: "principal", ID: ID{Tenant: call.Tenant, Principal: who, Operation: call.Operation}}
		delay = max(delay, e.throttle.Take(ratelimit.Rate(op.PerPrincipal), name, now))
	}
	return delay
}
