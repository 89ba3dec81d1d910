package semel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semelhq/semel/internal/canon"
)

// MaxKeyLen is the longest key, in bytes. Doors may be stricter.
const MaxKeyLen = 1024

// maxNameLen bounds tenants, principals and operation names, in bytes.
const maxNameLen = 256

// ID is the identity of one logical call: at most one [Record] exists for it
// (CORE-ID.1). The payload is no part of it (CORE-ID.2). It is always scoped by
// tenant (IDS-XV.1).
type ID struct {
	// Tenant is who is isolated from whom. Empty is a tenant like any other.
	Tenant string `json:"tenant"`
	// Principal is the scope within the tenant: who acts. It is empty where
	// the operation shares its keys within the tenant, and where the call is
	// bound to its caller in another way. A scope of the call follows it; see
	// [ID.Scope].
	Principal string `json:"principal"`
	// Operation is the registered name of the kind of call.
	Operation string `json:"operation"`
	// Key names the call within the three above.
	Key string `json:"key"`
}

// Digest is a collision-free name of fixed size: SHA-256 over a version and the
// length-framed members, so no choice of members can imitate another.
func (id ID) Digest() [32]byte {
	var stack [512]byte
	b := append(stack[:0], "semel-id-1"...)
	b = frame(b, id.Tenant)
	b = frame(b, id.Principal)
	b = frame(b, id.Operation)
	b = frame(b, id.Key)
	return sha256.Sum256(b)
}

// Digest is a SHA-256 in the form in which records show it.
type Digest [sha256.Size]byte

// String is d in hexadecimal.
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

// String shows the operation and the beginning of the digest. The key, which
// may be a secret of the caller, is not shown.
func (id ID) String() string {
	d := id.Digest()
	return id.Operation + "/" + hex.EncodeToString(d[:6])
}

func (id ID) validate() error {
	if id.Key == "" {
		return &Error{Code: CodeInvalidCall, Message: "the key is missing"}
	}
	if len(id.Key) > MaxKeyLen {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the key has %d bytes, more than %d", len(id.Key), MaxKeyLen)}
	}
	if !validText(id.Key) {
		return &Error{Code: CodeInvalidCall, Message: "the key is not valid UTF-8 or has a NUL byte"}
	}
	if len(id.Tenant) > maxNameLen || !validText(id.Tenant) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the tenant is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxNameLen)}
	}
	if len(id.Principal) > maxNameLen+len(scopeMark)+maxScopeLen || !validText(id.Principal) {
		return &Error{Code: CodeInvalidCall, Message: fmt.Sprintf("the principal is longer than %d bytes, not valid UTF-8 or has a NUL byte", maxNameLen)}
	}
	return nil
}

// validText: every store must be able to keep the text as it is.
func validText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c == 0 || c >= utf8.RuneSelf {
			return c != 0 && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
		}
	}
	return true
}

// frame appends s preceded by its length.
func frame[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// DeriveKey makes a key from the content of a call: the lower-case hexadecimal
// SHA-256 of the version and the RFC 8785 form of inputs, each length-framed
// (IDS-VII.3, IDS-VII.5). Equal inputs give equal keys whatever the order of
// their members. The version names the rule that chose the inputs; change it
// when the rule changes. Times of "now", message ids and random tokens do not
// belong in the inputs: they would give every delivery a key of its own
// (IDS-VII.4).
func DeriveKey(version string, inputs any) (string, error) {
	text, ok := inputs.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(inputs); err != nil {
			return "", &Error{Code: CodeInvalidCall, Message: "the key inputs have no JSON form", Err: err}
		}
	}
	text, err := canon.Canonicalize(text, canon.Exact)
	if err != nil {
		return "", &Error{Code: CodeInvalidCall, Message: "the key inputs are not strict JSON", Err: err}
	}
	b := frame(frame([]byte("semel-key-1"), version), text)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// effectKey names one effect of one call for the provider that receives it: 43
// characters of base64url, which every known provider accepts. Its inputs are
// the same for all attempts of a call and differ between calls that reuse a key
// after its window.
func effectKey(id ID, origin int64, name string) string {
	return derivedKey("semel-effect-1", id, origin, name)
}

// derivedKey names something that belongs to one call. The version says what.
func derivedKey(version string, id ID, origin int64, name string) string {
	d := id.Digest()
	b := append([]byte(version), d[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(origin))
	b = frame(b, name)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// KeyTime tells when a UUIDv7 key was made. The second result is false for any
// other key. It serves late-retry refusal: see Operation.RefuseLate.
func KeyTime(key string) (time.Time, bool) {
	if len(key) != 36 || key[8] != '-' || key[13] != '-' || key[18] != '-' || key[23] != '-' || key[14] != '7' {
		return time.Time{}, false
	}
	if v := key[19]; v != '8' && v != '9' && v|0x20 != 'a' && v|0x20 != 'b' {
		return time.Time{}, false
	}
	raw, err := hex.DecodeString(key[:8] + key[9:13] + key[14:18] + key[19:23] + key[24:])
	if err != nil {
		return time.Time{}, false
	}
	ms := int64(binary.BigEndian.Uint64(raw[:8]) >> 16)
	return time.UnixMilli(ms).UTC(), true
}
