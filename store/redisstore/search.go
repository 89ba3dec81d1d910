package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// searchBatch bounds the records that one search looks at.
const searchBatch = 5000

// readBatch bounds the records that are in memory beside a page.
const readBatch = 500

// Search is [semel.SearchStore.Search]: it reads records from the newest to the
// oldest, a few thousand in one call at most, and compares each with the query.
// The order is that in which their identities were first stored, which a record
// keeps for as long as it is there: the place, and then the digest. What is still in a
// stream is listed from there.
func (s *Store) Search(ctx context.Context, q semel.Query) (semel.Page, error) {
	if err := s.enter(); err != nil {
		return semel.Page{}, err
	}
	defer s.leave()
	last, err := parseCursor(q.Cursor)
	if err != nil {
		return semel.Page{}, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), semel.DefaultSearchLimit), semel.MaxSearchLimit)
	var page semel.Page
	for looked := 0; ; {
		entries, more, err := s.listed(ctx, last, limit)
		if err != nil {
			return semel.Page{}, err
		}
		if n := searchBatch - looked; len(entries) > n {
			entries, more = entries[:n], true
		}
		looked += len(entries)
		for len(entries) > 0 {
			batch := entries[:min(readBatch, len(entries))]
			entries, last = entries[len(batch):], &batch[len(batch)-1]
			looks, err := s.read(ctx, batch)
			if err != nil {
				return semel.Page{}, err
			}
			for i, l := range looks {
				if l.bad != nil {
					page.Unreadable = append(page.Unreadable, l.bad)
				}
				if l.rec == nil || !q.Matches(l.rec) {
					continue
				}
				page.Records = append(page.Records, *l.rec)
				if len(page.Records) == limit {
					if more || len(entries) > 0 || i+1 < len(batch) {
						page.Next = l.entry.cursor()
					}
					return page, nil
				}
			}
		}
		switch {
		case !more:
			return page, nil
		case looked >= searchBatch:
			page.Next = last.cursor()
			return page, nil
		}
	}
}

// newer orders entries as they are listed: negative where en comes before other.
func (en *entry) newer(other *entry) int {
	return cmp.Or(cmp.Compare(other.score, en.score), cmp.Compare(other.digest, en.digest))
}

// listed returns entries of all shards that come after last, the newest first and
// without a gap; at least one if there is any. More says whether others follow.
func (s *Store) listed(ctx context.Context, last *entry, limit int) (entries []entry, more bool, err error) {
	count := int64(max(limit*2, readBatch)/len(s.keys.shards) + 8)
	for {
		entries, waiting, more, err := s.listedOf(ctx, last, count)
		switch {
		case err != nil:
			return nil, false, err
		case waiting:
			// To read all of what is in a stream would take too long, and it has
			// another order.
			if _, err := s.takeIn(ctx, s.clock.now().Add(2*indexDelay)); err != nil {
				return nil, false, err
			}
		case len(entries) > 0 || !more:
			return entries, more, nil
		default: // many have the place of last
			count *= 2
		}
	}
}

// listedOf is listed, with so many entries of each index, and perhaps none. Waiting says
// that a stream has more entries than are read.
func (s *Store) listedOf(ctx context.Context, last *entry, count int64) (entries []entry, waiting, more bool, err error) {
	highest := "+inf"
	if last != nil {
		highest = last.scoreText() // which others may have too
	}
	c := s.link.client()
	streamed := int64(searchBatch / len(s.keys.shards))
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult {
		cmds := make([]rueidis.Completed, 0, 2*len(s.keys.shards))
		for i := range s.keys.shards {
			sh := &s.keys.shards[i]
			cmds = append(cmds,
				// In this order: what is taken in meanwhile is in one of them or in both.
				c.B().Xrange().Key(sh.new).Start("-").End("+").Count(streamed).Build(),
				c.B().Zrange().Key(sh.born).Min(highest).Max("-inf").Byscore().Rev().Limit(0, count).Withscores().Build())
		}
		return c.DoMulti(ctx, cmds...)
	})
	if err != nil {
		return nil, false, false, s.failed("search", err)
	}
	var frontier *entry // after it an index has entries that were not read
	for i := range s.keys.shards {
		sh := &s.keys.shards[i]
		came, err := results[2*i].AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, false, false, s.failed("search", err)
		}
		waiting = waiting || int64(len(came)) == streamed
		for _, x := range came {
			list, err := arrivals(sh, x)
			if err != nil {
				return nil, false, false, err
			}
			entries = append(entries, list...)
		}
		born, err := results[2*i+1].AsZScores()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, false, false, s.failed("search", err)
		}
		var en entry
		for _, z := range born {
			if en = (entry{sh, z.Member, z.Score}); len(en.digest) != digestLen {
				return nil, false, false, notOurs(sh.born, en.digest)
			}
			entries = append(entries, en)
		}
		if int64(len(born)) == count {
			more = true
			if frontier == nil || en.newer(frontier) < 0 {
				frontier = &en
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.newer(&b) })
	// A digest has several places when its record was purged and stored anew.
	seen := map[string]bool{}
	entries = slices.DeleteFunc(entries, func(en entry) bool {
		out := seen[en.digest] || last != nil && last.newer(&en) >= 0 || frontier != nil && frontier.newer(&en) < 0
		seen[en.digest] = true
		return out
	})
	return entries, waiting, more, nil
}

// cursorLen is how many bytes a cursor has before it is encoded: a place and a digest.
const cursorLen = 8 + digestLen

// cursor names an entry as the last one that was looked at. That of none is before all.
func (en *entry) cursor() string {
	if en == nil {
		en = &entry{digest: string(make([]byte, digestLen))} // no identity has this digest
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, cursorLen), uint64(en.score))
	return base64.RawURLEncoding.EncodeToString(append(b, en.digest...))
}

// parseCursor is the reverse of cursor; the empty one gives nil.
func parseCursor(cursor string) (*entry, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != cursorLen || binary.BigEndian.Uint64(b) >= 1<<53 {
		return nil, errCursor
	}
	return &entry{score: float64(binary.BigEndian.Uint64(b)), digest: string(b[8:])}, nil
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}
