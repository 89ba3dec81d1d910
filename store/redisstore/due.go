package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// entry is a record as an index of its shard names it.
type entry struct {
	shard  *shard
	digest string
	score  float64 // in the due index when, in the other the place
}

func (en *entry) record() string { return en.shard.records + en.digest }

func (en *entry) scoreText() string { return strconv.FormatFloat(en.score, 'f', 0, 64) }

// forget is the run of scriptForget that removes the entries.
func (en *entry) forget() run {
	return run{keys: []string{en.shard.due, en.shard.born, en.record()}}
}

// Due is [semel.DueStore.Due]; those that have been due for longest come first.
// It costs three round trips to each server, and more where the index has to be
// brought up to date; see index.go.
func (s *Store) Due(ctx context.Context, q semel.DueQuery) (semel.DuePage, error) {
	recs, err := s.dueRecords(ctx, q.Until, q.Limit)
	return semel.DuePage{Records: recs}, err
}

func (s *Store) dueRecords(ctx context.Context, until semel.Instant, limit int) ([]semel.Record, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if limit <= 0 {
		return nil, nil
	}
	// A server whose memory is full refuses to index more. Records that are in
	// the index can be purged all the same, which makes room.
	failed := s.takeIn(ctx, until)
	for round := 1; ; round++ {
		entries, err := s.entries(ctx, until, limit)
		if err != nil {
			return nil, err
		}
		n := min(limit, len(entries))
		recs, err := s.read(ctx, entries[:n])
		early := 0
		// An entry has a coarser time than its record, so a record may stay
		// that is not due for part of a microsecond.
		recs = slices.DeleteFunc(recs, func(r semel.Record) bool {
			if r.NextAt == 0 || micros(r.NextAt) > micros(until) {
				early++
			}
			return r.NextAt == 0 || r.NextAt > until
		})
		if early > 0 && round < indexRounds && failed == nil {
			// Where some are too early, most are, as a rule.
			failed = s.setRight(ctx, entries)
			continue
		}
		if len(recs) > 0 {
			return recs, nil
		}
		return nil, errors.Join(failed, err)
	}
}

// entries are those of the due index until a time, limit of each shard or more, and
// the earliest first. There are more where limit is small, for those that are too early
// are set right by so many at a time.
func (s *Store) entries(ctx context.Context, until semel.Instant, limit int) ([]entry, error) {
	c := s.link.client()
	count := int64(max(limit, indexRound/len(s.keys.shards)))
	cmds := make([]rueidis.Completed, len(s.keys.shards))
	latest := strconv.FormatInt(micros(until), 10)
	for i := range s.keys.shards {
		cmds[i] = c.B().Zrange().Key(s.keys.shards[i].due).Min("-inf").Max(latest).Byscore().Limit(0, count).Withscores().Build()
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
	return due, nil
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
		if err := res.Error(); err != nil && !rueidis.IsRedisNil(err) {
			bad = errors.Join(bad, s.failed("forget", err))
		}
	}
	return recs, bad
}

// decodeAt reads the record that an entry names.
func (s *Store) decodeAt(c rueidis.Client, en entry, value []byte) (semel.Record, error) {
	rec, err := recordcodec.Decode(value[min(headLen, len(value)):])
	if err != nil {
		return semel.Record{}, fmt.Errorf("redisstore: the record %x: %w", en.digest, err)
	}
	if d := rec.ID.Digest(); string(d[:]) != en.digest {
		s.link.replace(c)
		return semel.Record{}, fmt.Errorf("redisstore: the record %x: %w", en.digest, errMixedUp)
	}
	return rec, nil
}
