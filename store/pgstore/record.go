package pgstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/codec"
)

// digest is that of an identity, the primary key.
type digest [32]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRecord is what the column record holds: the record without its result's
// bytes, which have a column of their own, and the checksum of those.
func encodeRecord(rec *semel.Record) ([]byte, error) {
	r := *rec
	r.Result.Data = nil
	b, err := codec.Append(make([]byte, 0, 320), &r)
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
	r.at, _ = v.number(0) // null in the row of a barrier
	r.id, r.revision, r.response, r.record = bytes.Clone(v[1]), bytes.Clone(v[2]), bytes.Clone(v[3]), bytes.Clone(v[4])
	return r, nil
}

// decode reads a row and verifies that it is whole, and belongs to its identity and
// revision. The record keeps the bytes of the result.
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
