package semel

import (
	"cmp"
	"hash/maphash"
	"math"
	"sync"
	"time"
)

// throttle holds token buckets in bounded memory: a table of sets of four
// slots. A bucket is one instant, the time at which it will be full again. When
// a set is full of buckets in use, the one nearest to full makes room, which
// forgets the least.
type throttle struct {
	once   sync.Once
	seed   maphash.Seed
	shards [throttleShards]throttleShard
}

const (
	throttleShards = 16
	throttleSets   = 1024
	throttleWays   = 4
)

type throttleShard struct {
	mu   sync.Mutex
	sets *[throttleSets][throttleWays]bucket
}

type bucket struct {
	tag    uint64
	fullAt Instant
}

// throttled takes one token of the record and one of the principal, and returns
// how long the caller has to wait if either has none.
func (e *Engine) throttled(op *operation, call *Call, id *ID, now Instant) time.Duration {
	var delay time.Duration
	if op.PerRecord.Burst > 0 {
		delay = e.throttle.take(op.PerRecord, bucketName{kind: 'r', id: *id}, now)
	}
	if op.PerPrincipal.Burst > 0 {
		who := cmp.Or(call.Principal, call.BoundTo)
		name := bucketName{kind: 'p', id: ID{Tenant: call.Tenant, Principal: who, Operation: call.Operation}}
		delay = max(delay, e.throttle.take(op.PerPrincipal, name, now))
	}
	return delay
}

type bucketName struct {
	kind byte
	id   ID
}

// take takes a token from the named bucket, or returns the time until there is
// one. The rate is one that Operation.Validate accepts.
func (t *throttle) take(r Rate, name bucketName, now Instant) time.Duration {
	t.once.Do(func() { t.seed = maphash.MakeSeed() })
	h := maphash.Comparable(t.seed, name)
	s := &t.shards[h%throttleShards]
	perToken := time.Duration(math.Round(float64(time.Second) / r.PerSecond))
	refill := time.Duration(r.Burst) * perToken

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil {
		s.sets = new([throttleSets][throttleWays]bucket)
	}
	set := &s.sets[h/throttleShards%throttleSets]
	b := &set[0]
	for i := range set {
		if set[i].tag == h {
			b = &set[i]
			break
		}
		if set[i].fullAt < b.fullAt {
			b = &set[i]
		}
	}
	if b.tag != h {
		*b = bucket{tag: h}
	}
	// Each token taken moves the instant of fullness by the time it takes to
	// refill one; the bucket is empty when that is Burst tokens away. It may be
	// further away if the rate was declared anew: then the bucket is just empty.
	full := min(max(b.fullAt, now), now.Add(refill)).Add(perToken)
	if over := full.Sub(now) - refill; over > 0 {
		return over
	}
	b.fullAt = full
	return 0
}
