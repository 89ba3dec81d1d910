package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
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
// keeps for as long as it is there.
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
	var bad error
	for looked := 0; ; {
		entries, more, err := s.listed(ctx, last, limit)
		if err != nil {
			return semel.Page{}, err
		}
		if n := min(readBatch, searchBatch-looked); len(entries) > n {
			entries, more = entries[:n], true
		}
		recs, err := s.read(ctx, entries)
		if err != nil {
			if recs == nil {
				return semel.Page{}, err
			}
			bad = err
		}
		at := 0
		for i := range recs {
			d := recs[i].ID.Digest()
			for entries[at].digest != string(d[:]) { // what was gone
				at++
			}
			if !q.Matches(&recs[i]) {
				continue
			}
			page.Records = append(page.Records, recs[i])
			if len(page.Records) == limit {
				if more || at+1 < len(entries) {
					page.Next = entries[at].cursor()
				}
				return page, nil
			}
		}
		looked += len(entries)
		switch {
		case !more && len(page.Records) == 0:
			return page, bad
		case !more:
			return page, nil
		case looked >= searchBatch:
			page.Next = entries[len(entries)-1].cursor()
			return page, nil
		}
		last = &entries[len(entries)-1]
	}
}

// newer orders entries as they are listed: negative where en comes before other.
func (en *entry) newer(other *entry) int {
	return cmp.Or(cmp.Compare(other.place, en.place), cmp.Compare(other.digest, en.digest))
}

// listed returns entries of all shards that come after last, the newest first and
// without a gap; at least one if there is any. More says whether others follow.
func (s *Store) listed(ctx context.Context, last *entry, limit int) (entries []entry, more bool, err error) {
	count := limit/shardCount*2 + 8
	from := "+"
	if last != nil {
		from = last.place // which other shards may have too
	}
	c := s.link.client()
	cmds := make([]rueidis.Completed, shardCount)
	for i := range cmds {
		cmds[i] = c.B().Xrevrange().Key(s.keys.shards[i].born).End(from).Start("-").Count(int64(count)).Build()
	}
	var frontier *entry // after it a shard has entries that were not read
	for i, res := range c.DoMulti(ctx, cmds...) {
		found, err := res.AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, false, s.failed("search", err)
		}
		var en entry
		for _, f := range found {
			en = entry{shard: &s.keys.shards[i], digest: f.FieldValues[""], place: f.ID}
			if len(en.digest) != digestLen || !validPlace(en.place) {
				return nil, false, fmt.Errorf("redisstore: %s has the entry %s, which is not one of this program", en.shard.born, f.ID)
			}
			if last == nil || last.newer(&en) < 0 {
				entries = append(entries, en)
			}
		}
		if len(found) == count {
			more = true
			if frontier == nil || en.newer(frontier) < 0 {
				frontier = &en
			}
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.newer(&b) })
	n := len(entries)
	for frontier != nil && n > 0 && frontier.newer(&entries[n-1]) < 0 {
		n--
	}
	return entries[:n], more, nil
}

// cursor names an entry as the last one that was looked at.
func (en *entry) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(en.place + en.digest))
}

// parseCursor is the reverse of cursor; the empty one gives nil.
func parseCursor(cursor string) (*entry, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != placeLen+digestLen || !validPlace(string(b[:placeLen])) {
		return nil, errCursor
	}
	return &entry{place: string(b[:placeLen]), digest: string(b[placeLen:])}, nil
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}
