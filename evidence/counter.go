package evidence

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

const (
	// singles is how many deliveries of a call with the same answer have entries of their own within
	// Options.CountEvery, so that the log shows the deliveries of a client that retries hard.
	singles = 30
	// maxSingles bounds the calls whose single entries are counted, about 100 bytes each.
	// Deliveries of further calls have entries of their own.
	maxSingles = 1 << 14
	// maxCounts bounds the waiting entries with counts, each with its key and attributes.
	maxCounts = 1 << 12
	// countSize is what an entry with a count costs the quota of the first delivery's sender,
	// in bytes: about its size in a store.
	countSize = 1 << 10
)

// counter counts deliveries that have no entries of their own, and writes one entry for all
// that got the same answer. A crash loses the counts of the last Options.CountEvery.
type counter struct {
	log  *Log
	turn sync.Mutex // held while flushing

	mu      sync.Mutex
	singles map[countKey]int
	counts  map[countKey]*count
	waits   bool // for the time to write
	closed  bool
}

// countKey is what deliveries of one count share.
type countKey struct {
	subject  store.Subject // the record, or the tenant and operation
	decision string
	fence    int64
	outcome  [sha256.Size]byte
}

// count is a number of deliveries that share one entry.
type count struct {
	n           uint64
	from, until store.Instant
	facts       facts
}

func (c *counter) init(l *Log) {
	c.log, c.singles, c.counts = l, map[countKey]int{}, map[countKey]*count{}
}

func (c *counter) key(f *facts) countKey {
	return countKey{c.log.Subject(f.rec.ID), f.decision, f.rec.Fence, f.sum}
}

// single reports whether a delivery may have an entry of its own.
func (c *counter) single(f *facts) bool {
	k := c.key(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	n, known := c.singles[k]
	if n >= singles || !known && len(c.singles) >= maxSingles {
		return n < singles
	}
	c.singles[k]++
	c.wait()
	return true
}

// add counts a delivery for its record or, if there is no room or its sender is over a quota,
// for its operation. pays reports whether they may have more written.
func (c *counter) add(f *facts, pays func(bytes int) bool) error {
	k := c.key(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	one, known := c.counts[k]
	if !known && (len(c.counts) >= maxCounts/2 || !pays(countSize)) {
		// Strangers can't invent operations and tenants, so there are few of these.
		f = f.ofOperation()
		k = c.key(f)
		one, known = c.counts[k]
	}
	if !known {
		if len(c.counts) >= maxCounts {
			return errBusy
		}
		one = &count{from: f.at, facts: f.slim()}
		c.counts[k] = one
	}
	one.n++
	one.until = max(one.until, f.at)
	c.wait()
	return nil
}

// slim returns the facts without parts that the entry doesn't need, which may be large.
func (f *facts) slim() facts {
	slim, rec := *f, *f.rec
	rec.Result, rec.Payload, rec.Effects, rec.Earlier = semel.Result{}, nil, nil, nil
	slim.rec, slim.call = &rec, nil
	return slim
}

// ofOperation returns the facts without their record.
func (f *facts) ofOperation() *facts {
	rec := &semel.Record{ID: semel.ID{Tenant: f.rec.ID.Tenant, Operation: f.rec.ID.Operation}}
	return &facts{kind: f.kind, decision: f.decision, executed: f.executed, reason: f.reason, rec: rec, at: f.at}
}

// Erased counts deliveries of erased identities for their operation instead, so that the
// pending entry about them names nobody. It's for [semel.Events].
func (l *Log) Erased(ev semel.Erased) {
	c := &l.counter
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, one := range c.counts {
		if id := one.facts.rec.ID; id.Key == "" || !ev.Includes(id, one.until.Time()) {
			continue
		}
		delete(c.counts, k)
		one.facts = *one.facts.ofOperation()
		c.merge(c.key(&one.facts), one)
	}
}

// merge adds to an existing count, or starts one. The caller holds c.mu.
func (c *counter) merge(k countKey, one *count) {
	if have := c.counts[k]; have != nil {
		have.n, have.from, have.until = have.n+one.n, min(have.from, one.from), max(have.until, one.until)
		return
	}
	c.counts[k] = one
}

// wait schedules writing the counts after Options.CountEvery. The caller holds c.mu.
func (c *counter) wait() {
	if c.waits || c.closed {
		return
	}
	c.waits = true
	time.AfterFunc(c.log.opts.CountEvery, func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.log.opts.CountEvery)
		defer cancel()
		if n, err := c.flush(ctx); err != nil {
			c.log.opts.OnError(fmt.Errorf("evidence: the counts of %d deliveries are not written yet: %w", n, err))
		}
	})
}

// flush queues an entry for each count, and returns the number of deliveries whose entries it
// could not queue. They stay counted.
func (c *counter) flush(ctx context.Context) (left uint64, err error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	all := c.counts
	c.counts, c.waits = map[countKey]*count{}, false
	clear(c.singles)
	c.mu.Unlock()
	for k, one := range all {
		if err == nil {
			f := one.facts
			f.counted, f.at, f.level = one, one.until, c.log.durability()
			err = c.log.queue.add(ctx, c.log.entry(&f), false)
		}
		if err == nil {
			continue
		}
		left += one.n
		c.mu.Lock()
		c.merge(k, one)
		c.wait()
		c.mu.Unlock()
	}
	return left, err
}

// close writes the counts and refuses further deliveries. The error says what was lost.
func (c *counter) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	left, err := c.flush(ctx)
	if err != nil {
		return fmt.Errorf("evidence: the counts of %d deliveries that were answered are lost: %w", left, err)
	}
	return nil
}
