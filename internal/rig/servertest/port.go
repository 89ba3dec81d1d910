//go:build unix

package servertest

import (
	"syscall"
	"testing"
)

// FreePort is a port of the loopback interface for a server that can't choose one by itself. Until
// the test ends nobody gets it by chance, whether the server runs or not: the system gives no port
// away that a socket is bound to. The server can listen on it, as all do here that set SO_REUSEADDR.
func FreePort(tb testing.TB) int {
	tb.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	Check(tb, err)
	tb.Cleanup(func() { Check(tb, syscall.Close(fd)) })
	Check(tb, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	// Set before, it would let the system give away a port of another such socket.
	Check(tb, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	at, err := syscall.Getsockname(fd)
	Check(tb, err)
	return at.(*syscall.SockaddrInet4).Port
}
