//go:build unix

package carrier

import (
	"errors"
	"syscall"
)

// quiet reports whether nothing has arrived on a connection: neither its end nor any
// bytes, which nobody expects before a request. It consumes nothing and doesn't wait.
func quiet(raw syscall.RawConn) bool {
	if raw == nil {
		return false
	}
	var came error
	err := raw.Control(func(fd uintptr) { // unlike raw.Read it does not wait for another reader
		var b [1]byte
		for came = syscall.EINTR; errors.Is(came, syscall.EINTR); {
			_, _, came = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK) // the socket doesn't block
		}
	})
	return err == nil && errors.Is(came, syscall.EAGAIN)
}
