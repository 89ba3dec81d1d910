package semelhttp

import (
	"encoding/base64"
	"strings"

	"github.com/semelhq/semel"
)

// A reference names a call to its own caller: the operation, the key, and the
// beginning of the record's digest. Whoever has one learns the key from it but
// needs the caller's identity for anything else, because that goes into the
// digest.
const referenceCheck = 8

// reference names the record of id in problems and status URLs.
func (h *handler) reference(id semel.ID) string {
	digest := id.Digest()
	b := make([]byte, 0, 2*10+len(id.Operation)+len(id.Key)+referenceCheck)
	b = frame(b, id.Operation)
	b = frame(b, id.Key)
	b = append(b, digest[:referenceCheck]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseReference takes a reference apart.
func parseReference(text string) (operation, key string, check [referenceCheck]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", "", check, false
	}
	c := cursor{rest: b}
	operation = string(c.bytes())
	key = string(c.bytes())
	if c.bad || len(c.rest) != referenceCheck {
		return "", "", check, false
	}
	copy(check[:], c.rest)
	return operation, key, check, true
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
