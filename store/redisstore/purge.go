package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
)

// purgeBatch is how many records one script deletes at most: a script keeps its
// server from everything else.
const purgeBatch = 64

// Purge is [semel.PurgeStore.Purge]: a script for each shard, all on the way at
// once.
//
// Each script is atomic. A crash in between leaves records, with their entries,
// which are found due again.
func (s *Store) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	all := spread{most: purgeBatch}
	for i := range refs {
		if refs[i].Revision.IsZero() {
			continue
		}
		d := refs[i].ID.Digest()
		sh, key := s.keys.find(&d)
		r := all.of(sh, sh.due, sh.born)
		r.keys, r.args = append(r.keys, key), append(r.args, string(refs[i].Revision[:]))
	}
	total := 0
	var failed error
	runs := all.runs()
	if len(runs) == 0 {
		return 0, nil
	}
	c := s.link.client()
	results, err := s.ask(ctx, func(ctx context.Context) []rueidis.RedisResult { return evalAll(ctx, c, scriptPurge, runs) })
	if err != nil {
		return 0, s.failed("purge", err)
	}
	for _, res := range results {
		n, err := res.AsInt64()
		if err != nil {
			failed = s.failed("purge", err)
			continue
		}
		total += int(n)
	}
	return total, failed
}
