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
	left, failed := int32(-1), syscall.Errno(0)
	known := c.control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left)))
	})
	// The end of our own side counts as one more byte, after all others.
	return known && failed == 0 && (left == 0 || left == 1 && c.heard.ended.Load())
}

// gone reports whether the client has ended the connection, or its system has reset it, though the
// server may not have read that yet. Whoever reads after a reset that was seen here gets an end.
func (c *strictConn) gone() bool {
	n, err := 1, error(nil)
	c.control(func(fd uintptr) {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return n == 0 || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
}

// control calls f with the socket, if there is one.
func (c *strictConn) control(f func(fd uintptr)) bool {
	inner := c.Conn
	if t, ok := inner.(interface{ NetConn() net.Conn }); ok {
		inner = t.NetConn()
	}
	s, ok := inner.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	return err == nil && raw.Control(f) == nil
}
