package evidence

import (
	"crypto/sha256"
	"strconv"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/codec"
)

// contentPrefix begins digests of records. It has the format of the record: one that
// another format holds can't be compared by its digest.
func contentPrefix(format byte) string { return "c" + strconv.Itoa(int(format)) + "_" }

// content is a keyed digest of what a record says. What changes without evidence is left
// out: leases, tries that are counted before they are verified, and when somebody looks
// next. The result is in it by the digest of the outcome.
func (l *Log) content(rec *semel.Record, outcome [sha256.Size]byte) string {
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
		return "" // the store can't keep it either
	}
	return contentPrefix(b[0]) + l.keyed(domainContent, append(b, outcome[:]...)).String()
}
