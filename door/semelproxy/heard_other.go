//go:build !linux

package semelproxy

// acknowledged would need to know what the client's system has acknowledged.
func (c *strictConn) acknowledged() bool { return false }

func (c *strictConn) gone() bool { return false }
