package store

import (
	"slices"
	"strings"
)

// Query selects records for people. Zero fields select all.
type Query struct {
	// Tenant selects one tenant, which may be the empty one; nil all.
	Tenant *string
	// Principal, Operation and Key equal the identity's.
	Principal, Operation, Key string
	// PrincipalPrefix, OperationPrefix and KeyPrefix select records by prefixes of these fields.
	PrincipalPrefix, OperationPrefix, KeyPrefix string
	// Digest selects records by the beginning of [ID.Digest] in hexadecimal. Logs and
	// references have part of it instead of tenant, principal and key.
	Digest string
	// Fingerprint selects calls with that payload.
	Fingerprint Fingerprint
	// Attributes selects records that have all of these.
	Attributes Attributes
	// AttributePrefixes selects records by prefixes of the values of the named attributes.
	AttributePrefixes Attributes
	// State selects records by the state of their newest attempt.
	State State
	// Disposition selects records by how their newest attempt ended.
	Disposition Disposition
	// Held selects held records only.
	Held bool
	// Unverified selects records of callers whom nobody verified: those with BoundTo.
	Unverified bool
	// After and Before bound CreatedAt: at or after After, and before Before.
	After, Before Instant
	// Any has lists of queries: in each list, at least one must select the record. Not has
	// queries that must not select it. Their Cursor and Limit are ignored.
	Any [][]Query
	Not []Query
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
		strings.HasPrefix(rec.ID.Principal, q.PrincipalPrefix) &&
		strings.HasPrefix(rec.ID.Operation, q.OperationPrefix) &&
		strings.HasPrefix(rec.ID.Key, q.KeyPrefix) &&
		(q.Fingerprint.IsZero() || q.Fingerprint == rec.Fingerprint) &&
		q.Attributes.within(rec.Attributes, func(value, want string) bool { return value == want }) &&
		q.AttributePrefixes.within(rec.Attributes, strings.HasPrefix) &&
		(q.State == absent || q.State == rec.State) &&
		(q.Disposition == 0 || q.Disposition == rec.Disposition) &&
		(!q.Held || rec.Held) &&
		(!q.Unverified || rec.BoundTo != "") &&
		(q.After == 0 || rec.CreatedAt >= q.After) &&
		(q.Before == 0 || rec.CreatedAt < q.Before) &&
		(q.Digest == "" || strings.HasPrefix(Digest(rec.ID.Digest()).String(), q.Digest)) &&
		!anyMatches(q.Not, rec) &&
		!slices.ContainsFunc(q.Any, func(list []Query) bool { return !anyMatches(list, rec) })
}

// anyMatches reports whether one of the queries selects the record.
func anyMatches(list []Query, rec *Record) bool {
	for i := range list {
		if list[i].Matches(rec) {
			return true
		}
	}
	return false
}

// within reports whether b has all of a; as compares each value with the wanted one.
func (a Attributes) within(b Attributes, as func(value, want string) bool) bool {
	for name, want := range a {
		if got, ok := b[name]; !ok || !as(got, want) {
			return false
		}
	}
	return true
}

// Page is one page of records, the newest first: in the order of CreatedAt to the microsecond,
// and in any order within one. It may have fewer records than asked for, or none, even if Next
// says that there may be more.
type Page struct {
	Records []Record
	// Next continues the search; empty at its end.
	Next string
	// Unreadable has an error for each record in this part of the store that can't be
	// read; see [DuePage]. The query may or may not select the record.
	Unreadable []error
}
