package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// The due index says when to look at a record. To keep it exact in every write
// costs a quarter of what a claim and its outcome cost the server, and half of that
// is for nothing: a lease rarely ends before its holder has. So it is kept like
// this, which is as safe:
//
//   - An entry may be too early, never too late. A write that leaves a record due
//     at the same time or later leaves the entry alone. One that makes it due
//     earlier sets it, in the same script.
//   - A claim that is due indexDelay after its creation or later gets no entry yet.
//     The stream of its shard, to which every claim belongs in the same atomic step,
//     tells where it is. Other claims set their entry.
//
// So each record with a NextAt has an entry that is not later, or it is in the
// stream after the place that the index has taken in. [Store.Due] takes in the
// stream first, up to indexDelay before the time it is asked for: what is later in
// the stream and without an entry can't be due. Then it reads the entries, and sets
// those right that were too early. Both are scripts that read the records they
// index, so they can't write what is outdated, and any number of processes may do it
// at once.
//
// A crash between two of these scripts leaves the rest of the stream, or entries
// that are too early, to the next call of Due, by whatever process.
const (
	// indexDelay is shorter than a usual lease and longer than most calls take:
	// then most records are indexed once, by the end of their window.
	indexDelay = 5 * time.Second
	// indexBatch is how many records one script indexes: meanwhile its server
	// does nothing else, for about half a millisecond.
	indexBatch = 128
	// indexRounds bounds what one call of Due takes in, to half a million
	// records. Without sweeps for longer than that, the rest has to wait for the
	// next call.
	indexRounds = 64
)

// index is how far the due indexes have come, as this process knows it.
type index struct {
	mu     sync.Mutex
	places [shardCount]string
}

// indexNow tells scriptWrite whether the due entry of a claim can wait: "" if it can.
func indexNow(rec *semel.Record) string {
	if rec.NextAt == 0 || rec.NextAt.Sub(rec.CreatedAt) >= indexDelay {
		return ""
	}
	return "now"
}

// takeIn gives entries to all records that are in the streams without one and may
// be due by then. It costs a round trip to each server, and two more for every
// batch of records.
func (s *Store) takeIn(ctx context.Context, until semel.Instant) error {
	last := [digestLen]byte{1: 0xff, 2: 0xff} // no digest gives a later place
	end := string(appendPlace(nil, until.Add(-indexDelay), &last))
	open := make([]int, shardCount)
	for i := range open {
		open[i] = i
	}
	for round := 0; len(open) > 0 && round < indexRounds; round++ {
		var err error
		if open, err = s.takeInOnce(ctx, open, end); err != nil {
			return err
		}
	}
	return nil
}

// takeInOnce takes in a batch of each of some shards, and returns those that have
// more.
func (s *Store) takeInOnce(ctx context.Context, shards []int, end string) (more []int, err error) {
	c := s.link.client()
	s.index.mu.Lock()
	known := s.index.places
	s.index.mu.Unlock()
	cmds := make([]rueidis.Completed, 0, 2*len(shards))
	for _, i := range shards {
		start := "-"
		if known[i] != "" {
			start = "(" + known[i]
		}
		sh := &s.keys.shards[i]
		cmds = append(cmds,
			// What this process knows may be from before a failover that has
			// lost entries, so it is checked.
			c.B().Get().Key(sh.indexed).Build(),
			c.B().Xrange().Key(sh.born).Start(start).End(end).Count(indexBatch).Build())
	}
	results := c.DoMulti(ctx, cmds...)
	var runs []run
	var ran []int // by run: the shard
	var full []bool
	for n, i := range shards {
		at, err := results[2*n].ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, s.failed("index", err)
		}
		if at != known[i] {
			s.index.set(i, at)
			more = append(more, i)
			continue
		}
		found, err := results[2*n+1].AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, s.failed("index", err)
		}
		if len(found) == 0 {
			continue
		}
		sh := &s.keys.shards[i]
		r := run{keys: []string{sh.due, sh.indexed}, args: []string{at, found[len(found)-1].ID}}
		for _, f := range found {
			r.keys = append(r.keys, sh.records+f.FieldValues[""])
		}
		runs, ran, full = append(runs, r), append(ran, i), append(full, len(found) == indexBatch)
	}
	for n, res := range evalAll(ctx, c, scriptIndex, runs) {
		at, err := res.ToString()
		if err != nil {
			return nil, s.failed("index", err)
		}
		s.index.set(ran[n], at)
		// Another process may have been faster, by less or by more.
		if full[n] || at != runs[n].args[1] {
			more = append(more, ran[n])
		}
	}
	return more, nil
}

func (x *index) set(shard int, place string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.places[shard] = place
}

// setRight moves entries that were too early to where they belong, and removes those
// of records that are gone or are never due.
func (s *Store) setRight(ctx context.Context, early []entry) error {
	var runs []run
	var open [shardCount]*run
	for _, en := range early {
		n := en.digest[0] % shardCount
		if open[n] == nil || len(open[n].keys) == 2+indexBatch {
			if open[n] != nil {
				runs = append(runs, *open[n])
			}
			open[n] = &run{keys: []string{en.shard.due, en.shard.indexed}}
		}
		open[n].keys = append(open[n].keys, en.record())
	}
	for _, r := range open {
		if r != nil {
			runs = append(runs, *r)
		}
	}
	for _, res := range evalAll(ctx, s.link.client(), scriptIndex, runs) {
		if err := res.Error(); err != nil {
			return s.failed("index", err)
		}
	}
	return nil
}
