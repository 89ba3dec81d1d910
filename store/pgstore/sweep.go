package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// Due is [store.DueIndex.Due], in the order of NextAt to the nanosecond. An unreadable row has
// its place in a page, too, so the next page begins after it.
func (s *Store) Due(ctx context.Context, q store.DueQuery) (page store.DuePage, err error) {
	from, err := decodePlace(q.After, inDue)
	if err != nil || q.Limit <= 0 {
		return page, err
	}
	from = cmp.Or(from, &place{math.MinInt64, []byte{}})
	rows, err := query(ctx, s, scanRow, newStatement(s.sql.due, bigint(int64(q.Until)), bigint(from.at), from.id, bigint(int64(q.Limit)), bigint(int64(paging.New(ctx).Bytes))))
	if err != nil {
		return page, fmt.Errorf("pgstore: due: %w", err)
	}
	for _, r := range rows {
		if r.cut() {
			page.Next = from.text(inDue)
			return page, nil
		}
		from = &place{r.at, r.id}
		if rec, err := r.decode(); err != nil {
			page.Unreadable = append(page.Unreadable, err)
		} else {
			page.Records = append(page.Records, *rec)
		}
	}
	if len(rows) == q.Limit {
		page.Next = from.text(inDue)
	}
	return page, nil
}

// Purge is [store.Purger.Purge]. It deletes up to 256 records in a statement, in
// the order of identities. A crash between two leaves the rest to be found again.
func (s *Store) Purge(ctx context.Context, refs []store.Ref) (int, error) {
	ops := make([]*op, len(refs))
	for i := range refs {
		ops[i] = &op{id: refs[i].ID.Digest(), write: store.Write{Expect: refs[i].Revision}}
	}
	slices.SortFunc(ops, byIdentity)
	n := 0
	for part := range slices.Chunk(ops, maxBatch) {
		deleted, err := change(ctx, s, func(v values) (d digest, _ error) { copy(d[:], v[0]); return d, nil },
			newStatement(s.sql.purge, append(arrays(nil, purgeColumns, part), milliseconds(s.opts.LockTimeout))...))
		if err != nil {
			return n, fmt.Errorf("pgstore: purge: %w", err)
		}
		n += len(deleted)
		for i := range deleted {
			s.changed(&deleted[i])
		}
	}
	return n, nil
}

// Archive keeps records in the table idempotency_archive, for [semel.Options]. When it returns
// nil they are committed. It skips records that it already has in the same version.
func (s *Store) Archive(ctx context.Context, recs []semel.Record) error {
	for part := range slices.Chunk(recs, maxBatch) {
		ops := make([]*op, len(part))
		for i := range part {
			o, err := s.newOp(store.Write{Record: new(part[i])})
			if err != nil {
				return fmt.Errorf("pgstore: archive: %w", err)
			}
			ops[i] = o
		}
		// A crash before the commit leaves nothing, and the records unpurged. After a later
		// crash they are archived once more, which changes nothing.
		if _, err := change(ctx, s, ignore, statement{sql: s.sql.archive, args: arrays(nil, recordColumns, ops)}); err != nil {
			return fmt.Errorf("pgstore: archive: %w", err)
		}
	}
	return nil
}
