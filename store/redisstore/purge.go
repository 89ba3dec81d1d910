package redisstore

import (
	"context"

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
	var runs []run
	open := make([]*run, len(s.keys.shards))
	for i := range refs {
		if refs[i].Revision.IsZero() {
			continue
		}
		d := refs[i].ID.Digest()
		sh := s.keys.shard(&d)
		n := sh.index
		if open[n] != nil && len(open[n].args) == purgeBatch {
			runs = append(runs, *open[n])
			open[n] = nil
		}
		if open[n] == nil {
			open[n] = &run{keys: []string{sh.due, sh.born}}
		}
		open[n].keys = append(open[n].keys, sh.records+string(d[:]))
		open[n].args = append(open[n].args, string(refs[i].Revision[:]))
	}
	for _, r := range open {
		if r != nil {
			runs = append(runs, *r)
		}
	}
	total := 0
	var failed error
	for _, res := range evalAll(ctx, s.link.client(), scriptPurge, runs) {
		n, err := res.AsInt64()
		if err != nil {
			failed = s.failed("purge", err)
			continue
		}
		total += int(n)
	}
	return total, failed
}
