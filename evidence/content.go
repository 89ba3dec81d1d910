package evidence

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// content is a keyed digest of a record, and the format in which the record is stored. Zero
// means unknown.
type content struct {
	digest keyedDigest
	format uint16
}

// contentOf returns the content of a record, without the fields that change without evidence:
// leases, tries counted before they are verified, and the time of the next look. The digest of
// the outcome stands for the result.
func (l *Log) contentOf(rec *semel.Record, outcome [sha256.Size]byte) content {
	r := *rec
	r.Revision, r.NextAt, r.LeaseUntil, r.UpdatedAt, r.Result.Data = store.Revision{}, 0, 0, 0, nil
	if c := r.Confirmation; c != nil {
		told := *c
		told.Tries = 0
		r.Confirmation = &told
	}
	if c := r.Compensation; c != nil {
		told := *c
		told.NextAt = 0
		r.Compensation = &told
	}
	b, err := codec.Append(make([]byte, 0, usualSize), &r)
	if err != nil {
		return content{} // the store can't keep it either
	}
	return content{l.keyed(domainContent, append(b, outcome[:]...)), uint16(b[0])}
}

// String returns the content in the form of leaves.
func (c content) String() string {
	if c.format == 0 {
		return ""
	}
	return "c" + strconv.Itoa(int(c.format)) + "_" + c.digest.String()
}

// parseContent reads the output of String, or returns zero.
func parseContent(text string) (c content) {
	format, digits, _ := strings.Cut(strings.TrimPrefix(text, "c"), "_")
	n, err := strconv.ParseUint(format, 10, 16)
	digest, ok := blinded(digits, "")
	if err != nil || !ok {
		return content{}
	}
	return content{digest, uint16(n)}
}
