package semelhttp

import (
	"encoding/hex"
	"strings"

	"github.com/semelhq/semel/internal/reference"
)

// A Reference is what you learn about a call from the reference of a problem document.
type Reference struct {
	Operation, Key string
	// Digest is how [store.ID.Digest] of the call begins, in hexadecimal.
	Digest string
}

// ParseReference takes apart the reference of a problem document, its instance, or the
// status URL that ends with it. It is for operators: callers ask [Guard.Status].
func ParseReference(text string) (Reference, bool) {
	call, ok := reference.Parse(lastSegment(strings.TrimPrefix(text, callURN)))
	return Reference{call.Operation, call.Key, hex.EncodeToString(call.Check[:])}, ok
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
