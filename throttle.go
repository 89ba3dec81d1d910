package semel

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// throttle is token buckets in bounded memory: a set-associative table. A bucket is one
// instant, the time at which it will be full again. If all slots of a set are in use, the
// bucket that is nearest to full is replaced, which loses the least.
type throttle struct {
	once sync.Once // makes seed and sets
	seed maphash.Seed
	sets *[throttleSets][throttleWays]bucket
	mu   sync.Mutex // guards the buckets
}

// The table is bounded to 1 MiB. With one slot in a set, two callers that fall on it would
// forget each other's use with every call and so have no limit. With four it takes five.
const (
	throttleSets = 1 << 14
	throttleWays = 4
)

type bucket struct {
	tag    uint64
	fullAt store.Instant
}

// throttled takes one token of the record and one of the principal, and returns
// how long the caller has to wait if either has none.
func (d *delivery) throttled(id *ID) time.Duration {
	e, op, call, now := d.engine, d.op, &d.call, d.at.now
	var delay time.Duration
	if op.PerRecord.Burst > 0 {
		delay = e.throttle.take(op.PerRecord, bucketName{kind: "record", id: *id}, now)
	}
	if op.PerPrincipal.Burst > 0 {
		who := cmp.Or(call.Principal, call.BoundTo)
		name := bucketName{kind: "principal", id: ID{Tenant: call.Tenant, Principal: who, Operation: call.Operation}}
		delay = max(delay, e.throttle.take(op.PerPrincipal, name, now))
	}
	return delay
}

type bucketName struct {
	kind string
	id   ID
}

// take takes a token from the named bucket, or returns the time until there is
// one. The rate is one that Operation.Validate accepts.
func (t *throttle) take(r Rate, name bucketName, now store.Instant) time.Duration {
	perToken := time.Duration(math.Round(float64(time.Second) / r.PerSecond))
	refill := time.Duration(r.Burst) * perToken
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		*b = bucket{tag: h}
	}
	// If the rate was raised, fullAt may be later than for an empty bucket: then it is
	// empty.
	b.fullAt = min(b.fullAt, now.Add(refill))
	if over := b.wait(perToken, refill, now); over > 0 {
		return over
	}
	b.spend(perToken, now)
	return 0
}

// wait is the time until the named bucket, which takes refill to fill, has cost left.
func (t *throttle) wait(name bucketName, cost, refill time.Duration, now store.Instant) time.Duration {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		return 0
	}
	return b.wait(cost, refill, now)
}

// spend takes cost from the named bucket, even if it has less. The debt is bounded, so
// that no sum of instants overflows.
func (t *throttle) spend(name bucketName, cost time.Duration, now store.Instant) {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		*b = bucket{tag: h}
	}
	b.spend(cost, now)
	b.fullAt = min(b.fullAt, now.Add(maxRefill))
}

// giveBack undoes a spend. Of a bucket that was replaced meanwhile there is nothing left
// to undo.
func (t *throttle) giveBack(name bucketName, cost time.Duration) {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag == h {
		b.fullAt = b.fullAt.Add(-cost)
	}
}

// lock locks the table and returns the named bucket, with tag h, or the one to replace, with
// another tag.
func (t *throttle) lock(name bucketName) (b *bucket, h uint64) {
	t.once.Do(func() { t.seed, t.sets = maphash.MakeSeed(), new([throttleSets][throttleWays]bucket) })
	h = maphash.Comparable(t.seed, name)
	t.mu.Lock()
	set := &t.sets[h%throttleSets]
	b = &set[0]
	for i := range set {
		if set[i].tag == h {
			return &set[i], h
		}
		if set[i].fullAt < b.fullAt {
			b = &set[i]
		}
	}
	return b, h
}

// spend moves the instant of fullness by the time it takes to refill cost. The bucket
// is empty when that is as far away as it takes to refill it.
func (b *bucket) spend(cost time.Duration, now store.Instant) {
	b.fullAt = max(b.fullAt, now).Add(cost)
}

// wait is the time until the bucket, which takes refill to fill, has cost left.
func (b *bucket) wait(cost, refill time.Duration, now store.Instant) time.Duration {
	return max(0, max(b.fullAt, now).Add(cost).Sub(now)-refill)
}
