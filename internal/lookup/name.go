package lookup

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/store"
)

// CallURN begins the instance of a problem document.
const CallURN = "urn:semel:call:"

// The kinds of names in answers. One of [store.IDAttributes] appears under its own name, any
// other attribute as attribute:NAME if the text is NAME=VALUE, and as value:NAME if the text is
// just the value.
const (
	byRecord    = "record"
	byExecution = "execution"
	byReference = "reference"
	byLog       = "log"
	byKey       = "key"
	byTrace     = "trace"
	byMessage   = "message"
	byEffect    = "effect"
	byDelivery  = "delivery" // the request id of a later delivery
	byEvidence  = "evidence"
	byAttribute = "attribute:"
	byValue     = "value:"
)

// way is one way in which a text may name a call.
type way struct {
	by    string
	query store.Query
}

// Named selects every call that has text as one of its names: one that [Name] accepts, its key,
// an attribute as in order=9911, or one of [store.IDAttributes]: the command, request,
// correlation or event id of its first delivery, or the trace id of its newest attempt. An
// asterisk at the end stands for any text, in keys and attributes. No query can look for a
// value in attributes of any name: see [Finder].
func Named(text string) store.Query { return either(ways(text, true)) }

// Exactly is Named without asterisks: text is a whole name.
func Exactly(text string) store.Query { return either(ways(text, false)) }

func either(ways []way) store.Query {
	if ways[0].query.Tenant != nil { // a whole identity
		return ways[0].query
	}
	var list []store.Query
	for i := range ways {
		list = append(list, ways[i].query)
	}
	return store.Query{Any: [][]store.Query{list}}
}

func ways(text string, prefixes bool) (all []way) {
	by, q, ok := parse(text)
	if ok && q.Tenant != nil { // a whole identity: it can't be anything else
		return []way{{by, q}}
	}
	all = []way{{byKey, store.Query{Key: text}}}
	if ok {
		all = append(all, way{by, q})
	}
	for _, name := range store.IDAttributes {
		all = append(all, way{name, store.Query{Attributes: store.Attributes{name: text}}})
	}
	if len(text) == 32 && IsDigest(text) { // a trace; an attempt is one span of it
		all = append(all, way{byTrace, store.Query{AttributePrefixes: store.Attributes{store.AttributeTrace: "00-" + text + "-"}}})
	}
	name, value, attribute := strings.Cut(text, "=")
	if attribute = attribute && name != ""; attribute {
		all = append(all, way{byAttribute + name, store.Query{Attributes: store.Attributes{name: value}}})
	}
	if prefix, cut := strings.CutSuffix(text, "*"); cut && prefix != "" && prefixes {
		all = append(all, way{byKey, store.Query{KeyPrefix: prefix}})
		if attribute {
			all = append(all, way{byAttribute + name, store.Query{AttributePrefixes: store.Attributes{name: strings.TrimSuffix(value, "*")}}})
		}
	}
	return all
}

// namesOf lists the kinds of a record's names that match a text.
func namesOf(rec *store.Record, text string, ways []way) (by []string) {
	add := func(name string) {
		if !slices.Contains(by, name) {
			by = append(by, name)
		}
	}
	for i := range ways {
		if ways[i].query.Matches(rec) {
			add(ways[i].by)
		}
	}
	if key, number := rec.ID.Number(); number != 0 && key == text {
		add(byKey) // of the sequence
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Attributes)) {
		switch {
		case rec.Attributes[name] != text || slices.Contains(store.IDAttributes, name):
		case name == store.AttributeTrace:
			add(byTrace)
		default:
			add(byValue + name)
		}
	}
	if slices.ContainsFunc(rec.Outbox, func(m store.Message) bool { return m.ID == text }) {
		add(byMessage)
	}
	if slices.ContainsFunc(rec.Effects, func(ef store.EffectRecord) bool { return ef.Key == text }) {
		add(byEffect)
	}
	return by
}

// Sure reports whether one of the names is more than an attribute's bare value. That would be a
// guess, and a command that changes something must not guess.
func Sure(by []string) bool {
	return slices.ContainsFunc(by, func(name string) bool { return !strings.HasPrefix(name, byValue) })
}

// Name accepts any of a call's names, and returns a query that selects it:
//
//   - the id of a record, as lists and addresses show it; with a dot and a fence it is
//     an execution
//   - the reference of a problem, even as its instance, urn:semel:call:REFERENCE, or
//     at the end of its status URL
//   - the operation, a slash and 12 hexadecimal digits, as logs show it
//
// A record and an execution name all four members of the identity.
func Name(text string) (q store.Query, ok bool) {
	_, q, ok = parse(text)
	return q, ok
}

func parse(text string) (by string, q store.Query, ok bool) {
	if operation, digest, found := cutLast(text, '/'); found && len(digest) == 12 && IsDigest(digest) {
		return byLog, store.Query{Operation: operation, Digest: digest}, true
	}
	by, record := byRecord, text
	if name, fence, found := cutLast(text, '.'); found && fence != "" && strings.Trim(fence, "0123456789") == "" {
		by, record = byExecution, name
	}
	if id, err := store.DecodeID(record); err == nil {
		digest := store.Digest(id.Digest()).String() // the digest also selects an empty principal
		return by, store.Query{Tenant: &id.Tenant, Principal: id.Principal, Operation: id.Operation, Key: id.Key, Digest: digest}, true
	}
	reference, ok := semelhttp.ParseReference(text)
	return byReference, store.Query{Operation: reference.Operation, Key: reference.Key, Digest: reference.Digest}, ok
}

func cutLast(text string, at byte) (before, after string, found bool) {
	i := strings.LastIndexByte(text, at)
	if i < 0 {
		return "", "", false
	}
	return text[:i], text[i+1:], true
}

// IsDigest reports whether text can be the beginning of [store.ID.Digest] in hexadecimal.
func IsDigest(text string) bool {
	return text != "" && len(text) <= hex.EncodedLen(32) && strings.Trim(text, "0123456789abcdef") == ""
}
