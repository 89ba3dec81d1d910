package query

import (
	"encoding/hex"
	"strings"

	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/transport/semelhttp"
)

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
