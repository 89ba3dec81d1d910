// Package reference names a call to its own caller, in problems and in the URLs of the status
// resource. A reference has the operation, the key and the scope in clear. To learn more, you
// also need the caller's identity, or credential.
package reference

import (
	"crypto/subtle"
	"encoding/base64"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// Call is the content of a reference.
type Call struct {
	Operation, Key, Scope string
	// Check is the beginning of the digest of the call's identity.
	Check [8]byte
}

// Of returns the reference to the record of id.
func Of(id store.ID) string {
	digest := id.Digest()
	check := digest[:len(Call{}.Check)]
	b := make([]byte, 0, 3*10+len(id.Operation)+len(id.Key)+len(id.Principal)+len(check))
	b = canon.Frame(b, id.Operation)
	b = canon.Frame(b, id.Key)
	_, scope := id.Scope()
	b = canon.Frame(b, scope)
	b = append(b, check...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Parse parses a reference.
func Parse(text string) (c Call, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return c, false
	}
	for _, part := range [...]*string{&c.Operation, &c.Key, &c.Scope} {
		var text []byte
		if text, b, ok = canon.Unframe(b); !ok {
			return Call{}, false
		}
		*part = string(text)
	}
	if len(b) != len(c.Check) {
		return Call{}, false
	}
	copy(c.Check[:], b)
	return c, true
}

// Names reports whether the reference is to id, in constant time.
func (c *Call) Names(id store.ID) bool {
	digest := id.Digest()
	return subtle.ConstantTimeCompare(digest[:len(c.Check)], c.Check[:]) == 1
}
