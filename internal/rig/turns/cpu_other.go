//go:build !unix

package turns

import "time"

// ProcessorTime is zero: only Unix tells.
func ProcessorTime() time.Duration { return 0 }
