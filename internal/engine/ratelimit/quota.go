package ratelimit

import (
	"math/bits"
	"time"

	"github.com/semelhq/semel/store"
)

// Usage is how much something uses of the quotas. Negative numbers go back to them.
type Usage struct {
	Records, Bytes, Holds, Tombstones int64
}

// Plus returns the sum.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Records + v.Records, u.Bytes + v.Bytes, u.Holds + v.Holds, u.Tombstones + v.Tombstones}
}

// Quota limits one kind of usage.
type Quota struct {
	Limit  string // its name
	Most   int64
	Window time.Duration // refills within this time
	Tenant bool          // counts all principals of a tenant together
	// Used returns the part of u that this quota counts.
	Used func(u Usage) int64
	// Unverified: it limits only callers whom nobody has verified.
	Unverified bool
}

// price returns how long the quota takes to refill by n.
func (q *Quota) price(n int64) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(q.Window))
	if hi >= uint64(q.Most) {
		return MaxRefill
	}
	d, _ := bits.Div64(hi, lo, uint64(q.Most))
	return time.Duration(min(d, uint64(MaxRefill)))
}

// Account names a user of quotas.
type Account struct{ Tenant, Principal string }

// bucket names the bucket that counts the quota for an account.
func (q *Quota) bucket(of Account) Name {
	if q.Tenant {
		of.Principal = ""
	}
	return Name{Kind: q.Limit, ID: store.ID{Tenant: of.Tenant, Principal: of.Principal}}
}

// Quotas counts what accounts use. Set it up before the first use.
type Quotas struct {
	Set   []Quota
	table Table
}

// Charge counts an account's usage. Negative numbers go back to it.
func (q *Quotas) Charge(of Account, u Usage, at store.Instant) {
	for i := range q.Set {
		one := &q.Set[i]
		switch n := one.Used(u); {
		case n > 0:
			q.table.Spend(one.bucket(of), one.price(n), at)
		case n < 0:
			q.table.GiveBack(one.bucket(of), one.price(-n))
		}
	}
}

// Wait returns how long an account must wait before it may use one more of everything, and for
// which quota.
func (q *Quotas) Wait(of Account, verified bool, at store.Instant) (delay time.Duration, limit string) {
	for i := range q.Set {
		one := &q.Set[i]
		if one.Unverified && verified {
			continue
		}
		if d := q.table.Wait(one.bucket(of), one.price(1), one.Window, at); d > delay {
			delay, limit = d, one.Limit
		}
	}
	return delay, limit
}

// Counts reports whether some quota counts the usage.
func (q *Quotas) Counts(u Usage) bool {
	for i := range q.Set {
		if q.Set[i].Used(u) > 0 {
			return true
		}
	}
	return false
}

// Pay charges an account, unless that takes it beyond a quota. It reports false then, and
// counts nothing.
func (q *Quotas) Pay(of Account, u Usage, at store.Instant) bool {
	for i := range q.Set {
		one := &q.Set[i]
		if n := one.Used(u); n > 0 && q.table.Wait(one.bucket(of), one.price(n), one.Window, at) > 0 {
			return false
		}
	}
	q.Charge(of, u, at)
	return true
}

// Overhead is roughly how many bytes a record, a message, or an entry of the evidence log takes in
// a store besides its text: numbers, times and index entries.
const Overhead = 256

// Bytes returns roughly how many bytes a record takes because of callers and handlers.
func Bytes(r *store.Record) int64 {
	n := Overhead + len(r.ID.Key) + len(r.Payload) + len(r.HeldReason) + len(r.Result.Data) + size(r.Failure)
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
		m := &r.Outbox[i]
		n += Overhead + len(m.Name) + len(m.Order) + len(m.ContentType) + len(m.Payload)
	}
	return int64(n)
}

func size(f *store.Failure) int {
	if f == nil {
		return 0
	}
	return len(f.Code) + len(f.Message)
}
