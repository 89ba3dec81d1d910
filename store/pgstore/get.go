package pgstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/gather"
	"github.com/semelhq/semel/store/codec"
)

// digest is the digest of an identity, the primary key.
type digest [32]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends the content of the column record: the record without its result's bytes,
// which have their own column, and their checksum.
func appendRecord(b []byte, rec *semel.Record) ([]byte, error) {
	r := *rec
	r.Result.Data = nil
	b, err := codec.Append(b, &r)
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(rec.Result.Data, castagnoli)), nil
}

// row is a stored record, with its value in the column that a list is ordered by.
type row struct {
	id, revision, record, response []byte
	at                             int64
}

func scanRow(v values) (r row, err error) {
	r = newRow(v[1:])
	r.at, _ = v.number(0)
	return r, nil
}

// newRow returns a row of four columns, without its place in a list.
func newRow(v values) row {
	return row{id: bytes.Clone(v[0]), revision: bytes.Clone(v[1]), response: bytes.Clone(v[2]), record: bytes.Clone(v[3])}
}

// cut reports whether a list has the row without its record, because the records before it were
// large.
func (r *row) cut() bool { return r.record == nil && r.revision != nil }

// decode reads a row and verifies that it is intact, and belongs to its identity and revision.
// The record keeps the bytes of the result.
func (r *row) decode() (*semel.Record, error) {
	end := max(len(r.record)-crc32.Size, 0)
	rec, err := codec.Decode(r.record[:end])
	var d digest
	if err == nil {
		d = rec.ID.Digest()
	}
	switch {
	case err != nil:
	case !bytes.Equal(d[:], r.id):
		err = fmt.Errorf("%w: it holds the record of another identity", codec.ErrCorrupt)
	case !bytes.Equal(rec.Revision[:], r.revision):
		err = fmt.Errorf("%w: it holds another revision than it says", codec.ErrCorrupt)
	case crc32.Checksum(r.response, castagnoli) != binary.BigEndian.Uint32(r.record[end:]):
		err = fmt.Errorf("%w: the checksum of its result is wrong", codec.ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("pgstore: the row of identity %x: %w", r.id, err)
	}
	rec.Result.Data = r.response
	return rec, nil
}

// look reads the rows of identities, which all differ, behind a barrier. A row without a
// revision says that nothing is stored; its at is the server's clock in microseconds.
func (s *Store) look(conn *pgx.Conn, ids [][]byte) (map[digest]row, error) {
	rows, err := transact(unending, s, conn, scanRow, newStatement(s.sql.get, array("bytea", ids)))
	if err != nil {
		return nil, err
	}
	found := make(map[digest]row, len(ids))
	for _, r := range rows {
		if len(r.id) == len(digest{}) {
			found[digest(r.id)] = r
		}
	}
	for _, id := range ids {
		if found[digest(id)].id == nil || len(rows) != len(ids) {
			_ = conn.Close(s.base)
			return nil, errGarbled
		}
	}
	return found, nil
}

// get is a Get in progress.
type get struct {
	gather.Item

	id  digest
	rec *semel.Record
	err error
}

// Size is for [gather.Queue].
func (*get) Size() int { return 0 }

// Get is [store.Store.Get].
func (s *Store) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	g := &get{id: id.Digest()}
	if err := s.readers.Do(ctx, g); err != nil {
		return nil, unanswered(err)
	}
	return g.rec, g.err
}

// getBatch reads the rows of a batch, each identity once.
func (s *Store) getBatch(batch []*get) {
	slices.SortFunc(batch, func(a, b *get) int { return bytes.Compare(a.id[:], b.id[:]) })
	var ids [][]byte
	for _, g := range batch {
		ids = append(ids, g.id[:])
	}
	ids = slices.CompactFunc(ids, bytes.Equal)
	var found map[digest]row
	err := s.commit(s.base, s.reads, func(conn *pgx.Conn) (err error) {
		found, err = s.look(conn, ids)
		return err
	})
	for _, g := range batch {
		r := found[g.id]
		switch {
		case err != nil:
			g.err = fmt.Errorf("pgstore: get: %w", err)
		case r.revision == nil:
			g.err = semel.ErrNotFound
		default:
			g.rec, g.err = r.decode()
		}
	}
}
