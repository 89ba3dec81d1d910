package pgstore

import (
	"cmp"
	"syscall"
	"time"
)

const tcpUserTimeout = 18 // TCP_USER_TIMEOUT of linux/tcp.h

// limitUnanswered ends a connection whose peer has not acknowledged what was sent
// for so long. One that acknowledges and does not answer goes on.
func limitUnanswered(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
		return cmp.Or(err, failed)
	}
}
