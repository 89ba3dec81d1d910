package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/semelhq/semel/door/semelproxy"
)

// serve serves on loopback until the end of the benchmark; if strict, as semel serve does.
// It returns host and port.
func serve(b *testing.B, h http.Handler, strict bool) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	s := &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0),
		// Strict sets these, so all servers get them.
		MaxHeaderBytes: semelproxy.DefaultMaxHeaderBytes, ReadHeaderTimeout: semelproxy.DefaultReadHeaderTimeout,
	}
	if strict {
		l = semelproxy.Strict(s, l)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	return addr
}

// conn sends one request after the other on one connection. It does as little as it can,
// because it shares the processors with the server. It is for one goroutine.
type conn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

// dial connects callers to a server until the end of the benchmark.
func dial(b *testing.B, addr string, callers int) []*conn {
	b.Helper()
	conns := make([]*conn, callers)
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() }) // it may have ended
		conns[i] = &conn{conn: c, in: bufio.NewReader(c)}
	}
	return conns
}

// post sends a request in one write, and reads the answer, which needs a length. head is
// its first lines, each with its end. The answer is valid until the next call.
func (c *conn) post(head string, body []byte) (status int, answer []byte, err error) {
	c.out = fmt.Appendf(c.out[:0], "POST %sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if _, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status); err != nil {
		return 0, nil, fmt.Errorf("the answer is %q", line)
	}
	length := -1
	for len(line) > 2 {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, nil, err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, err
			}
		}
	}
	if length < 0 {
		return 0, nil, errors.New("the answer has no length")
	}
	if len(c.body) < length {
		c.body = make([]byte, length)
	}
	_, err = io.ReadFull(c.in, c.body[:length])
	return status, c.body[:length], err
}
