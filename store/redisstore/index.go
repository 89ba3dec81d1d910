package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// The due index says when to look at a record, and the one of births lists them, see
// search.go. To keep both exact in every write would cost the server about as much as the
// writes themselves, and half of that for nothing: a lease rarely ends before its holder
// has. So they are kept like this, which is as safe:
//
//   - A due entry may be too early, never too late. A write that leaves a record due
//     at the same time or later leaves the entry alone. One that makes it due
//     earlier sets it, in the same script.
//   - The claims of a run of the script get one entry of their shard's stream, in the
//     same atomic step, and its name says when the server has made it. A claim that may
//     be due within indexDelay of that gets its due entry at once; the entries of all
//     others can wait.
//   - What was taken in is removed from the stream in the script that has given it its
//     entries, so that whatever is in the stream may be without, and nothing else is.
//
// [Store.Due] takes in the stream first, up to indexDelay before the time it is asked
// for. Then it reads the due entries, and sets those right that were too early. Both are
// scripts that read the records they index, so they can't write what is outdated, and any
// number of processes may do it at once.
//
// A crash between two of these scripts leaves the rest of the stream, or entries
// that are too early, to the next call of Due, by whatever process.
const (
	// indexDelay is shorter than a usual lease and longer than most calls take:
	// then most records are indexed once, by the end of their window.
	indexDelay = 5 * time.Second
	// indexSlack is how long a write may be on its way to the server, and how far clocks
	// may differ. A record whose claim took longer, and has a lease little longer than
	// that, may be found due later by up to indexDelay.
	indexSlack = time.Second
	// indexBatch is how many records one script indexes, or a few more: meanwhile its
	// server does nothing else, for about half a millisecond.
	indexBatch = 128
	// indexRound is how many entries are read at a time, of all shards together.
	indexRound = 4096
	// indexRounds bounds what one call of Due takes in, to a quarter of a million
	// entries. Without sweeps for longer than that takes to gather, the rest is taken in
	// by the calls that continue after it.
	indexRounds = 64
)

// indexLater reports whether the due entry of a claim can wait.
func indexLater(nextAt, now semel.Instant) bool {
	return nextAt == 0 || nextAt.Sub(now) >= indexDelay+indexSlack
}

// arrivals are the records that an entry of a stream names.
func arrivals(sh *shard, x rueidis.XRangeEntry) (came []entry, err error) {
	const each = digestLen + placeLen
	text := x.FieldValues[""]
	for ; len(text) >= each; text = text[each:] {
		place, err := strconv.ParseUint(text[digestLen:each], 10, 63)
		if err != nil {
			return nil, notOurs(sh.new, x.ID)
		}
		came = append(came, entry{sh, text[:digestLen], float64(place)})
	}
	if text != "" || came == nil {
		return nil, notOurs(sh.new, x.ID)
	}
	return came, nil
}

func notOurs(key, entry string) error {
	return fmt.Errorf("redisstore: %s has the entry %q, which is not one of this program", key, entry)
}

// takeIn gives entries to all records that are in the streams and may be due by then, or
// says that there are more of them than one call takes in. It costs a round trip to each
// server, and two more for every round.
func (s *Store) takeIn(ctx context.Context, until semel.Instant) (waiting bool, err error) {
	old := strconv.FormatInt(max(0, millis(until.Add(-indexDelay))), 10)
	// Names of entries never go back. When a server's clock was set back, they stand
	// still, and say nothing any more: what is in the future is taken in as well.
	future := strconv.FormatInt(max(millis(s.clock.now().Add(indexSlack)), millis(until.Add(-indexDelay))+1), 10)
	open := make([]int, len(s.keys.shards))
	for i := range open {
		open[i] = i
	}
	for round := 0; len(open) > 0 && round < indexRounds; round++ {
		if open, err = s.takeInOnce(ctx, open, old, future); err != nil {
			return false, err
		}
	}
	return len(open) > 0, nil
}

func millis(at semel.Instant) int64 { return int64(at) / int64(time.Millisecond) }

// takeInOnce takes in some of the entries of some shards, up to the one and from the
// other on, and returns those that may have more.
func (s *Store) takeInOnce(ctx context.Context, shards []int, old, future string) (more []int, err error) {
	c := s.link.client()
	count := int64(indexRound / len(s.keys.shards))
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult {
		cmds := make([]rueidis.Completed, 0, 2*len(shards))
		for _, i := range shards {
			sh := &s.keys.shards[i]
			cmds = append(cmds,
				c.B().Xrange().Key(sh.new).Start("-").End(old).Count(count).Build(),
				c.B().Xrange().Key(sh.new).Start(future).End("+").Count(count).Build())
		}
		return c.DoMulti(ctx, cmds...)
	})
	if err != nil {
		return nil, s.failed("index", err)
	}
	var runs []run
	for n, res := range results {
		found, err := res.AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, s.failed("index", err)
		}
		i := shards[n/2]
		if int64(len(found)) == count && (len(more) == 0 || more[len(more)-1] != i) {
			more = append(more, i)
		}
		taken, err := takeInRuns(&s.keys.shards[i], found)
		if err != nil {
			return nil, err
		}
		runs = append(runs, taken...)
	}
	return more, s.reindex(ctx, runs)
}

// reindex makes runs of scriptIndex.
func (s *Store) reindex(ctx context.Context, runs []run) error {
	if len(runs) == 0 {
		return nil
	}
	c := s.link.client()
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult { return evalAll(ctx, c, scriptIndex, runs) })
	if err != nil {
		return s.failed("index", err)
	}
	for _, res := range results {
		if err := res.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return s.failed("index", err)
		}
	}
	return nil
}

// takeInRuns are the runs of scriptIndex that take in entries.
func takeInRuns(sh *shard, found []rueidis.XRangeEntry) (runs []run, err error) {
	for len(found) > 0 {
		keys := []string{sh.due, sh.born, sh.new}
		args := []string{""}
		var places []string
		for len(found) > 0 && len(places) < indexBatch {
			came, err := arrivals(sh, found[0])
			if err != nil {
				return nil, err
			}
			args, found = append(args, found[0].ID), found[1:]
			for _, en := range came {
				keys = append(keys, en.record())
				places = append(places, en.scoreText())
			}
		}
		args[0] = strconv.Itoa(len(args) - 1)
		runs = append(runs, run{keys, append(args, places...)})
	}
	return runs, nil
}

// setRight moves due entries that were too early to where they belong, and removes those
// of records that are gone or are never due.
func (s *Store) setRight(ctx context.Context, early []entry) error {
	all := spread{most: indexBatch}
	for _, en := range early {
		if en.foreign() {
			continue
		}
		r := all.of(en.shard, en.shard.due, en.shard.born, en.shard.new)
		r.keys = append(r.keys, en.record())
	}
	return s.reindex(ctx, all.runs())
}
