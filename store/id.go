package store

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/canon"
)

// MaxKeyLen is the longest key, in bytes. Doors may be stricter.
const MaxKeyLen = 1024

// MaxNameLen bounds tenants, principals and operation names, in bytes.
const MaxNameLen = 256

// ID is the identity of one logical call: at most one [Record] exists for it
// (CORE-ID.1). The payload isn't part of it (CORE-ID.2). It is always scoped by
// tenant (IDS-XV.1).
type ID struct {
	// Tenant isolates callers from each other. Empty is a tenant like any other.
	Tenant string `json:"tenant"`
	// Principal is the scope within the tenant: the caller. It is empty if the operation shares
	// its keys within the tenant, or if the call is bound to its caller in another way. The
	// call's scope follows it; see [ID.Scope].
	Principal string `json:"principal"`
	// Operation is the registered name of the kind of call.
	Operation string `json:"operation"`
	// Key names the call within the three above.
	Key string `json:"key"`
}

// Digest returns a collision-free name of fixed size: SHA-256 over a version and the
// length-framed members, so different identities can't have the same input.
func (id ID) Digest() [32]byte {
	var stack [512]byte
	b := append(stack[:0], "semel-id-1"...)
	b = canon.Frame(b, id.Tenant)
	b = canon.Frame(b, id.Principal)
	b = canon.Frame(b, id.Operation)
	b = canon.Frame(b, id.Key)
	return sha256.Sum256(b)
}

// Digest is a SHA-256 as records show it.
type Digest [sha256.Size]byte

// String returns d in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is [Digest.String].
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return &Error{Code: CodeInvalidCall, Message: "a digest has 64 hexadecimal digits"}
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// String shows the operation and the beginning of the digest, but not the key, which may be the
// caller's secret.
func (id ID) String() string {
	d := id.Digest()
	return id.Operation + "/" + hex.EncodeToString(d[:6])
}

// ValidText reports whether every store can keep the text unchanged: it is valid UTF-8
// without NUL.
func ValidText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == 0 || c >= utf8.RuneSelf {
			return c != 0 && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
		}
	}
	return true
}

// MaxScopeLen bounds Scope of semel.Call, in bytes.
const MaxScopeLen = 128

// ScopeMark separates the principal from the scope of a call in ID.Principal: the symbol for a
// unit separator. A principal can't contain it, so different pairs never give the same text.
const ScopeMark = "\u241f"

// Scope splits the principal scope into the principal and the scope of the call. Either
// may be empty.
func (id ID) Scope() (principal, scope string) {
	principal, scope, _ = strings.Cut(id.Principal, ScopeMark)
	return principal, scope
}

// ActivityPrincipal has the records of activities, which door/activitypub keeps by the
// activity's id. ActivityScope is the scope of the record with what came first under that id,
// in any inbox of a server; each inbox has a record beside it.
const (
	ActivityPrincipal = "activitypub"
	ActivityScope     = "activity"
)

// ReservedPrefix begins the names of operations that belong to Semel itself.
const ReservedPrefix = "semel."

// Internal reports whether Semel keeps the record for itself, beside those of calls. Lists for
// people leave it out.
func (id ID) Internal() bool {
	principal, scope := id.Scope()
	scope, _, _ = strings.Cut(scope, " ") // an id without a host is known only within its actor, whose digest follows
	return strings.HasPrefix(id.Operation, ReservedPrefix) || principal == ActivityPrincipal && scope == ActivityScope
}

// Numbered returns the identity of one number of the sequence that id names. Calls of other
// operations can't have it: its key has [ScopeMark], which no caller's key of a sequence can
// contain.
func (id ID) Numbered(n uint64) ID {
	id.Key += ScopeMark + strconv.FormatUint(n, 10)
	return id
}

// Number splits the key of an identity that [ID.Numbered] made into the key that the caller
// gave and the number. The number is zero, and the key whole, for any other identity.
func (id ID) Number() (key string, n uint64) {
	key, number, found := strings.Cut(id.Key, ScopeMark)
	if !found {
		return id.Key, 0
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
		return id.Key, 0
	}
	return key, n
}

// MaxNumber is the most bytes that a number adds to the key of its sequence.
const MaxNumber = len(ScopeMark) + len("18446744073709551615")

// Encode returns the identity as one word for use in URLs; [DecodeID] reads it. It hides
// nothing: all members can be read, the key included.
func (id ID) Encode() string {
	b := []byte{1}
	for _, s := range []string{id.Tenant, id.Principal, id.Operation, id.Key} {
		b = canon.Frame(b, s)
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
		text, rest, ok := canon.Unframe(b)
		if !ok {
			return ID{}, bad
		}
		*member, b = string(text), rest
	}
	// Each identity has only one encoding, so that encodings can be compared.
	if len(b) > 0 || id.Validate() != nil || len(id.Operation) > MaxNameLen || !ValidText(id.Operation) || id.Encode() != s {
		return ID{}, bad
	}
	return id, nil
}

// Validate rejects an identity that not every store can keep: a key that is missing or
// too long, a name that is too long, text that is not UTF-8 or has a NUL byte. The error
// has [CodeInvalidCall].
func (id ID) Validate() error {
	if id.Key == "" {
		return &Error{Code: CodeInvalidCall, Message: "the key is missing"}
	}
	if len(id.Key) > MaxKeyLen {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the key has %d bytes, more than %d", len(id.Key), MaxKeyLen)}
	}
	if !ValidText(id.Key) {
		return &Error{Code: CodeInvalidCall, Message: "the key is not valid UTF-8 or has a NUL byte"}
	}
	if len(id.Tenant) > MaxNameLen || !ValidText(id.Tenant) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the tenant is longer than %d bytes, not valid UTF-8 or has a NUL byte", MaxNameLen)}
	}
	if len(id.Principal) > MaxNameLen+len(ScopeMark)+MaxScopeLen || !ValidText(id.Principal) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the principal is longer than %d bytes, not valid UTF-8 or has a NUL byte", MaxNameLen)}
	}
	return nil
}
