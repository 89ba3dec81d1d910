package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// Due is [semel.DueStore.Due], in the order of the due index: by microseconds, and then by
// the digest. A page costs three round trips to each server, and more where the index has
// to be brought up to date; see index.go.
//
// The place to continue after is that of an entry. An entry that is too early is moved to
// where it belongs before a page is read past it, so that its record is in the page where
// it belongs; an entry that would have to move back there is none.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (page semel.DuePage, err error) {
	if err := s.enter(); err != nil {
		return page, err
	}
	defer s.leave()
	last, err := parseCursor(q.After)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	// A server whose memory is full refuses to index more. Records that are in
	// the index can be purged all the same, which makes room.
	waiting, failed := s.takeIn(ctx, q.Until)
	for round := 1; ; round++ {
		if waiting || round > indexRounds {
			// There is more to bring up to date than one call does, and then more to find.
			return semel.DuePage{Next: last.cursor()}, nil
		}
		found, more, err := s.dueEntries(ctx, last, q.Until, q.Limit)
		if err != nil {
			return page, err
		}
		looked := upTo(found, q.Limit)
		looks, err := s.read(ctx, looked)
		if err != nil {
			return page, err
		}
		if failed == nil && slices.ContainsFunc(looks, look.early) {
			// Where some are too early, most are, as a rule.
			failed = s.setRight(ctx, found)
			continue
		}
		for _, l := range looks {
			switch {
			case l.bad != nil:
				page.Unreadable = append(page.Unreadable, l.bad)
			case l.rec != nil && l.rec.NextAt != 0 && l.rec.NextAt <= q.Until:
				page.Records = append(page.Records, *l.rec)
			}
		}
		if more || len(looked) < len(found) {
			page.Next = lastOf(looked).cursor()
		} else if len(page.Records) == 0 && failed != nil {
			return semel.DuePage{}, failed
		}
		return page, nil
	}
}

// upTo is the beginning of some entries, with up to so many records.
func upTo(entries []entry, limit int) []entry {
	for i := range entries {
		if entries[i].foreign() {
			continue
		}
		if limit--; limit == 0 {
			return entries[:i+1]
		}
	}
	return entries
}

// lastOf is the last entry that names a record; nil if there is none.
func lastOf(entries []entry) *entry {
	for i := len(entries) - 1; i >= 0; i-- {
		if !entries[i].foreign() {
			return &entries[i]
		}
	}
	return nil
}

// dueEntries are entries of the due index after one and until a time, the earliest first
// and without a gap: at least one that names a record, if there is any. More says whether
// others follow. It reads more than are asked for where limit is small, for those that are
// too early are set right by so many at a time.
func (s *Store) dueEntries(ctx context.Context, last *entry, until semel.Instant, limit int) (entries []entry, more bool, err error) {
	for count := max(limit, indexRound/len(s.keys.shards)) + 1; ; count *= 2 {
		entries, more, err = s.dueEntriesOf(ctx, last, until, int64(count))
		if err != nil || !more || lastOf(entries) != nil {
			return entries, more, err
		} // or many have the score of last
	}
}

// dueEntriesOf is dueEntries with so many entries of each shard, and perhaps none.
func (s *Store) dueEntriesOf(ctx context.Context, last *entry, until semel.Instant, count int64) (entries []entry, more bool, err error) {
	c := s.link.client()
	earliest, latest := "-inf", strconv.FormatInt(micros(until), 10)
	if last != nil {
		earliest = last.scoreText() // which others may have too
	}
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult {
		cmds := make([]rueidis.Completed, len(s.keys.shards))
		for i := range s.keys.shards {
			cmds[i] = c.B().Zrange().Key(s.keys.shards[i].due).Min(earliest).Max(latest).Byscore().Limit(0, count).Withscores().Build()
		}
		return c.DoMulti(ctx, cmds...)
	})
	if err != nil {
		return nil, false, s.failed("due", err)
	}
	var frontier *entry // after it a shard has entries that were not read
	for i, res := range results {
		members, err := res.AsZScores()
		if err != nil {
			return nil, false, s.failed("due", err)
		}
		for _, m := range members {
			entries = append(entries, entry{shard: &s.keys.shards[i], digest: m.Member, score: m.Score})
		}
		if int64(len(members)) == count {
			more = true
			if end := entries[len(entries)-1]; frontier == nil || end.earlier(frontier) < 0 {
				frontier = &end
			}
		}
	}
	entries = slices.DeleteFunc(entries, func(en entry) bool {
		return last != nil && en.earlier(last) <= 0 || frontier != nil && en.earlier(frontier) > 0
	})
	slices.SortFunc(entries, func(a, b entry) int { return a.earlier(&b) })
	return entries, more, nil
}

// earlier orders entries as they are due: negative where en comes before other.
func (en *entry) earlier(other *entry) int {
	return cmp.Or(cmp.Compare(en.score, other.score), cmp.Compare(en.digest, other.digest))
}
