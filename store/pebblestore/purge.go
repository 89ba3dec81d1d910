package pebblestore

import (
	"context"

	"github.com/semelhq/semel"
)

// Purge is [semel.PurgeStore.Purge]. It is one synced batch, or a few when the
// records are many or other calls come in between.
//
// A crash before it is durable leaves the records, which are found due again,
// each with its place in the due index. A crash after it leaves nothing to do.
//
// Their space comes back by compaction, which Pebble begins by itself where the
// deleted outweigh what is left, once the deletions have left the memory table:
// when that is full, or at the next Open.
func (s *Store) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	var ops []*op
	var failed error
	for i := range refs {
		if refs[i].Revision.IsZero() {
			continue
		}
		o := &op{digest: refs[i].ID.Digest(), due: never}
		cur, err := s.change(&refs[i].ID, refs[i].Revision, o)
		if err != nil {
			failed = err
			break
		}
		if !cur.refused {
			ops = append(ops, o)
		}
	}
	if len(ops) > 0 {
		if err := s.await(ctx, ops...); err != nil {
			return 0, err
		}
	}
	return len(ops), failed
}
