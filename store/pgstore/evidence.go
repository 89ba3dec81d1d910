package pgstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store"
)

// maxNumber is larger than the number of entries can get, and leaves room to add a limit.
const maxNumber = 1 << 62

// AppendEvidence is [store.EvidenceLog.AppendEvidence]. One statement appends all of the
// entries: a crash before its commit leaves none, a crash after it leaves all. If ctx ends
// meanwhile, AppendEvidence returns at once and the statement continues.
func (s *Store) AppendEvidence(ctx context.Context, entries []store.Entry) error {
	if err := s.changeLog(ctx, newStatement(s.log.append, arrays(nil, entryColumns, withID(nil, nil, entries))...)); err != nil {
		return fmt.Errorf("pgstore: append evidence: %w", err)
	}
	return nil
}

// ReadEvidence is [store.EvidenceLog.ReadEvidence]. It numbers the entries that have no number
// yet, unless it can answer without them. If commits wait for a standby, the standby has the
// entries that it returns.
func (s *Store) ReadEvidence(ctx context.Context, from uint64, limit int) ([]store.Entry, error) {
	if limit <= 0 {
		return nil, nil
	}
	list, err := s.readEvidence(ctx, from, limit)
	if err == nil && len(list) < limit {
		var numbered uint64
		if numbered, err = s.number(ctx); err == nil && numbered > from+uint64(len(list)) {
			list, err = s.readEvidence(ctx, from, limit)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: evidence from number %d on: %w", from, err)
	}
	return list, nil
}

// logged is a row of the log. Reads of entries have a barrier, because somebody may sign for
// them: after a failover another entry could have the same number.
type logged struct {
	number int64
	entry  store.Entry
}

func scanLogged(v values) (l logged, err error) {
	l.number, _ = v.number(0)
	copy(l.entry.Subject[:], v[1])
	l.entry.Leaf, l.entry.Opening = bytes.Clone(v[2]), bytes.Clone(v[3])
	return l, nil
}

func (s *Store) readEvidence(ctx context.Context, from uint64, limit int) (list []store.Entry, err error) {
	if from > maxNumber {
		return nil, nil
	}
	rows, err := query(ctx, s, scanLogged, newStatement(s.log.read, bigint(int64(from)), bigint(int64(from)+int64(min(limit, maxNumber)))))
	for i, l := range rows {
		if next := from + uint64(i); uint64(l.number) != next {
			return nil, fmt.Errorf("number %d is missing", next)
		}
		list = append(list, l.entry)
	}
	return list, err
}

// FindEvidence is [store.EvidenceLog.FindEvidence], by an index.
func (s *Store) FindEvidence(ctx context.Context, subject store.Subject, from uint64, limit int) (numbers []uint64, err error) {
	if limit <= 0 || from > maxNumber || subject == (store.Subject{}) {
		return nil, nil
	}
	rows, err := query(ctx, s, scanLogged, newStatement(s.log.find, subject[:], bigint(int64(from)), bigint(int64(limit))))
	if err != nil {
		return nil, fmt.Errorf("pgstore: find evidence: %w", err)
	}
	for _, l := range rows {
		numbers = append(numbers, uint64(l.number))
	}
	return numbers, nil
}

// EraseEvidence is [store.EvidenceLog.EraseEvidence]. From then on nobody can read the openings
// through the store. Their bytes leave the table with the next vacuum, and leave the server's
// log and your backups when you delete those. It works in chunks: a crash between two leaves
// the rest, and erasing again is harmless.
func (s *Store) EraseEvidence(ctx context.Context, from, to uint64) error {
	numbered, err := s.number(ctx)
	for to = min(to, numbered); err == nil && from < to; from += numberChunk {
		err = s.changeLog(ctx, newStatement(s.log.erase, bigint(int64(from)), bigint(int64(min(from+numberChunk, to)))))
	}
	if err != nil {
		return fmt.Errorf("pgstore: erase evidence: %w", err)
	}
	return nil
}

// PutEvidenceTiles is [store.EvidenceLog.PutEvidenceTiles]. A crash before the commit leaves
// none of the tiles, and the next integration makes them again; a crash after it leaves all.
func (s *Store) PutEvidenceTiles(ctx context.Context, tiles map[string][]byte) error {
	// In a fixed order, so that two writers of the same tiles can't deadlock.
	names := slices.Sorted(maps.Keys(tiles))
	data := make([][]byte, len(names))
	for i, n := range names {
		data[i] = tiles[n]
	}
	if err := s.changeLog(ctx, newStatement(s.log.put, array("text", names), array("bytea", data))); err != nil {
		return fmt.Errorf("pgstore: put tiles: %w", err)
	}
	return nil
}

// EvidenceTile is [store.EvidenceLog.EvidenceTile]. It needs no barrier: a tile follows from
// leaves that somebody has read.
func (s *Store) EvidenceTile(ctx context.Context, name string) ([]byte, error) {
	tiles, err := query(ctx, s, func(v values) ([]byte, error) { return bytes.Clone(v[0]), nil }, newStatement(s.log.tile, []byte(name)))
	if err != nil {
		return nil, fmt.Errorf("pgstore: tile %q: %w", name, err)
	}
	if len(tiles) == 0 {
		return nil, semel.ErrNotFound
	}
	return tiles[0], nil
}

// logWrite is a transaction that changes the evidence log by itself.
type logWrite struct {
	gather.Item

	run func(conn *pgx.Conn) error
	err error
}

// Size is for [gather.Queue].
func (*logWrite) Size() int { return 0 }

// writeLog runs such a transaction, one at a time. Like a write of a record it is never cancelled:
// if its caller leaves, it continues, so run may not touch anything that the caller then uses.
func (s *Store) writeLog(ctx context.Context, run func(conn *pgx.Conn) error) error {
	w := &logWrite{run: run}
	if err := s.logWrites.Do(ctx, w); err != nil {
		return unanswered(err)
	}
	return w.err
}

// changeLog runs a statement that changes the evidence log.
func (s *Store) changeLog(ctx context.Context, st statement) error {
	return s.writeLog(ctx, func(conn *pgx.Conn) error {
		_, err := transact(unending, s, conn, ignore, st)
		return err
	})
}
