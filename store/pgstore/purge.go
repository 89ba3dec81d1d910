package pgstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

// purgeBatch bounds the rows of one deletion, so that its locks are short and what
// it writes to the log comes in small portions.
const purgeBatch = 256

// Purge is [semel.PurgeStore.Purge]. It deletes up to 256 records in a statement.
// A crash between two leaves the rest to be found again.
func (s *Store) Purge(ctx context.Context, refs []semel.Ref) (int, error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	type version struct {
		id       digest
		revision semel.Revision
	}
	versions := make([]version, len(refs))
	for i := range refs {
		versions[i] = version{refs[i].ID.Digest(), refs[i].Revision}
	}
	slices.SortFunc(versions, func(a, b version) int { return slices.Compare(a.id[:], b.id[:]) })
	n := 0
	for part := range slices.Chunk(versions, purgeBatch) {
		ids, revisions := byteaColumn(len(part), 32), byteaColumn(len(part), 16)
		for i := range part {
			ids.bytes(part[i].id[:])
			revisions.bytes(part[i].revision[:])
		}
		deleted, err := s.delete(ctx, newStatement(s.sql.purge, ids, revisions).prepare())
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

// delete runs a deletion. Like a write it is not called back.
func (s *Store) delete(ctx context.Context, st *statement) (deleted []digest, err error) {
	ctx = context.WithoutCancel(ctx)
	err = s.onRead(ctx, func(conn *pgconn.PgConn) error {
		return repeat(ctx, func() error {
			deleted = deleted[:0]
			return execute(ctx, conn, st, func(row [][]byte) error {
				deleted = append(deleted, digestOf(row[0]))
				return nil
			})
		})
	})
	return deleted, err
}

// Archive keeps records in the table idempotency_archive, for [semel.Options].
// When it returns nil they are committed. Records that are there already, in the
// same version, are left alone.
func (s *Store) Archive(ctx context.Context, recs []semel.Record) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for part := range slices.Chunk(recs, purgeBatch) {
		st, err := s.sql.archiving(part)
		if err == nil {
			// A crash before the commit leaves nothing, and the records unpurged. A
			// crash after it has them archived once more, which changes nothing.
			_, err = s.delete(ctx, st)
		}
		if err != nil {
			return fmt.Errorf("pgstore: archive: %w", err)
		}
	}
	return nil
}

func (s *statements) archiving(recs []semel.Record) (*statement, error) {
	ops := make([]*op, len(recs))
	for i := range recs {
		var err error
		if ops[i], err = newOp(semel.Write{Record: recs[i]}); err != nil {
			return nil, err
		}
	}
	c := fillVersions(ops, false)
	key, operation, user, tenant := c.identities(func(i int) *semel.Record { return &recs[i] })
	return newStatement(s.archive, c.id, c.revision, c.record, c.request, c.response, c.status, c.created, c.updated, c.expires,
		key, operation, user, tenant), nil
}
