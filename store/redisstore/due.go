package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// entry is a record as an index of its shard names it.
type entry struct {
	shard  *shard
	digest string
	score  float64 // in the due index
	place  string  // in the stream; "" in the due index
}

func (en *entry) record() string { return en.shard.records + en.digest }

// forget is the run of scriptForget that removes the entry.
func (en *entry) forget() run {
	if en.place != "" {
		return run{keys: []string{en.record(), en.shard.born}, args: []string{"XDEL", en.place}}
	}
	return run{keys: []string{en.record(), en.shard.due}, args: []string{"ZREM", en.digest}}
}

// Due is [semel.DueStore.Due]; those that have been due for longest come first.
// It costs two round trips to each server.
func (s *Store) Due(ctx context.Context, until semel.Instant, limit int) ([]semel.Record, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if limit <= 0 {
		return nil, nil
	}
	c := s.link.client()
	cmds := make([]rueidis.Completed, shardCount)
	for i := range s.keys.shards {
		cmds[i] = c.B().Zrange().Key(s.keys.shards[i].due).Min("-inf").Max(score(until)).Byscore().Limit(0, int64(limit)).Withscores().Build()
	}
	var due []entry
	for i, res := range c.DoMulti(ctx, cmds...) {
		members, err := res.AsZScores()
		if err != nil {
			return nil, s.failed("due", err)
		}
		for _, m := range members {
			due = append(due, entry{shard: &s.keys.shards[i], digest: m.Member, score: m.Score})
		}
	}
	slices.SortFunc(due, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.digest, b.digest))
	})
	recs, err := s.read(ctx, due[:min(limit, len(due))])
	// An entry has a coarser time than its record, and a record may have
	// changed since its entry was read.
	recs = slices.DeleteFunc(recs, func(r semel.Record) bool { return r.NextAt == 0 || r.NextAt > until })
	if len(recs) > 0 {
		return recs, nil
	}
	return nil, err
}

// read returns the records of entries, in their order. Those that are gone are
// left out. So are those that can't be read: the error is the last one's, and the
// others are returned with it.
func (s *Store) read(ctx context.Context, entries []entry) ([]semel.Record, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	c := s.link.client()
	cmds := make([]rueidis.Completed, len(entries))
	for i, en := range entries {
		cmds[i] = c.B().Get().Key(en.record()).Build()
	}
	recs := make([]semel.Record, 0, len(entries))
	var gone []run
	var bad error
	for i, res := range c.DoMulti(ctx, cmds...) {
		en := entries[i]
		value, err := res.AsBytes()
		if rueidis.IsRedisNil(err) {
			gone = append(gone, en.forget())
			continue
		}
		if err != nil {
			return nil, s.failed("read", err)
		}
		rec, err := s.decodeAt(c, en, value)
		if err != nil {
			bad = err
			continue
		}
		recs = append(recs, rec)
	}
	// Entries without a record are left when somebody else deletes records, or
	// when the server evicts them. A crash before this leaves them for next time.
	for _, res := range evalAll(ctx, c, scriptForget, gone) {
		if err := res.Error(); err != nil {
			bad = errors.Join(bad, s.failed("forget", err))
		}
	}
	return recs, bad
}

// decodeAt reads the record that an entry names.
func (s *Store) decodeAt(c rueidis.Client, en entry, value []byte) (semel.Record, error) {
	rec, err := recordcodec.Decode(value[min(placeLen, len(value)):])
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: the record %x: %w", en.digest, err)
	}
	if d := rec.ID.Digest(); string(d[:]) != en.digest {
		return semel.Record{}, s.mixedUp(c, rec.ID)
	}
	return rec, nil
}
