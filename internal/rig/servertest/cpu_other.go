//go:build !linux

package servertest

import "time"

// CPU is zero: only Linux tells.
func (p *Process) CPU() time.Duration { return 0 }
