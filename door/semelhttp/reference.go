package semelhttp

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
)

// referenceCheck is how many bytes of the record's digest end a reference. A reference
// names a call to its own caller: it has the operation, the key and the scope in clear.
// Whoever has one needs the caller's identity, or credential, to learn more.
const referenceCheck = 8

// reference names the record of id in problems and status URLs.
func (h *handler) reference(id semel.ID) string {
	digest := id.Digest()
	b := make([]byte, 0, 3*10+len(id.Operation)+len(id.Key)+len(id.Principal)+referenceCheck)
	b = canon.Frame(b, id.Operation)
	b = canon.Frame(b, id.Key)
	_, scope := id.Scope()
	b = canon.Frame(b, scope)
	b = append(b, digest[:referenceCheck]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseReference takes a reference apart. The call gets its operation, key and scope.
func parseReference(text string) (call semel.Call, check [referenceCheck]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return call, check, false
	}
	for _, part := range [...]*string{&call.Operation, &call.Key, &call.Scope} {
		var text []byte
		if text, b, ok = canon.Unframe(b); !ok {
			return semel.Call{}, check, false
		}
		*part = string(text)
	}
	if len(b) != referenceCheck {
		return semel.Call{}, check, false
	}
	copy(check[:], b)
	return call, check, true
}

// A Reference is what you learn about a call from the reference of a problem document.
type Reference struct {
	Operation, Key string
	// Digest is how [store.ID.Digest] of the call begins, in hexadecimal.
	Digest string
}

// ParseReference takes apart the reference of a problem document, its instance, or the
// status URL that ends with it. It is for operators: callers ask [Guard.Status].
func ParseReference(text string) (Reference, bool) {
	call, check, ok := parseReference(lastSegment(strings.TrimPrefix(text, callURN)))
	return Reference{call.Operation, call.Key, hex.EncodeToString(check[:])}, ok
}

// callURN begins the instance of a problem document.
const callURN = "urn:semel:call:"

// statusURL is where you can ask for the state of a call; empty if nowhere.
func (g *Guard) statusURL(reference string) string {
	if g.opts.StatusPath == "" || reference == "" {
		return ""
	}
	return g.opts.StatusPath + reference
}

// lastSegment is what follows the last slash.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
