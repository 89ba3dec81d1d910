package pebblestore

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/semelhq/semel/store"
)

// Purge is [store.Purger.Purge]. The records change concurrently, so they share one synced batch,
// or a few.
//
// A crash before it is durable leaves the records, each with its place in the due index, so the
// next sweep finds them again. A crash after it leaves nothing to do.
//
// Compaction frees their space. Pebble starts it where deleted records outweigh the others, once
// the deletions have left the memory table, which happens when that is full or at the next Open.
func (s *Store) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	var purged atomic.Int64
	errs := make([]error, len(refs))
	var work sync.WaitGroup
	for i := range refs {
		if refs[i].Revision.IsZero() {
			continue
		}
		work.Go(func() {
			o := &op{digest: refs[i].ID.Digest(), due: never, attributes: refs[i].Attributes}
			_, applied, err := s.change(ctx, &refs[i].ID, refs[i].Revision, o)
			if errs[i] = err; applied {
				purged.Add(1)
			}
		})
	}
	work.Wait()
	return int(purged.Load()), cmp.Or(errs...)
}
