package semel

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// Query selects records for people who look for them. Zero members select all.
type Query struct {
	// Tenant selects one tenant, which may be the empty one; nil all.
	Tenant *string
	// Principal is that of the identity; Operation and Key are matched whole.
	Principal, Operation, Key string
	// State selects records whose newest attempt is in it.
	State State
	// Held selects held records only.
	Held bool
	// After and Before bound CreatedAt: not before After, and before Before.
	After, Before Instant
	// Cursor continues after an earlier page: its Next, with the same Query.
	Cursor string
	// Limit bounds the page. Defaults to 50, at most 1000.
	Limit int
}

// Bounds of [Query].Limit.
const (
	DefaultSearchLimit = 50
	MaxSearchLimit     = 1000
)

// Matches reports whether the query selects the record.
func (q *Query) Matches(rec *Record) bool {
	return (q.Tenant == nil || *q.Tenant == rec.ID.Tenant) &&
		(q.Principal == "" || q.Principal == rec.ID.Principal) &&
		(q.Operation == "" || q.Operation == rec.ID.Operation) &&
		(q.Key == "" || q.Key == rec.ID.Key) &&
		(q.State == absent || q.State == rec.State) &&
		(!q.Held || rec.Held != "") &&
		(q.After == 0 || rec.CreatedAt >= q.After) &&
		(q.Before == 0 || rec.CreatedAt < q.Before)
}

// Page is one page of records, the newest first: in the order of CreatedAt to the
// microsecond, and in whatever order within one. It may have fewer records than
// asked for, even none, while Next says that there is more to look at.
type Page struct {
	Records []Record
	// Next continues the search; empty at its end.
	Next string
	// Unreadable says of each record in this part of the store that can't be read
	// why; see [DuePage]. Whether the query selects it is not known.
	Unreadable []error
}

// SearchStore is a [Store] whose records can be listed. It serves
// [Engine.Search], which people and consoles use; no delivery needs it.
//
// Expired records that were not purged yet are listed too. A record that exists
// during the whole of a search through all pages is listed exactly once, and so
// is one that changes meanwhile. Where records are on a disk or in another
// process, one call looks at a bounded number of them.
type SearchStore interface {
	// Search returns a page of what q selects. Its limit is set. A cursor that
	// the store did not make is [CodeInvalidCall].
	Search(ctx context.Context, q Query) (Page, error)
}

// Search lists records, for people. [CodeUnsupported] means that the store can't.
func (e *Engine) Search(ctx context.Context, q Query) (Page, error) {
	ss, ok := e.store.(SearchStore)
	if !ok {
		return Page{}, &Error{Code: CodeUnsupported, Message: "the store can't list its records"}
	}
	if q.Limit < 0 || q.Limit > MaxSearchLimit {
		return Page{}, &Error{Code: CodeInvalidCall, Message: "the limit of a page is 1 to 1000"}
	}
	if q.Limit == 0 {
		q.Limit = DefaultSearchLimit
	}
	call, cancel := e.limited(ctx)
	defer cancel()
	page, err := ss.Search(call, q)
	switch {
	case errors.Is(err, &Error{Code: CodeInvalidCall}):
		return Page{}, err
	case err != nil:
		return Page{}, e.storeError("search", ID{}, err)
	}
	return page, nil
}

// Encode is the identity as one word that fits into a URL, for [DecodeID]. It is
// an encoding, not a secret: it shows all members, the key included.
func (id ID) Encode() string {
	b := []byte{1}
	for _, s := range []string{id.Tenant, id.Principal, id.Operation, id.Key} {
		b = frame(b, s)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeID reads what [ID.Encode] wrote.
func DecodeID(s string) (id ID, err error) {
	bad := &Error{Code: CodeInvalidCall, Message: "the text is not the name of a record"}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != 1 {
		return ID{}, bad
	}
	b = b[1:]
	for _, member := range []*string{&id.Tenant, &id.Principal, &id.Operation, &id.Key} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return ID{}, bad
		}
		*member, b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	// There is one encoding of each identity, so that it can be compared.
	if len(b) > 0 || id.validate() != nil || len(id.Operation) > maxNameLen || !validText(id.Operation) || id.Encode() != s {
		return ID{}, bad
	}
	return id, nil
}
