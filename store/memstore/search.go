package memstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// found is a record with its place in the order of a search: when its identity was
// first stored, and the identity. Neither changes while the identity is stored.
type found struct {
	since store.Instant
	rec   *semel.Record
}

// compare orders what is listed: the newest first.
func (a found) compare(b found) int {
	return cmp.Or(
		cmp.Compare(b.since, a.since),
		cmp.Compare(a.rec.ID.Key, b.rec.ID.Key), cmp.Compare(a.rec.ID.Operation, b.rec.ID.Operation),
		cmp.Compare(a.rec.ID.Principal, b.rec.ID.Principal), cmp.Compare(a.rec.ID.Tenant, b.rec.ID.Tenant),
	)
}

// Search is [store.Searcher.Search]. There is no index for it: a call looks at
// every record, and copies those that it returns.
func (s *Store) Search(ctx context.Context, q store.Query) (store.Page, error) {
	if s.closed.Load() {
		return store.Page{}, errClosed
	}
	last, more, err := parseCursor(q.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	limit := min(cmp.Or(max(q.Limit, 0), store.DefaultSearchLimit), store.MaxSearchLimit)
	list := s.matching(&q, last, more)
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	slices.SortFunc(list, found.compare)
	var page store.Page
	for i, f := range list {
		if i == limit {
			page.Next = list[i-1].cursor()
			break
		}
		page.Records = append(page.Records, *f.rec)
	}
	return page, nil
}

// matching returns all that a query matches, or all of that after last.
func (s *Store) matching(q *store.Query, last found, after bool) (list []found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, en := range s.records {
		if f := (found{en.since, en.rec}); (!after || last.compare(f) < 0) && q.Matches(en.rec) {
			list = append(list, f)
		}
	}
	return list
}

// cursor names the last record of a page.
func (f found) cursor() string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(f.since))) + f.rec.ID.Encode()
}

// sinceLen is the length of the first part of a cursor.
var sinceLen = base64.RawURLEncoding.EncodedLen(8)

// parseCursor is the reverse of cursor; the empty one comes before all records.
func parseCursor(cursor string) (last found, more bool, err error) {
	if cursor == "" {
		return found{}, false, nil
	}
	if len(cursor) < sinceLen {
		return found{}, false, errCursor
	}
	since, err := base64.RawURLEncoding.Strict().DecodeString(cursor[:sinceLen])
	id, iderr := store.DecodeID(cursor[sinceLen:])
	if errors.Join(err, iderr) != nil {
		return found{}, false, errCursor
	}
	return found{store.Instant(binary.BigEndian.Uint64(since)), &semel.Record{ID: id}}, true, nil
}

var errCursor = &semel.Error{Code: semel.CodeInvalidCall, Message: "the cursor is not one of this store"}
