package semel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/semelhq/semel/internal/canon"
)

// DeriveKey makes a key from the content of a call: the lower-case hexadecimal
// SHA-256 of the version and the RFC 8785 form of inputs, each length-framed
// (IDS-VII.3, IDS-VII.5). Equal inputs give equal keys whatever the order of
// their members. The version names the rule that chose the inputs; change it
// when the rule changes. Leave the current time, message ids and random tokens out
// of the inputs: they would give every delivery a different key (IDS-VII.4).
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
	b := canon.Frame(canon.Frame([]byte("semel-key-1"), version), text)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// effectKey is the idempotency key of one effect for its provider: 43 characters of
// base64url, which every known provider accepts. It is the same for all attempts of a
// call, and differs between calls that reuse a key after its window.
func effectKey(id ID, origin int64, name string) string {
	return derivedKey("semel-effect-1", id, origin, name)
}

// derivedKey is a name for something that belongs to one call. The version says for what.
func derivedKey(version string, id ID, origin int64, name string) string {
	d := id.Digest()
	b := append([]byte(version), d[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(origin))
	b = canon.Frame(b, name)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// KeyTime returns when a UUIDv7 key was made. The second result is false for any
// other key. Operation.RefuseLate uses it to refuse late retries.
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
