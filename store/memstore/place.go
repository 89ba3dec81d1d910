package memstore

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// place is a record's place in a search: ordered by an instant, then by identity.
type place struct {
	at store.Instant
	id *semel.ID
}

func (p place) compare(q place) int {
	if p.at != q.at {
		return cmp.Compare(p.at, q.at)
	}
	return cmp.Or(
		strings.Compare(p.id.Tenant, q.id.Tenant), strings.Compare(p.id.Principal, q.id.Principal),
		strings.Compare(p.id.Operation, q.id.Operation), strings.Compare(p.id.Key, q.id.Key),
	)
}

// String returns the place as the cursor of a page.
func (p place) String() string {
	return strconv.FormatInt(int64(p.at), 10) + "." + p.id.Encode()
}

// parsePlace is the reverse of String. An empty cursor stands after all places.
func parsePlace(cursor string) (place, error) {
	if cursor == "" {
		return place{math.MaxInt64, &semel.ID{}}, nil
	}
	at, name, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	id, bad := store.DecodeID(name)
	if err != nil || bad != nil {
		return place{}, errCursor
	}
	return place{store.Instant(n), &id}, nil
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}
