package door

import "strings"

// Internal reports whether an operation is one of those that Semel keeps for itself, such as
// the delivery of messages. Nobody delivers their calls, so they don't belong in figures.
func Internal(operation string) bool { return strings.HasPrefix(operation, "semel.") }
