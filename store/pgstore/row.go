package pgstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/recordcodec"
)

// digest is the digest of an identity, the primary key.
type digest [32]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRecord is what the column record holds: the record without its result's
// bytes, which have a column of their own, and the checksum of those.
func encodeRecord(rec *semel.Record) ([]byte, error) {
	r := *rec
	r.Result.Data = nil
	b, err := recordcodec.Append(make([]byte, 0, 320), &r)
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(rec.Result.Data, castagnoli)), nil
}

// decodeRecord reads a row and verifies that it is whole, and that of an identity
// and revision. Nothing of the arguments is kept.
func decodeRecord(id, revision, record, response []byte) (semel.Record, error) {
	rec, err := decodeRow(id, revision, record, response)
	if err != nil {
		return semel.Record{}, fmt.Errorf("pgstore: the row of identity %x: %w", id, err)
	}
	return rec, nil
}

func decodeRow(id, revision, record, response []byte) (semel.Record, error) {
	var rec semel.Record
	end := len(record) - crc32.Size
	if end < 0 {
		return rec, fmt.Errorf("%w: %d bytes are too few", recordcodec.ErrCorrupt, len(record))
	}
	rec, err := recordcodec.Decode(record[:end])
	if err != nil {
		return rec, err
	}
	d := digest(rec.ID.Digest())
	switch {
	case !bytes.Equal(d[:], id):
		return rec, fmt.Errorf("%w: it holds the record of another identity", recordcodec.ErrCorrupt)
	case !bytes.Equal(rec.Revision[:], revision):
		return rec, fmt.Errorf("%w: it holds another revision than it says", recordcodec.ErrCorrupt)
	case crc32.Checksum(response, castagnoli) != binary.BigEndian.Uint32(record[end:]):
		return rec, fmt.Errorf("%w: the checksum of its result is wrong", recordcodec.ErrCorrupt)
	}
	if response != nil {
		rec.Result.Data = append(make([]byte, 0, len(response)), response...)
	}
	return rec, nil
}
