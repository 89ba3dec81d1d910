package semelhttp

import (
	"encoding/base64"
	"strings"

	"github.com/semelhq/semel"
)

// A reference names a call to its own caller: the operation, the key, the scope, and
// the beginning of the record's digest. Whoever has one learns these from it but
// needs the caller's identity, or credential, for anything else.
const referenceCheck = 8

// reference names the record of id in problems and status URLs.
func (h *handler) reference(id semel.ID) string {
	digest := id.Digest()
	b := make([]byte, 0, 3*10+len(id.Operation)+len(id.Key)+len(id.Principal)+referenceCheck)
	b = frame(b, id.Operation)
	b = frame(b, id.Key)
	_, scope := id.Scope()
	b = frame(b, scope)
	b = append(b, digest[:referenceCheck]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseReference takes a reference apart. The call has its operation, key and scope.
func parseReference(text string) (call semel.Call, check [referenceCheck]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return call, check, false
	}
	c := cursor{rest: b}
	call.Operation = string(c.bytes())
	call.Key = string(c.bytes())
	call.Scope = string(c.bytes())
	if c.bad || len(c.rest) != referenceCheck {
		return semel.Call{}, check, false
	}
	copy(check[:], c.rest)
	return call, check, true
}

// statusURL is where the state of a call can be asked for; empty if nowhere.
func (g *Guard) statusURL(reference string) string {
	if g.opts.StatusPath == "" || reference == "" {
		return ""
	}
	return g.opts.StatusPath + reference
}

// lastSegment is what follows the last slash.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
