package semelhttp

import (
	"encoding/hex"
	"strings"

	"github.com/semelhq/semel/internal/reference"
)

// A Reference is what the reference in a problem document says about a call.
type Reference struct {
	Operation, Key string
	// Digest is the beginning of the call's [store.ID.Digest], in hexadecimal.
	Digest string
}

// ParseReference parses the reference of a problem document, its instance, or the status URL
// that ends with it. It is for operators: callers ask [Guard.Status].
func ParseReference(text string) (Reference, bool) {
	call, ok := reference.Parse(lastSegment(strings.TrimPrefix(text, callURN)))
	return Reference{call.Operation, call.Key, hex.EncodeToString(call.Check[:])}, ok
}

// callURN begins the instance of a problem document.
const callURN = "urn:semel:call:"

// statusURL returns the address to ask for the state of a call; empty if there is none.
func (g *Guard) statusURL(reference string) string {
	if g.opts.StatusPath == "" || reference == "" {
		return ""
	}
	return g.opts.StatusPath + reference
}

// lastSegment returns the part after the last slash.
func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
