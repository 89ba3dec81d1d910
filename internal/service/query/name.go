package query

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
)

// callURN begins the instance of a problem document.
const callURN = "urn:semel:call:"

// Named selects every call that has text for one of its names: one that [Name] accepts, its
// key, an attribute as in order=9911, or one of [store.IDAttributes]: the command, request,
// correlation or event id of its first delivery, or the id of the trace of its newest attempt.
// An asterisk at the end stands for any text,
// in keys and attributes.
func Named(text string) store.Query { return named(text, true) }

func named(text string, prefixes bool) store.Query {
	q, ok := Name(text)
	if ok && q.Tenant != nil { // a whole identity: it can't be anything else
		return q
	}
	either := []store.Query{{Key: text}}
	if ok {
		either = append(either, q)
	}
	for _, name := range store.IDAttributes {
		either = append(either, store.Query{Attributes: store.Attributes{name: text}})
	}
	if len(text) == 32 && isDigest(text) { // a trace, of which an attempt is one span
		either = append(either, store.Query{AttributePrefixes: store.Attributes{store.AttributeTrace: "00-" + text + "-"}})
	}
	name, value, attribute := strings.Cut(text, "=")
	if attribute = attribute && name != ""; attribute {
		either = append(either, store.Query{Attributes: store.Attributes{name: value}})
	}
	if prefix, cut := strings.CutSuffix(text, "*"); cut && prefix != "" && prefixes {
		either = append(either, store.Query{KeyPrefix: prefix})
		if attribute {
			either = append(either, store.Query{AttributePrefixes: store.Attributes{name: strings.TrimSuffix(value, "*")}})
		}
	}
	return store.Query{Any: [][]store.Query{either}}
}

// A Searcher searches records: an engine, or a client of a service.
type Searcher interface {
	// Search is [github.com/semelhq/semel.Engine.Search].
	Search(ctx context.Context, q store.Query) (store.Page, error)
}

// Find finds the newest calls that have text for a name, as [Named] has it, at most so many. It
// reports more if there may be others. Where text is an attribute, as in order=9911, calls that
// have it come first, and alone: every store has an index of attributes. Then come calls with
// that key, and without any, Find looks at all records. It skips records that can't be read.
func Find(ctx context.Context, s Searcher, text string, most int) (found []store.Record, more bool, err error) {
	queries := []store.Query{{Key: text}, Named(text)}
	if name, value, ok := strings.Cut(text, "="); ok && name != "" {
		queries = slices.Insert(queries, 0, store.Query{Attributes: store.Attributes{name: value}})
	}
	for _, q := range queries {
		if found, more, err = upTo(ctx, s, q, most); err != nil || len(found) > 0 {
			break
		}
	}
	return found, more, err
}

// Look is Find for readers: where nothing has the name, text may be the value of an attribute,
// such as the number of an order, of any attribute that one of the newest calls has. A command
// that changes what it finds must not guess so.
func Look(ctx context.Context, s Searcher, text string, most int) (found []store.Record, more bool, err error) {
	found, more, err = Find(ctx, s, text, most)
	if err != nil || len(found) > 0 {
		return found, more, err
	}
	q, ok, err := attributed(ctx, s, text)
	if err != nil || !ok {
		return nil, false, err
	}
	return upTo(ctx, s, q, most)
}

func upTo(ctx context.Context, s Searcher, q store.Query, most int) (found []store.Record, more bool, err error) {
	for {
		q.Limit = min(most-len(found), store.MaxSearchLimit)
		page, err := s.Search(ctx, q)
		if err != nil {
			return nil, false, err
		}
		found = append(found, page.Records...)
		if q.Cursor = page.Next; q.Cursor == "" || len(found) >= most {
			return found, q.Cursor != "", nil
		}
	}
}

// maxAttributes bounds the attributes that a text is compared with.
const maxAttributes = 32

// attributed selects the calls that have text for any attribute of the newest calls.
func attributed(ctx context.Context, s Searcher, text string) (q store.Query, ok bool, err error) {
	page, err := s.Search(ctx, store.Query{Limit: store.MaxSearchLimit})
	if err != nil {
		return q, false, err
	}
	names := map[string]bool{}
	for i := range page.Records {
		for name := range page.Records[i].Attributes {
			names[name] = true
		}
	}
	var either []store.Query
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(store.IDAttributes, name) && len(either) < maxAttributes {
			either = append(either, store.Query{Attributes: store.Attributes{name: text}})
		}
	}
	return store.Query{Any: [][]store.Query{either}}, len(either) > 0, nil
}

// Name accepts any of a call's names, and returns a query that selects it:
//
//   - the id of a record, as lists and addresses show it; with a dot and a fence it is
//     an execution
//   - the reference of a problem, also as its instance, urn:semel:call:REFERENCE, or
//     at the end of its status URL
//   - the operation, a slash and 12 hexadecimal digits, as logs show it
//
// A record and an execution name all four members of the identity.
func Name(text string) (q store.Query, ok bool) {
	if operation, digest, found := cutLast(text, '/'); found && len(digest) == 12 && isDigest(digest) {
		return store.Query{Operation: operation, Digest: digest}, true
	}
	record := text
	if name, fence, found := cutLast(text, '.'); found && fence != "" && strings.Trim(fence, "0123456789") == "" {
		record = name
	}
	if id, err := store.DecodeID(record); err == nil {
		digest := store.Digest(id.Digest()).String() // the digest also selects an empty principal
		return store.Query{Tenant: &id.Tenant, Principal: id.Principal, Operation: id.Operation, Key: id.Key, Digest: digest}, true
	}
	reference, ok := semelhttp.ParseReference(text)
	return store.Query{Operation: reference.Operation, Key: reference.Key, Digest: reference.Digest}, ok
}

func cutLast(text string, at byte) (before, after string, found bool) {
	i := strings.LastIndexByte(text, at)
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

func isDigest(text string) bool {
	return text != "" && len(text) <= hex.EncodedLen(32) && strings.Trim(text, "0123456789abcdef") == ""
}
