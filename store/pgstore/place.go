package pgstore

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/semelhq/semel"
)

// place is where a list has arrived, for its next page: behind the row of an id, of
// those that have one value in the column that the list is ordered by. An id need not
// be as long as those of this program, for the row may be damaged.
type place struct {
	kind byte
	at   int64
	id   []byte
}

// Kinds of a [place].
const (
	inDue    = 'd'
	inSearch = 's'
)

// placeOf is the place of a row, whose members it copies.
func placeOf(kind byte, at, id []byte) place {
	return place{kind, int64(binary.BigEndian.Uint64(at)), append([]byte{}, id...)}
}

func (p *place) encode() string {
	b := binary.BigEndian.AppendUint64([]byte{p.kind}, uint64(p.at))
	return base64.RawURLEncoding.EncodeToString(append(b, p.id...))
}

// decodePlace reads what encode has written for a list of a kind.
func decodePlace(s string, kind byte) (place, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 1+8 || b[0] != kind {
		return place{}, &semel.Error{Code: semel.CodeInvalidCall, Message: "the place to continue after is not one of this store"}
	}
	return placeOf(kind, b[1:9], b[9:]), nil
}
