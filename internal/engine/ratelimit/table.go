// Package ratelimit uses token buckets to count what callers use: how often they repeat calls,
// and how much they have stored.
package ratelimit

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/semelhq/semel/store"
)

// Table has token buckets in bounded memory: a set-associative table. A bucket is one instant,
// the time when it will be full again. If all slots of a set are in use, the new bucket
// replaces the one nearest to full, which loses the least.
type Table struct {
	once sync.Once // makes seed and sets
	seed maphash.Seed
	sets *[tableSets][tableWays]bucket
	mu   sync.Mutex // guards the buckets
}

// The table is limited to 1 MiB. With one slot in a set, two callers that share it would keep
// forgetting each other's use and so have no limit. With four slots it takes five callers.
const (
	tableSets = 1 << 14
	tableWays = 4
)

type bucket struct {
	tag    uint64
	fullAt store.Instant
}

// Name names a bucket, by the kind of usage and by the user.
type Name struct {
	Kind string
	ID   store.ID
}

// Rate says how many tokens come back each second, and how many there are at most.
type Rate struct {
	PerSecond float64
	Burst     int
}

// MaxRefill is the longest time that a bucket may take to fill, and the largest debt: short
// enough that no sum of instants overflows.
const MaxRefill = 10 * 365 * 24 * time.Hour

// Take takes a token from the named bucket, or returns how long until there is one. The rate
// must fill within [MaxRefill].
func (t *Table) Take(r Rate, name Name, now store.Instant) time.Duration {
	perToken := time.Duration(math.Round(float64(time.Second) / r.PerSecond))
	refill := time.Duration(r.Burst) * perToken
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		*b = bucket{tag: h}
	}
	// If the rate was raised, fullAt may be later than an empty bucket's: then it is empty.
	b.fullAt = min(b.fullAt, now.Add(refill))
	if over := b.wait(perToken, refill, now); over > 0 {
		return over
	}
	b.spend(perToken, now)
	return 0
}

// Wait returns how long until the named bucket, which takes refill to fill, has cost left.
func (t *Table) Wait(name Name, cost, refill time.Duration, now store.Instant) time.Duration {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		return 0
	}
	return b.wait(cost, refill, now)
}

// Spend takes cost from the named bucket, even if it has less. The debt is bounded, so
// that no sum of instants overflows.
func (t *Table) Spend(name Name, cost time.Duration, now store.Instant) {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag != h {
		*b = bucket{tag: h}
	}
	b.spend(cost, now)
	b.fullAt = min(b.fullAt, now.Add(MaxRefill))
}

// GiveBack undoes a [Table.Spend]. If the bucket was replaced meanwhile, nothing is left to
// undo.
func (t *Table) GiveBack(name Name, cost time.Duration) {
	b, h := t.lock(name)
	defer t.mu.Unlock()
	if b.tag == h {
		b.fullAt = b.fullAt.Add(-cost)
	}
}

// lock locks the table and returns the named bucket, with tag h, or the one to replace, with
// another tag.
func (t *Table) lock(name Name) (b *bucket, h uint64) {
	t.once.Do(func() { t.seed, t.sets = maphash.MakeSeed(), new([tableSets][tableWays]bucket) })
	h = maphash.Comparable(t.seed, name)
	t.mu.Lock()
	set := &t.sets[h%tableSets]
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

// spend postpones the bucket's fullness by the time that refilling cost takes. The bucket is
// empty when that is a whole refill away.
func (b *bucket) spend(cost time.Duration, now store.Instant) {
	b.fullAt = max(b.fullAt, now).Add(cost)
}

// wait returns how long until the bucket, which takes refill to fill, has cost left.
func (b *bucket) wait(cost, refill time.Duration, now store.Instant) time.Duration {
	return max(0, max(b.fullAt, now).Add(cost).Sub(now)-refill)
}
