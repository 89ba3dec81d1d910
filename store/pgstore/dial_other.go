//go:build !linux

package pgstore

import (
	"syscall"
	"time"
)

// limitUnanswered leaves it to the system when a silent peer is given up.
func limitUnanswered(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
