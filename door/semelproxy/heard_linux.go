package semelproxy

import (
	"net"
	"syscall"
	"unsafe"
)

// acknowledged reports whether the client's system has acknowledged everything that was written.
// After the client has closed in the usual way, that means that it has read everything: what
// arrives later, or is left unread, is answered by a reset.
func (c *strictConn) acknowledged() bool {
	inner := c.Conn
	if t, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = t.NetConn()
	}
	s, ok := inner.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	left, failed := int32(-1), syscall.Errno(0)
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
	})
	return err == nil && failed == 0 && left == 0
}
