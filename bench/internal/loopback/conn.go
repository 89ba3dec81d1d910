package loopback

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
)

// Conn sends one request after the other on one connection. It does as little as it can,
// because it shares the processors with the server. It is for one goroutine.
type Conn struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

// Dial connects to a server.
func Dial(addr string) (*Conn, error) {
	c := &Conn{addr: addr}
	return c, c.Reconnect()
}

// Reconnect makes a new connection. It is needed after an error of [Conn.Do].
func (c *Conn) Reconnect() error {
	c.Close()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

// Close ends the connection.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

var (
	version  = []byte("HTTP/1.1 ")
	length   = []byte("Content-Length: ")
	errShape = errors.New("the answer has no length")
)

// Do sends a whole request in one write, and reads the answer, which needs a length. The
// body is valid until the next call.
func (c *Conn) Do(request []byte) (status int, body []byte, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	rest, ok := bytes.CutPrefix(line, version)
	if !ok || len(rest) < 3 {
		return 0, nil, fmt.Errorf("the answer is %q", bytes.TrimSpace(line))
	}
	if status, err = strconv.Atoi(string(rest[:3])); err != nil {
		return 0, nil, err
	}
	size := -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, nil, err
		}
		if len(line) <= 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, length); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, err
			}
		}
	}
	if size < 0 {
		return 0, nil, errShape
	}
	c.body = slices.Grow(c.body[:0], size)[:size]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}
