package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
)

var _ semel.EvidenceStore = (*Store)(nil)

// maxNumber is more than there will be entries, and leaves room to add a limit.
const maxNumber = 1 << 62

// AppendEvidence is [semel.EvidenceStore.AppendEvidence]. One statement appends all
// of the entries: a crash before its commit leaves none, a crash after it leaves
// all. When ctx ends meanwhile, AppendEvidence returns at once and the statement
// goes on.
func (s *Store) AppendEvidence(ctx context.Context, entries []semel.Entry) error {
	if err := s.usable(ctx); err != nil || len(entries) == 0 {
		return err
	}
	c := newEntryColumns(len(entries), entriesSize(entries))
	for i := range entries {
		c.add(&entries[i])
	}
	if err := s.change(ctx, newStatement(s.log.append, c.subject, c.leaf, c.opening).prepare()); err != nil {
		return fmt.Errorf("pgstore: append evidence: %w", err)
	}
	return nil
}

// ReadEvidence is [semel.EvidenceStore.ReadEvidence]. It gives the entries their
// numbers that have none yet, unless enough have them to answer without. Where
// commits wait for a standby, what it returns is there too.
func (s *Store) ReadEvidence(ctx context.Context, from uint64, limit int) ([]semel.Entry, error) {
	if err := s.usable(ctx); err != nil || limit <= 0 {
		return nil, err
	}
	list, err := s.readEvidence(ctx, from, limit)
	if err == nil && len(list) < limit {
		list, err = s.readFresh(ctx, list, from, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: evidence from number %d on: %w", from, err)
	}
	return list, nil
}

// readFresh adds entries to a list that get their numbers only now.
func (s *Store) readFresh(ctx context.Context, list []semel.Entry, from uint64, limit int) ([]semel.Entry, error) {
	numbered, err := s.number(ctx)
	if err != nil {
		return nil, err
	}
	from += uint64(len(list))
	if numbered <= from {
		return list, nil
	}
	rest, err := s.readEvidence(ctx, from, limit-len(list))
	return append(list, rest...), err
}

// readEvidence reads entries that have numbers.
func (s *Store) readEvidence(ctx context.Context, from uint64, limit int) (list []semel.Entry, err error) {
	if from > maxNumber {
		return nil, nil
	}
	st := newStatement(s.log.read, int8Value(int64(from)), int8Value(int64(from)+int64(min(limit, maxNumber)))).prepare()
	again := func() { list = nil }
	err = s.shown(ctx, st, again, func(row [][]byte) error {
		if n := binary.BigEndian.Uint64(row[0]); n != from+uint64(len(list)) {
			return fmt.Errorf("number %d is missing", from+uint64(len(list)))
		}
		en := semel.Entry{Leaf: append([]byte{}, row[2]...), Opening: bytes.Clone(row[3])}
		copy(en.Subject[:], row[1])
		list = append(list, en)
		return nil
	})
	return list, err
}

// FindEvidence is [semel.EvidenceStore.FindEvidence], by an index.
func (s *Store) FindEvidence(ctx context.Context, subject semel.Subject, from uint64, limit int) (numbers []uint64, err error) {
	if err := s.usable(ctx); err != nil || limit <= 0 || from > maxNumber || subject == (semel.Subject{}) {
		return nil, err
	}
	st := newStatement(s.log.find, byteaValue(subject[:]), int8Value(int64(from)), int8Value(int64(limit))).prepare()
	again := func() { numbers = nil }
	err = s.shown(ctx, st, again, func(row [][]byte) error {
		numbers = append(numbers, binary.BigEndian.Uint64(row[0]))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pgstore: find evidence: %w", err)
	}
	return numbers, nil
}

// shown runs a statement whose rows may be signed for, or told to others. Where
// commits wait for a standby it waits until that has what it has read: after a
// failover another entry could have the same number. Before each run it calls again.
func (s *Store) shown(ctx context.Context, st *statement, again func(), each func(row [][]byte) error) error {
	st.each = each
	batch := []*statement{st}
	if s.log.barrier.any != "" {
		batch = append(batch, newStatement(s.log.barrier).prepare())
	}
	return s.onRead(ctx, func(conn *pgconn.PgConn) error {
		return repeat(ctx, func() error {
			again()
			return executeAll(ctx, conn, batch...)
		})
	})
}

// EraseEvidence is [semel.EvidenceStore.EraseEvidence]. From then on nobody can read
// the openings through the store. Their bytes leave the table with the next vacuum,
// and the server's log and the backups when those are deleted.
//
// Openings are erased in portions. A crash between two leaves the rest; erasing
// again is harmless.
func (s *Store) EraseEvidence(ctx context.Context, from, to uint64) error {
	if err := s.usable(ctx); err != nil || from >= to {
		return err
	}
	numbered, err := s.number(ctx)
	for to = min(to, numbered); err == nil && from < to; from += numberChunk {
		st := newStatement(s.log.erase, int8Value(int64(from)), int8Value(int64(min(from+numberChunk, to))))
		err = s.change(ctx, st.prepare())
	}
	if err != nil {
		return fmt.Errorf("pgstore: erase evidence: %w", err)
	}
	return nil
}

// PutEvidenceTiles is [semel.EvidenceStore.PutEvidenceTiles]. A crash before the
// commit leaves none of the tiles, and whoever integrates the log makes them again,
// from the same leaves; a crash after it leaves all.
func (s *Store) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	if err := s.usable(ctx); err != nil || len(tiles) == 0 {
		return err
	}
	names, data := textColumn(len(tiles), 24), byteaColumn(len(tiles), 256)
	// In one order, so that two who write the same tiles do not wait for each other
	// in a circle.
	for _, n := range slices.Sorted(maps.Keys(tiles)) {
		names.text(n)
		data.bytes(tiles[n])
	}
	if err := s.change(ctx, newStatement(s.log.put, names, data).prepare()); err != nil {
		return fmt.Errorf("pgstore: put tiles: %w", err)
	}
	return nil
}

// EvidenceTile is [semel.EvidenceStore.EvidenceTile]. A tile follows from leaves
// that were shown, so none is waited for.
func (s *Store) EvidenceTile(ctx context.Context, name string) (tile []byte, err error) {
	err = s.query(ctx, newStatement(s.log.tile, textValue(name)).prepare(), func(row [][]byte) error {
		tile = append([]byte{}, row[0]...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pgstore: tile %q: %w", name, err)
	}
	if tile == nil {
		return nil, semel.ErrNotFound
	}
	return tile, nil
}

// change runs a statement that changes the evidence log.
func (s *Store) change(ctx context.Context, st *statement) error {
	return s.writeEvidence(ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		return execute(ctx, conn, st, func([][]byte) error { return nil })
	})
}

// writeEvidence runs a transaction that changes the evidence log by itself. Nothing
// calls it back, as no write of a record. There is one at a time: while commits wait
// for a standby that is away, those who try again would take all connections.
func (s *Store) writeEvidence(ctx context.Context, run func(ctx context.Context, conn *pgconn.PgConn) error) error {
	select {
	case s.logTurn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", semel.ErrNotApplied, ctx.Err())
	}
	done := make(chan error, 1)
	err := s.commits.beside(func(base context.Context) {
		defer func() { <-s.logTurn }()
		done <- s.onRead(base, func(conn *pgconn.PgConn) error {
			return repeat(base, func() error { return run(base, conn) })
		})
	})
	if err != nil {
		<-s.logTurn
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beside runs f, which close waits for, and calls back as it does the batches.
func (c *committer) beside(f func(base context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.active.Go(func() { f(c.base) })
	return nil
}
