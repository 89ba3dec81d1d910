package door

import (
	"strings"

	"github.com/semelhq/semel/store"
)

// Internal reports whether an operation is reserved for Semel's own use, such as the delivery
// of messages. Nobody delivers calls of one, so leave it out of figures.
func Internal(operation string) bool { return strings.HasPrefix(operation, store.ReservedPrefix) }
